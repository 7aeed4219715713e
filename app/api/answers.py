"""Makes the documents that plan routes answer with from stored rows."""

from __future__ import annotations

import json

from app.storage.listing import labels_of
from app.storage.plans import PlanRow
from app.words import when


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
        "cluster": row.cluster,
        "objective": row.objective,
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
    head = json.dumps({**_head(row), "fault": _fault(row)}, separators=(",", ":")).encode()
    return head[:-1] + b',"outcome":' + (row.outcome or b"null") + b"}"


def question_envelope(row: PlanRow, *, now: float) -> bytes:
    """A question with its answer as far as it is, as JSON text."""
    head = json.dumps({**question_head(row, now=now), "fault": _fault(row)}, separators=(",", ":")).encode()
    return head[:-1] + b',"answer":' + (row.outcome or b"null") + b"}"


def question_head(row: PlanRow, *, now: float) -> dict[str, object]:
    """What a question is about and how far it is, as plain values."""
    return {
        "id": row.id,
        "ask": row.objective,
        "model": row.model,
        "cluster": row.cluster,
        "state": row.state,
        "stop_reason": row.stop_reason,
        "created_at": when(row.created_at),
        "finished_at": when(row.finished_at),
        "elapsed_s": round(row.elapsed_s(now), 3),
    }


def _fault(row: PlanRow) -> dict[str, object] | None:
    if row.fault is None:
        return None
    values = json.loads(row.fault)
    return {**values, "where": values.get("where") or values["pointer"] or "the search"}


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
