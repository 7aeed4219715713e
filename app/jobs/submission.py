"""A submission under an idempotency key: stored once, however often and however many at a time it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from app.documents import canonical, digest
from app.faults import Refused, refused
from app.jobs.access import Caller
from app.storage.listing import stored_labels
from app.storage.plans import NewPlan, PlanRow
from app.storage.tables import KeyedStore
from models.request import PlanRequest


def new_plan(
    request: PlanRequest,
    caller: Caller,
    urgency: int,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    key: str | None = None,
) -> NewPlan:
    """What is stored of a request that is submitted."""
    text = canonical(request)
    return NewPlan(
        text,
        digest(text),
        key,
        owner=caller.owner,
        key_id=caller.key_id,
        urgency=urgency,
        name=name,
        labels=stored_labels(labels or {}),
        model=request.workload.architecture.name,
        cluster=request.cluster.name,
        objective=request.objective.kind,
    )


@dataclass(frozen=True)
class Submitted:
    """A plan or study that is queued, whether this submission created it, and if so what is stored of a plan."""

    plan_id: str
    is_new: bool
    row: PlanRow | None = None
    queue_position: int | None = None


def submitted_once(
    store: KeyedStore, owner: str, key: str | None, request_digest: str, queue: Callable[[], Submitted]
) -> Submitted:
    """What the same key made before, or else what `queue` stores.

    The database has the last word: of two submissions at once one fails to store its row, and finds the other's.
    """

    def made_before() -> Submitted | None:
        found = None if key is None else store.by_key(owner, key)
        return None if found is None else _replayed(found, request_digest)

    if (known := made_before()) is not None:
        return known
    try:
        return queue()
    except IntegrityError:
        if (known := made_before()) is None:
            raise
        return known


def check_replayed(row: PlanRow | None, new: NewPlan) -> None:
    """Refuse a submission that has the key and the request of an earlier one, but goes on from another plan.

    Two plans of one request have the same request to go on with. Names and labels make no other request.
    """
    if row is not None and row.parent_id != new.parent_id:
        raise _reused(f"this Idempotency-Key came before with a plan made from {row.parent_id or 'no other plan'}")


def _replayed(found: tuple[str, str], request_digest: str) -> Submitted:
    """What a key made before, if it came with the same request."""
    name, digest_before = found
    if digest_before != request_digest:
        raise _reused(f"this Idempotency-Key came with another request before ({digest_before})")
    return Submitted(name, is_new=False)


def _reused(what: str) -> Refused:
    return refused("idempotency-key-reused", what, allowed="the same request again, or a new key",
                   remedy="Use a new Idempotency-Key for a new request.")  # fmt: skip
