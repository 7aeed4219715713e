"""Questions as they are asked: read, checked with every change that they make, and queued behind usual plans.

A question is a row of the queue of plans: the same workers, leases, quotas and ways of ending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from app.documents import canonical, check_limits, check_request_limits, digest, num_values, read_model
from app.exporters.answer_table import answer_table
from app.exporters.report.answer_picture import answer_picture
from app.faults import Fault, Refused, from_planner_error, refuse_plan, refused, retold
from app.jobs.access import Caller, check_urgency
from app.jobs.child import outcomes
from app.jobs.service import PlanService
from app.jobs.submission import Submitted, submitted_once
from app.settings import Settings
from app.storage.plans import NewPlan, PlanRow
from models.errors import PlannerError
from models.least import Frontier, Sizing
from models.outcome import Planned
from models.pointers import escaped
from models.question_parts import Change
from models.questions import AnyQuestion, Question, Reply, WhatIf
from models.request import PlanRequest
from models.robust import Robust
from models.what_now import WhatNow
from models.worth import Curves
from solver.questions.changes import changed_document
from solver.questions.targets import target_seconds

# Of all requests that a question makes of one: reading and checking them takes three seconds of processor time at most.
MAX_QUESTION_VALUES = 2_000_000
REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)


def read_question(document: Any) -> Question:
    """A question from its JSON value; a request by itself asks why it has no plan."""
    if isinstance(document, dict) and "workload" in document:
        document = {"ask": "why_not", "request": document}
    refuse_plan(document, "a question or a request")
    return read_model(AnyQuestion, document).root


def check_question(question: Question, settings: Settings) -> None:
    """Refuse changes that lead nowhere or meet, targets that are none, and changed requests that are too large.

    What the planner finds wrong is a PlannerError, which every interface tells like a refusal.
    """
    check_limits(("/options/time_limit_s", "seconds", question.options.time_limit_s, settings.max_time_limit_s))
    if question.request is None:
        raise refused("invalid-request", f"{question.plan_id} is a plan of a service, and none is asked", "/plan_id",
                      "a plan of the service that is asked",
                      "Ask that service, with --server URL; or give the plan's request.")  # fmt: skip
    _check_size(question)
    base = _changed(question.request, question.changes, "/changes", settings)
    if isinstance(question, Robust):
        changed_document(base, [Change(pointer=one.pointer) for one in question.ranges], "/ranges")
    if isinstance(question, Curves):
        _check_numbers(base, question)
    if isinstance(question, Frontier):
        _check_watts(base, question)
    if isinstance(question, Sizing):
        target_seconds(question.target, base)
    others = [_changed(base, changes, where, settings) for changes, where in _change_sets(question, base)]
    if isinstance(question, WhatIf):
        from solver.questions.side_by_side import SharedGoal

        SharedGoal.of([base, *others])
    if isinstance(question, Robust):
        from solver.questions.scenarios import worlds_of  # imports the solver, which takes seconds

        worlds_of(question, base)


def _check_size(question: Question) -> None:
    """Refuse more changed requests than are read for one submission."""
    slowed = sum(len(one.slow_pools) for one in question.scenarios) if isinstance(question, Robust) else 0
    number = 1 + slowed + sum(1 for _ in _change_sets(question, question.asked))
    values = num_values(question.asked.model_dump(mode="json"), MAX_QUESTION_VALUES) if number > 1 else 0
    if number * values > MAX_QUESTION_VALUES:
        raise refused("limit-exceeded", f"{number:,} requests of {values:,} values each, with defaults and what "
                      "names stand for", "/scenarios" if isinstance(question, Robust) else "/variants",
                      f"at most {MAX_QUESTION_VALUES:,} values of all together",
                      "Ask about fewer changes, or send several questions.", limit=MAX_QUESTION_VALUES,
                      value=number * values)  # fmt: skip


def _change_sets(question: Question, base: PlanRequest) -> Iterator[tuple[Sequence[Change], str]]:
    """Every set of changes that makes a request of its own of the base, and where it stands."""
    if isinstance(question, WhatIf):
        yield from ((one.changes, f"/variants/{number}/changes") for number, one in enumerate(question.variants))
    if isinstance(question, WhatNow):
        from solver.questions.losses import changes_of

        yield changes_of(base, question.lost), "/lost"
    if isinstance(question, Robust):
        yield from ((one.changes, f"/scenarios/{number}/changes") for number, one in enumerate(question.scenarios))
        for number, limits in enumerate(question.ranges):
            where = f"/ranges/{number}"
            yield from (((Change(pointer=limits.pointer, value=value),), where) for value in limits.values)
        from solver.questions.scenarios import corners

        yield from ((changes, "/ranges") for _, changes in corners(question))


def _changed(request: PlanRequest, changes: Sequence[Change], where: str, settings: Settings) -> PlanRequest:
    document = changed_document(request, changes, where)
    with retold(partial(_at, where)):
        changed = read_model(PlanRequest, document)
        check_request_limits(changed, settings)
        return changed


def _check_watts(request: PlanRequest, question: Frontier) -> None:
    """Refuse the power of a GPU type that is not there."""
    names = sorted({pool.gpu.name for pool in request.cluster.pools})
    for name in question.watts_of_gpu:
        if name not in names:
            raise refused("invalid-request", f"cluster {request.cluster.name!r} has no GPU called {name!r}",
                          f"/watts_of_gpu/{escaped(name)}", f"one of {', '.join(names)}",
                          "Use the name of a GPU type of the request.")  # fmt: skip


def _check_numbers(request: PlanRequest, question: Curves) -> None:
    """Refuse a pointer that leads nowhere, or to no number, and links that are not there."""
    from solver.questions.curves import changes_over

    for number, over in enumerate(question.over):
        where = f"/over/{number}"
        try:
            changed_document(request, changes_over(request, over, 1.0), where)
        except PlannerError as error:
            raise Refused((replace(from_planner_error(error), pointer=where),)) from None


def _at(where: str, fault: Fault) -> Fault:
    """A fault of the changed request, told of the changes that made it."""
    what = f"after the changes {fault.pointer or 'the request'} is refused: {fault.what}"
    return Fault(fault.code, what, where, fault.allowed, fault.remedy)


def with_stored_plan(service: PlanService, question: Question, caller: Caller) -> Question | None:
    """The question with request and best plan of the `plan_id` it names; None where the caller has no such plan."""
    if question.plan is not None:
        raise refused("invalid-request", "a plan in a question proves nothing by itself", "/plan",
                      "the plan_id of a stored plan", "Give plan_id, or leave the plan out.")  # fmt: skip
    if question.plan_id is None:
        return question
    if question.request is not None:
        raise refused("invalid-request", "both a request and a plan are named", "/plan_id",
                      "a request or the plan_id of a stored plan", "Leave one of them out.")  # fmt: skip
    text = service.plans.request(question.plan_id, owner=caller.sees)
    row = service.plans.get(question.plan_id, owner=caller.sees)
    if text is None or row is None:
        return None
    outcome = None if row.outcome is None else outcomes().validate_json(row.outcome)
    return question.model_copy(update={
        "request": PlanRequest.model_validate_json(text),
        "plan": outcome.plan if isinstance(outcome, Planned) else None,
    })  # fmt: skip


def answer_form(row: PlanRow, form: str) -> str | None:
    """An answer as CSV or SVG, as far as it is; None where there is none of that form."""
    if row.outcome is None:
        return None
    reply = REPLY.validate_json(row.outcome)
    return answer_table(reply) if form == "table" else answer_picture(reply)


def submit_question(
    service: PlanService, question: Question, *, caller: Caller, urgency: int, key: str | None
) -> Submitted:
    """Queue a question, or find the one that the same key already made."""
    check_urgency(caller, urgency)
    as_asked = canonical(question)
    question = question.model_copy(update={"request": service.with_profile(question.asked, caller)})
    check_question(question, service.settings)
    key, asked = None if key is None else f"question:{key}", question.asked
    new = NewPlan(canonical(question), digest(as_asked), key, kind="question", owner=caller.owner, key_id=caller.key_id,
                  urgency=urgency, model=asked.workload.architecture.name, cluster=asked.cluster.name,
                  objective=question.ask, parent_id=question.plan_id)  # fmt: skip

    def queue() -> Submitted:
        row = service.questions.insert(new, lambda held: service.quotas.admit(held, caller, urgency=urgency))
        return Submitted(row.id, is_new=True)

    return submitted_once(service.questions, caller.owner, key, new.request_digest, queue)
