"""Plans in the form of other tools: one file, or the folder that starts the job, on hosts bound on the way."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path
from fastapi.responses import Response

from app.api.examples import BUNDLE_EXAMPLES, HOSTS_EXAMPLES
from app.api.headers import Asking, Service
from app.api.plans import PlanId, found, plan_of
from app.api.problems import documented, existing
from app.api.strict import StrictRoute
from app.exporters.binding import bind
from app.exporters.launch.bundle import bundle, zipped
from app.exporters.launch.options import HostsField, Launch
from app.exporters.registry import EXPORTERS, ArtifactKind
from app.jobs.access import Caller
from app.jobs.service import PlanService
from app.wire import Answer
from models.plan import Plan
from models.request import PlanRequest

Documented = dict[int | str, dict[str, Any]]
router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)
Kind = Annotated[ArtifactKind, Path(description="The form; `export-notes` says what each needs and cannot say.")]
MEDIA_TYPES = sorted({one.media_type.partition(";")[0] for one in EXPORTERS.values()})
ARTIFACT: Documented = {
    200: {
        "description": "The plan in the chosen form, as a file to download.",
        "content": {name: {} for name in MEDIA_TYPES},
    }
}
BUNDLE: Documented = {200: {"description": "The launch folder, as a zip.", "content": {"application/zip": {}}}}


class Hosts(Answer):
    """Which hosts a plan is to run on."""

    hosts: HostsField


@router.get("/{plan_id}/artifacts/{kind}", name="read_plan_artifact",
            responses={**ARTIFACT, **documented(400, 404, 409, 422, 503)},
            summary="Export a plan for another tool")  # fmt: skip
def read_artifact(plan_id: PlanId, kind: Kind, service: Service, caller: Asking) -> Response:
    """The plan in the form of another tool, made on request. 409 as long as there is no plan."""
    return _file(plan_id, kind, *_planned(service, plan_id, caller))


@router.post("/{plan_id}/artifacts/{kind}", name="create_plan_artifact",
             responses={**ARTIFACT, **documented(400, 404, 408, 409, 413, 415, 422, 503)},
             summary="Export a plan on hosts of yours")  # fmt: skip
def create_artifact(
    plan_id: PlanId,
    kind: Kind,
    body: Annotated[Hosts, Body(openapi_examples=HOSTS_EXAMPLES)],
    service: Service,
    caller: Asking,
) -> Response:
    """The same with the hosts that the body names: the plan stays as it is, missing hosts are named."""
    bound = bind(*_planned(service, plan_id, caller), body.hosts)
    return _file(plan_id, kind, bound.plan, bound.request)


@router.post("/{plan_id}/bundle", name="create_plan_bundle",
             responses={**BUNDLE, **documented(400, 404, 408, 409, 413, 415, 422, 503)},
             summary="Make the folder that starts a plan")  # fmt: skip
def create_bundle(
    plan_id: PlanId, body: Annotated[Launch, Body(openapi_examples=BUNDLE_EXAMPLES)], service: Service, caller: Asking
) -> Response:
    """Scripts, arguments, ranks, a preflight and a README with the commands in order, as a zip."""
    plan, request = _planned(service, plan_id, caller)
    data = zipped(bundle(plan, request, body), body.name)
    return _download(data, "application/zip", f"{plan_id}.{body.name}.zip")


def _planned(service: PlanService, plan_id: str, caller: Caller) -> tuple[Plan, PlanRequest]:
    plan = plan_of(found(service, plan_id, caller))
    request = existing("plan", plan_id, service.plans.request(plan_id))
    return plan, PlanRequest.model_validate_json(request)


def _file(plan_id: str, kind: ArtifactKind, plan: Plan, request: PlanRequest) -> Response:
    exporter = EXPORTERS[kind]
    return _download(exporter.export(plan, request), exporter.media_type, f"{plan_id}.{exporter.suffix}")


def _download(content: str | bytes, media_type: str, name: str) -> Response:
    return Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})
