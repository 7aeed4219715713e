"""Studies: many requests made from one, queued together at low priority, looked at as one table.

Each member is a plan like any other, so all workers share the work and each member survives alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from app.documents import check_limits, digest, num_values, read_model
from app.faults import Fault, Refused, refused
from app.jobs.access import Caller, check_urgency
from app.jobs.patches import grid, holds, in_words, merged, with_value
from app.jobs.service import PlanService, Tag
from app.jobs.submission import Submitted, new_plan, submitted_once
from app.jobs.webhooks import check_webhook
from app.storage.listing import stored_labels
from app.storage.plans import NewPlan
from app.storage.studies import NewStudy
from app.words import shortened
from models.pointers import escaped
from models.request import PlanRequest

MOST_NAME_CHARACTERS = 120  # as in a request
MOST_CHANGE_CHARACTERS = 90
MAX_STUDY_VALUES = 500_000  # of the documents of all members: reading and checking them takes two seconds at most


@dataclass(frozen=True)
class StudyOrder:
    """What a study is made of: a base request, every combination of the values of its axes, then every patch."""

    tag: Tag
    base: Any
    axes: Mapping[str, Sequence[Any]]
    patches: Sequence[Any]


@dataclass(frozen=True)
class _Member:
    """One request of a study, or the faults that keep it from being one."""

    changes: Any
    plan: NewPlan | None
    faults: tuple[Fault, ...] = ()
    stack_profile: str = ""
    objective: str = "iteration_time"


def submit_study(
    service: PlanService, order: StudyOrder, *, caller: Caller, urgency: int, key: str | None
) -> Submitted:
    """Queue every member that can be planned, or find the study that the same key already made.

    A member that arithmetic refutes is kept with its faults: in a grid some corners are impossible. When no member
    can be planned the study is refused.
    """
    check_urgency(caller, urgency)
    tag = order.tag
    check_webhook(tag.webhook, service.settings)
    _check_pointers(order)
    _check_size(order, service.settings.max_study_plans)
    parts = [tag.name, order.base, order.axes, order.patches, *([tag.labels] if tag.labels else [])]
    spec = json.dumps(parts, sort_keys=True).encode()

    def queue() -> Submitted:
        members = [_member(service, order, changes, caller, urgency) for changes in _changes(order)]
        plans = {number: one.plan for number, one in enumerate(members) if one.plan is not None}
        if not plans:
            raise Refused([_in_study(fault, order, members[0].changes) for fault in members[0].faults])
        new = NewStudy(owner=caller.owner, request_digest=digest(spec), name=tag.name, members=_as_text(members),
                       labels=stored_labels(tag.labels), idempotency_key=key, webhook=tag.webhook)  # fmt: skip
        row = service.studies.insert(new, plans, lambda held: service.quotas.admit(held, caller, len(plans)))
        return Submitted(row.id, is_new=True)

    return submitted_once(service.studies, caller.owner, key, digest(spec), queue)


def _in_study(fault: Fault, order: StudyOrder, changes: Any) -> Fault:
    """A fault of the first member where the study says what is wrong: at its first changes, or in the base."""
    is_of_grid = bool(order.axes) and all(order.axes.values())
    for pointer in changes if _is_point(changes) else ():
        if f"{fault.pointer}/".startswith(f"{pointer}/"):
            where = f"/axes/{escaped(pointer)}/0" if is_of_grid else f"/patches/0/{escaped(pointer)}"
            return replace(fault, pointer=where + fault.pointer[len(pointer) :])
    is_in_patch = not is_of_grid and bool(fault.pointer) and holds(changes, fault.pointer)
    return replace(fault, pointer=("/patches/0" if is_in_patch else "/base") + fault.pointer)


def _as_text(members: Sequence[_Member]) -> bytes:
    """What is stored of the members beside their plans."""
    listed = [
        {
            "changes": one.changes,
            "faults": [fault.to_dict() for fault in one.faults],
            "stack_profile": one.stack_profile,
            "objective": one.objective,
        }
        for one in members
    ]
    return json.dumps(listed, separators=(",", ":")).encode()


def _changes(order: StudyOrder) -> Iterator[Any]:
    if order.axes:
        yield from grid(order.axes)
    yield from order.patches


def _check_pointers(order: StudyOrder) -> None:
    for number, pointer in enumerate(order.axes):
        if not pointer.startswith("/"):
            raise refused("invalid-patch", f"the axis {pointer!r} is no JSON Pointer", "/axes",
                          "pointers into the base request, such as /constraints/max_gpus",
                          "Begin it with /.")  # fmt: skip
        for before in list(order.axes)[:number]:
            if before.startswith(f"{pointer}/"):
                raise refused("invalid-patch", f"the axis {pointer!r} undoes what {before!r} puts inside it",
                              f"/axes/{escaped(pointer)}", "axes of which none undoes another",
                              "Give it first, or leave one of them out.")  # fmt: skip


def _check_size(order: StudyOrder, limit: int) -> None:
    in_grid = prod(map(len, order.axes.values())) if order.axes else 0
    number = in_grid + len(order.patches)
    if number == 0:
        raise refused("empty-study", "the study has neither axes with values nor patches", "", "axes, patches or both",
                      "Add what is to vary.")  # fmt: skip
    check_limits(("/axes" if in_grid else "/patches", "plans", number, limit))
    _check_values(order, in_grid, number)


def _check_values(order: StudyOrder, in_grid: int, number: int) -> None:
    """Refuse members that together are more than is read for one submission."""
    most = MAX_STUDY_VALUES
    held = {
        "/base": number * num_values(order.base, most),
        "/axes": sum(
            in_grid // len(values) * num_values(list(values), most) for values in order.axes.values() if values
        ),
        "/patches": num_values(list(order.patches), most),
    }
    if sum(held.values()) > most:
        largest = max(held, key=lambda where: held[where])
        raise refused("limit-exceeded", f"all plans of the study ({number:,}) have more than {most:,} values together, "
                      f"most of them from {largest}", largest, f"at most {most:,} values of all together",
                      "Name a catalogue cluster in the base, or send several studies.", limit=most)  # fmt: skip


def _member(service: PlanService, order: StudyOrder, changes: Any, caller: Caller, urgency: int) -> _Member:
    try:
        document = order.base
        if _is_point(changes):
            for pointer, value in changes.items():
                document = with_value(document, pointer, value)
        else:
            document = merged(document, changes)
        request = service.with_profile(read_model(PlanRequest, document), caller)
        service.check(request)
    except Refused as refusal:
        return _Member(changes, None, refusal.faults[:10])
    plan = new_plan(request, caller, urgency, name=_member_name(order.tag.name, changes), labels=order.tag.labels)
    from solver.context import stack_for  # imports numpy, which takes a while

    return _Member(changes, plan, stack_profile=stack_for(request).name, objective=request.objective.kind)


def _is_point(changes: Any) -> bool:
    """Whether these are values at pointers, as of a grid, and no merge patch."""
    return isinstance(changes, Mapping) and bool(changes) and all(str(key).startswith("/") for key in changes)


def _member_name(study: str, changes: Any) -> str:
    """The study's name and what the member changes; the study's gives way where both are too long.

    >>> _member_name("Batch by GPUs", {"/workload/global_batch_sequences": 512, "/constraints/max_gpus": 64})
    'Batch by GPUs: global_batch_sequences 512, max_gpus 64'
    """
    words = shortened(in_words(changes), MOST_CHANGE_CHARACTERS)
    if not study or not words:
        return study or words
    return f"{shortened(study, MOST_NAME_CHARACTERS - 2 - len(words))}: {words}"
