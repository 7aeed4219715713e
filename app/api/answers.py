"""The documents that plan routes answer with, and their making from stored rows.

Owns the wire form of a plan resource. Stored JSON text is put in as it is: it was validated when it was made.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.problems import ProblemItem
from app.storage.listing import labels_of
from app.storage.plans import PlanRow
from models.base import Seconds, Usd
from models.outcome import Outcome, Progress, Reason
from models.plan import Crossing, Degrees, Plan, TokensPerSecond
from models.request import PlanRequest
from models.verdict import Verdict

StateName = Literal["queued", "running", "succeeded", "infeasible", "not_found", "incomplete", "cancelled", "failed"]
StopReasonName = Literal["finished", "cancelled", "time", "memory", "killed", "crashed", "refused", "attempts"]


class Answer(BaseModel):
    """Base of the answers: exactly these fields."""

    model_config = ConfigDict(extra="forbid")


class Figures(Answer):
    """The headline of a plan."""

    iteration_s: Seconds = Field(description="Time of one iteration (optimizer step).", examples=[6.45])
    lower_bound_s: Seconds | None = Field(description="Proven: no plan iterates faster.", examples=[6.1])
    relative_gap: float | None = Field(description="(iteration time - bound) / iteration time.", examples=[0.05])
    tokens_per_s: TokensPerSecond = Field(description="Tokens that the whole job trains on.", examples=[2.6e6])
    model_flops_utilisation: float = Field(
        description="FLOPs that the model needs over what the GPUs could do in that time (MFU).", examples=[0.41]
    )
    num_gpus: int = Field(description="GPUs that the plan uses.", examples=[16384])
    usd_per_million_tokens: Usd | None = Field(
        description="Cost of training on a million tokens; null where the cluster states no prices.", examples=[0.9]
    )
    degrees: Degrees = Field(
        description="Parallel degrees: tensor tp, context cp, expert ep, pipeline pp, data dp, chunks per rank vpp.",
        examples=[{"tp": 8, "cp": 1, "ep": 1, "pp": 16, "dp": 128, "vpp": 1}],
    )
    crossing: Crossing = Field(
        description="What crosses buildings: dp_out the gradient exchange, pp_out stage messages, mixed both, none "
        "neither.",
        examples=["dp_out"],
    )
    elapsed_s: Seconds = Field(description="Time of searching until it was found.", examples=[12.5])


class PlanLinks(Answer):
    """Where the parts of a plan resource are."""

    self: str = Field(description="The plan.", examples=["/v1/plans/plan_019da1b2c3d4"])
    status: str = Field(description="The light status.", examples=["/v1/plans/plan_019da1b2c3d4/status"])
    events: str = Field(description="The event stream.", examples=["/v1/plans/plan_019da1b2c3d4/events"])
    request: str = Field(
        description="The request, as it was understood.", examples=["/v1/plans/plan_019da1b2c3d4/request"]
    )
    artifacts: str = Field(
        description="Exports: put one of the kinds in place of `{kind}`.",
        examples=["/v1/plans/plan_019da1b2c3d4/artifacts/{kind}"],
    )
    moves: str | None = Field(description="What moved against the parent; null without one.", examples=[None])


class PlanHead(Answer):
    """What every view of a plan begins with."""

    id: str = Field(description="Name of the plan; sorts by time.", examples=["plan_019da1b2c3d4"])
    name: str = Field(description="What its client calls it; may be empty.", examples=["405B, spring order"])
    labels: dict[str, str] = Field(description="Its client's labels.", examples=[{"team": "search"}])
    model: str = Field(description="Name of the architecture that is planned.", examples=["llama-3.1-405b"])
    state: StateName = Field(
        description="succeeded: the search ended by itself with a plan. infeasible: no plan obeys the request, "
        "which is proven, outcome says why. not_found: neither a plan nor such a proof within the time. incomplete: it "
        "was stopped from outside, outcome is the best plan so far. cancelled: at a client's wish, outcome is the best "
        "so far or null. failed: nothing to show, fault says why.",
        examples=["succeeded"],
    )
    stop_reason: StopReasonName | None = Field(
        description="Why it ended: finished by itself; cancelled by a client; stopped at its limit of time or memory; "
        "killed from outside by a signal; crashed by a defect; refused by the search; attempts: each time its worker "
        "went silent or met a defect. Null before.",
        examples=["finished"],
    )
    request_digest: str = Field(
        description="SHA-256 of the request as it was understood: equal requests have equal digests.",
        examples=["sha256:44136fa3"],
    )
    created_at: datetime = Field(description="When it was submitted.", examples=["2026-01-01T00:00:00Z"])
    started_at: datetime | None = Field(description="When a worker first took it.", examples=["2026-01-01T00:00:01Z"])
    finished_at: datetime | None = Field(description="When it ended.", examples=["2026-01-01T00:00:31Z"])
    attempt: int = Field(description="How often a worker has started it.", examples=[1])
    cancel_requested: bool = Field(description="Whether a client asked to stop it.", examples=[False])
    priority: int = Field(description="Urgency: 0 is the greatest, 7 the least.", examples=[3])
    parent_id: str | None = Field(description="The plan it was replanned from; null: none.", examples=[None])
    study_id: str | None = Field(description="The study that it belongs to; null: none.", examples=[None])
    links: PlanLinks = Field(description="Where its parts are.")


class PlanStatus(PlanHead):
    """The light view: what a poller wants."""

    elapsed_s: Seconds = Field(description="Time of searching so far.", examples=[12.5])
    queue_position: int | None = Field(
        description="Queued plans of the same API key that go first; null once started.", examples=[0]
    )
    num_events: int = Field(description="Number of the latest event of the stream.", examples=[42])
    progress: Progress | None = Field(description="The latest news of the search; null before any.")
    figures: Figures | None = Field(description="Headline figures of the best plan so far; null before any.")


class PlanEnvelope(PlanHead):
    """The full view: the outcome too."""

    outcome: Outcome | None = Field(
        description="What the search ended with, or its best plan so far; null before there is one."
    )
    fault: ProblemItem | None = Field(description="Why it failed or was stopped; null otherwise.", examples=[None])


class PlanPage(Answer):
    """Some plans, newest first."""

    items: list[PlanStatus] = Field(description="Light views.")
    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null: no more.", examples=[None]
    )


class Validation(Answer):
    """What arithmetic says of a request."""

    feasible: bool = Field(
        description="False: proven, no plan exists. True: arithmetic finds no reason; a search may still find one.",
        examples=[False],
    )
    reasons: list[Reason] = Field(description="Why no plan exists: typed, with the numbers that clash and remedies.")


class EvaluationRequest(Answer):
    """A request and a plan that someone made for it."""

    request: PlanRequest = Field(description="The request that the plan is for.")
    plan: Plan = Field(description="The plan to be judged, in the form of `outcome.plan` of a plan of this service.")


class Comparison(Answer):
    """A plan beside ours for the same request."""

    plan_id: str = Field(description="Our plan.", examples=["plan_019da1b2c3d4"])
    iteration_s: Seconds = Field(description="Its iteration time.", examples=[6.2])
    lower_bound_s: Seconds | None = Field(description="Proven: no plan iterates faster.", examples=[6.1])
    times_as_slow: float | None = Field(
        description="Iteration time of the plan given over that of ours; below 1 it is the faster one.", examples=[1.04]
    )


class Evaluation(Answer):
    """What the judge says, how long it takes, and how that compares with ours."""

    verdict: Verdict = Field(description="Rules checked and broken.")
    replayed_iteration_s: Seconds | None = Field(
        description="Iteration time by our replay of the plan, links shared fairly; null when it cannot be replayed.",
        examples=[6.41],
    )
    comparison: Comparison | None = Field(
        description="Against our latest plan of the same request; null: submit the request to POST /v1/plans first."
    )


class IssueType(Answer):
    """A code that a problem can carry."""

    code: str = Field(description="The code.", examples=["out-of-range"])
    status: int = Field(description="HTTP status it comes with.", examples=[422])
    meaning: str = Field(description="What it means.", examples=["The number lies outside the allowed range."])


def when(at: float | None) -> str | None:
    """A time as the API writes it.

    >>> when(0.0)
    '1970-01-01T00:00:00.000Z'
    """
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def etag(plan_id: str, revision: int) -> str:
    """The entity tag of a plan."""
    return f'"{plan_id}-{revision}"'


def _head(row: PlanRow) -> dict[str, object]:
    base = f"/v1/plans/{row.id}"
    return {
        "id": row.id,
        "name": row.name,
        "labels": labels_of(row.labels),
        "model": row.model,
        "state": row.state,
        "stop_reason": row.stop_reason,
        "request_digest": row.request_digest,
        "created_at": when(row.created_at),
        "started_at": when(row.started_at),
        "finished_at": when(row.finished_at),
        "attempt": row.attempt,
        "cancel_requested": row.cancel_requested,
        "links": {
            "self": base,
            "status": f"{base}/status",
            "events": f"{base}/events",
            "request": f"{base}/request",
            "artifacts": f"{base}/artifacts/{{kind}}",
            "moves": None if row.parent_id is None else f"{base}/moves",
        },
        "priority": row.urgency,
        "parent_id": row.parent_id,
        "study_id": row.study_id,
    }


def envelope(row: PlanRow) -> bytes:
    """The full view as JSON text."""
    fault = None
    if row.fault is not None:
        values = json.loads(row.fault)
        fault = {**values, "where": values.get("where") or values["pointer"] or "the search"}
    head = json.dumps({**_head(row), "fault": fault}, separators=(",", ":")).encode()
    return head[:-1] + b',"outcome":' + (row.outcome or b"null") + b"}"


def status(row: PlanRow, *, queue_position: int | None, now: float) -> dict[str, object]:
    """The light view as plain values."""
    return {
        **_head(row),
        "elapsed_s": round(row.elapsed_s(now), 3),
        "queue_position": queue_position,
        "num_events": row.num_events,
        "progress": None if row.progress is None else json.loads(row.progress),
        "figures": None if row.headline is None else json.loads(row.headline),
    }
