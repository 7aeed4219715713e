"""Everything that the service can be asked, each as a value: method, path, body, and how its answer is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import BaseModel

from app.compared import MoveReport
from app.wire import (
    Calibration,
    Evaluation,
    PlanEnvelope,
    PlanPage,
    PlanStatus,
    QuestionPage,
    QuestionStatus,
    Study,
    Validation,
)
from models.plan import Plan
from models.questions import Question
from models.request import PlanRequest
from models.schedule import PipelineProblem, PipelineSchedule

Answered = TypeVar("Answered")
Model = TypeVar("Model", bound=BaseModel)
Document = BaseModel | Mapping[str, Any]


@dataclass(frozen=True)
class Call(Generic[Answered]):
    """One question to the service. `repeatable`: asked twice, it does no more than asked once."""

    method: str
    path: str
    read: Callable[[bytes], Answered]
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True

    @property
    def asked(self) -> str:
        """Method and path, for messages."""
        return f"{self.method} {self.path}"


def submit(
    request: PlanRequest | Mapping[str, Any],
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    key: str | None = None,
    urgency: int | None = None,
) -> Call[PlanStatus]:
    """Ask for a plan; calls with the same idempotency `key` make one plan. Left out, the call has a key of its own."""
    document = {**_plain(request), **({"name": name} if name else {}), **({"labels": dict(labels)} if labels else {})}
    return Call("POST", "/v1/plans", _reading(PlanStatus), _json(document), _once(key, urgency))


def plan(plan_id: str) -> Call[PlanEnvelope]:
    """A plan as far as it is, its outcome included."""
    return Call("GET", _of(plan_id), _reading(PlanEnvelope))


def status(plan_id: str) -> Call[PlanStatus]:
    """State and headline figures of a plan."""
    return Call("GET", _of(plan_id, "/status"), _reading(PlanStatus))


def request_of(plan_id: str) -> Call[PlanRequest]:
    """The request of a plan, as the service understood it."""
    return Call("GET", _of(plan_id, "/request"), _reading(PlanRequest))


def plans(*, limit: int = 50, cursor: str | None = None, **wanted: str) -> Call[PlanPage]:
    """A page of plans, newest first; `wanted` are filters such as state, model, name or label."""
    params = {"limit": str(limit), **({} if cursor is None else {"cursor": cursor}), **wanted}
    return Call("GET", "/v1/plans", _reading(PlanPage), params=params)


def cancel(plan_id: str) -> Call[PlanStatus]:
    """Stop a search; its best plan stays."""
    return Call("POST", _of(plan_id, ":cancel"), _reading(PlanStatus))


def delete(plan_id: str) -> Call[None]:
    """Remove a plan with its request and its events."""
    return Call("DELETE", _of(plan_id), lambda _: None, repeatable=False)  # a second time it is not found


def export(plan_id: str, kind: str, hosts: str | None = None) -> Call[bytes]:
    """A plan in the form of another tool; `hosts` is the text of a hosts file."""
    path = _of(plan_id, f"/artifacts/{quote(kind, safe='')}")
    return Call("GET", path, bytes) if hosts is None else Call("POST", path, bytes, _json({"hosts": hosts}))


def bundle(plan_id: str, launch: Mapping[str, Any]) -> Call[bytes]:
    """The folder that starts a plan, as a zip; the body is that of POST /v1/plans/{plan_id}/bundle."""
    return Call("POST", _of(plan_id, "/bundle"), bytes, _json(dict(launch)))


def replan(
    plan_id: str,
    *,
    patch: Mapping[str, Any] | None = None,
    lost_places: Sequence[str] = (),
    name: str = "",
    key: str | None = None,
) -> Call[PlanStatus]:
    """Plan again with a merge patch of the request, and without places that are gone and the links that end there."""
    body = _json({"patch": dict(patch or {}), "lost_places": list(lost_places), "name": name})
    return Call("POST", _of(plan_id, ":replan"), _reading(PlanStatus), body, _once(key, None))


def resume(
    plan_id: str,
    *,
    time_limit_s: float | None = None,
    relative_gap: float | None = None,
    name: str = "",
    key: str | None = None,
) -> Call[PlanStatus]:
    """Search on where the search of a plan has ended, for so many seconds; the new plan is never worse."""
    body = _json({"time_limit_s": time_limit_s, "relative_gap": relative_gap, "name": name})
    return Call("POST", _of(plan_id, ":resume"), _reading(PlanStatus), body, _once(key, None))


def moves(plan_id: str) -> Call[MoveReport]:
    """What moves between a replanned plan and the plan before."""
    return Call("GET", _of(plan_id, "/moves"), _reading(MoveReport))


def losses(plan_id: str) -> Call[QuestionStatus]:
    """What was prepared for losses of a plan."""
    return Call("GET", _of(plan_id, "/losses"), _reading(QuestionStatus))


def validate(request: PlanRequest | Mapping[str, Any]) -> Call[Validation]:
    """What arithmetic says of a request, without search."""
    return Call("POST", "/v1/plans:validate", _reading(Validation), _json(_plain(request)))


def evaluate(request: PlanRequest | Mapping[str, Any], found: Plan | Mapping[str, Any]) -> Call[Evaluation]:
    """What the judge says of somebody's plan."""
    body = _json({"request": _plain(request), "plan": _plain(found)})
    return Call("POST", "/v1/plans:evaluate", _reading(Evaluation), body)


def schedule(problem: PipelineProblem | Mapping[str, Any]) -> Call[PipelineSchedule]:
    """The best order and start of every operation of one pipeline."""
    return Call("POST", "/v1/schedules", _reading(PipelineSchedule), _json(_plain(problem)))


def calibrate(
    rows: Sequence[Mapping[str, Any]],
    *,
    name: str = "calibrated",
    constants: Sequence[str] = (),
    profile: str | None = None,
) -> Call[Calibration]:
    """Fit a profile to measured runs; its id stands as `options.stack_profile` of later requests."""
    document = {"name": name, "constants": list(constants), "profile": profile, "rows": [dict(row) for row in rows]}
    return Call("POST", "/v1/calibrations", _reading(Calibration), _json(document), repeatable=False)


def submit_study(document: Any, *, key: str | None = None) -> Call[Study]:
    """Plan a grid of requests; the body is that of POST /v1/studies."""
    return Call("POST", "/v1/studies", _reading(Study), _json(document), _once(key, None))


def study(study_id: str) -> Call[Study]:
    """The table of a study as it stands."""
    return Call("GET", f"/v1/studies/{quote(study_id, safe='')}", _reading(Study))


def cancel_study(study_id: str) -> Call[Study]:
    """Stop what is left of a study."""
    return Call("POST", f"/v1/studies/{quote(study_id, safe='')}:cancel", _reading(Study))


def submit_question(question: Question | Mapping[str, Any], *, key: str | None = None) -> Call[QuestionStatus]:
    """Ask why there is no plan, or what changes are worth; the body is that of POST /v1/questions."""
    return Call("POST", "/v1/questions", _reading(QuestionStatus), _json(_plain(question)), _once(key, None))


def questions(*, limit: int = 50, cursor: str | None = None) -> Call[QuestionPage]:
    """A page of questions, newest first, without their answers."""
    params = {"limit": str(limit), **({} if cursor is None else {"cursor": cursor})}
    return Call("GET", "/v1/questions", _reading(QuestionPage), params=params)


def question(question_id: str) -> Call[QuestionStatus]:
    """A question with its answer as far as it is."""
    return Call("GET", f"/v1/questions/{quote(question_id, safe='')}", _reading(QuestionStatus))


def cancel_question(question_id: str) -> Call[QuestionStatus]:
    """Stop a question and keep what it has."""
    return Call("POST", f"/v1/questions/{quote(question_id, safe='')}:cancel", _reading(QuestionStatus))


def catalogue(kind: str, name: str | None = None) -> Call[Any]:
    """The names of the entries of a kind, or one entry. Of the kind `examples`: requests that are ready to be sent."""
    folder = "/v1/examples" if kind == "examples" else f"/v1/catalogue/{quote(kind, safe='')}"
    if name is not None:
        return Call("GET", f"{folder}/{quote(name, safe='')}", json.loads)
    return Call("GET", folder, _names)


def ready() -> Call[None]:
    """Whether the service can take work; a ServiceError where it cannot."""
    return Call("GET", "/healthz/ready", lambda _: None)


def _names(body: bytes) -> list[str]:
    listed = json.loads(body)
    if not isinstance(listed, list):
        raise ValueError("it is no list of names")
    return [one if isinstance(one, str) else one["id"] for one in listed]


def _of(plan_id: str, rest: str = "") -> str:
    return f"/v1/plans/{quote(plan_id, safe='')}{rest}"


def _reading(model: type[Model]) -> Callable[[bytes], Model]:
    """Reads an answer; fields that a later service has added are left out."""
    return lambda body: model.model_validate_json(body, extra="ignore")


def _plain(document: Document) -> Mapping[str, Any]:
    return document.model_dump(mode="json") if isinstance(document, BaseModel) else document


def _json(document: Any) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def is_word(text: str) -> bool:
    """Whether a text can stand in a header as one word.

    >>> [is_word(text) for text in ("isk_1", "", "two words", "line\\n", "\u00fc")]
    [True, False, False, False, False]
    """
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _once(key: str | None, urgency: int | None) -> dict[str, str]:
    if key is not None and not is_word(key):
        raise ValueError(f"{key!r} is no idempotency key: write visible characters of ASCII")
    headers = {"Idempotency-Key": uuid4().hex if key is None else key}
    return headers if urgency is None else {**headers, "Isthmus-Priority": str(urgency)}
