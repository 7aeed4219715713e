"""What now? Plans to go on with after a loss or a change, from the fewest moves to the fastest, each with its proof.

Each step has a share of the time: plans that keep the degrees first, which are there in a moment; then better schedules
for them; then any plan; then the bounds on what other plans could do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from models.errors import InvalidRequest
from models.outcome import Infeasible, Planned
from models.plan import Plan
from models.request import PlanRequest
from models.what_now import PreparedLoss, ReplanPoint, StateMove, WhatIfLost, WhatIfLostAnswer, WhatNow, WhatNowAnswer
from solver.context import Context, stack_for
from solver.questions.losses import changes_of, possible_losses, what_is_gone
from solver.questions.replanning import ReplanSearch, ReplanSolution, timed_only
from solver.questions.searches import RunHooks, SearchRuns, changed, with_profile, witness_of
from solver.questions.state_moves import StateDemand, state_moves

BASE_SHARE = 0.3  # of the question's time, for the plan before where none is given
KEEP_SHARE, DEGREES_SHARE, SEARCH_SHARE = 0.2, 0.3, 0.7  # of what is then left, one after another; the rest proves
QUICK_SHARE = 0.5  # of a short time
SEARCHED_FROM_S = 8.0  # with less, a search finds nothing that keeping the degrees does not; bounds take the time


@dataclass
class _Asked:
    """One question under way."""

    question: WhatNow
    hooks: RunHooks
    plan: Plan | None
    replanning: ReplanSearch | None = None
    complete: bool = False

    def answer(self) -> WhatNowAnswer:
        """What is known."""
        found, plan = self.replanning, self.plan
        points = found.frontier.points if found else []
        chosen = _chosen(found, self.question.time_tolerance) if found else None
        infeasible = found.best if found and isinstance(found.best, Infeasible) else None
        return WhatNowAnswer(
            outcome="planned" if points else "infeasible" if infeasible else "not_found",
            lost=self.question.lost,
            stack_profile=stack_for(self.question.asked).name,
            before_s=plan.metrics.iteration_s if plan else None,
            num_groups_before=found.standing.num_groups if found else 0,
            num_groups_lost=found.standing.num_lost if found else 0,
            time_tolerance=self.question.time_tolerance,
            points=tuple(_point(found, one) for one in points) if found else (),
            chosen=points.index(chosen) if chosen else None,
            lower_bound_s=found.least_s(10**9, found.fastest_s) if found and points else 0.0,
            reasons=infeasible.reasons if infeasible and not points else (),
            complete=self.complete,
            elapsed_s=self.hooks.elapsed_s,
            plan=chosen.plan if chosen and self.complete else None,
        )


def what_now(question: WhatNow, found: Callable[[WhatNowAnswer], None], hooks: RunHooks) -> WhatNowAnswer:
    """Plans to go on with after a loss or a change.

    Raises InvalidRequest for changes that do not fit, and for a plan of another cluster.
    """
    before = with_profile(timed_only(question.asked))
    after = changed(changed(before, question.changes), changes_of(before, question.lost), "/lost")
    asked = _Asked(question, hooks, _plan_before(question.plan, before, hooks))
    if asked.plan is not None:
        asked.replanning = ReplanSearch(asked.plan, Context(before, stack_for(before)), SearchRuns(after, hooks),
                                      hooks.stopped)  # fmt: skip
        found(asked.answer())
        for _ in _steps(asked.replanning, hooks, question.time_tolerance):
            found(asked.answer())
    asked.complete = asked.plan is not None and not hooks.cancelled()
    return asked.answer()


def _plan_before(given: Plan | None, before: PlanRequest, hooks: RunHooks) -> Plan | None:
    """The plan that is given, or what a search finds. Raises InvalidRequest for a plan of another cluster."""
    if given is None:
        limit_s = min(before.options.time_limit_s, BASE_SHARE * hooks.left_s)
        outcome = SearchRuns(before, hooks).searched(before, limit_s)
        return outcome.plan if isinstance(outcome, Planned) else None
    pools = {pool.id for pool in Context(before, stack_for(before)).pools}
    strange = sorted({pool for route in given.placement.routes for pool in route.pools} - pools)
    if strange:
        raise InvalidRequest(
            f"the plan is not one of this request, which has no pool {strange[0]!r} to use",
            pointer="/plan",
            remedy="give the request that the plan was made for",
        )
    return given


def _steps(replanning: ReplanSearch, hooks: RunHooks, tolerance: float) -> Iterator[None]:
    """Each step, and after it a moment to publish what is known."""
    limit_s, began_s = hooks.left_s, hooks.clock()

    def until(share: float) -> Callable[[], bool]:
        return lambda: hooks.stopped() or hooks.clock() >= began_s + share * limit_s

    searched = limit_s >= SEARCHED_FROM_S
    for _ in replanning.keep_degrees(until(KEEP_SHARE if searched else QUICK_SHARE)):
        yield
    if searched and not hooks.stopped():
        for _ in replanning.search_degrees((DEGREES_SHARE - KEEP_SHARE) * limit_s):
            yield
    if not hooks.stopped() and (searched or not replanning.frontier.points):
        replanning.search(began_s + SEARCH_SHARE * limit_s - hooks.clock(), first=not searched)
        yield
    yield from _proven(replanning, hooks, tolerance)


def _proven(replanning: ReplanSearch, hooks: RunHooks, tolerance: float) -> Iterator[None]:
    """What else could move so few, or be so fast: first for the plan that is recommended."""
    chosen = _chosen(replanning, tolerance)
    if chosen is not None and chosen.num_moved:
        replanning.prove(chosen.num_moved, chosen.iteration_s, hooks.stopped)
        yield
    for one in replanning.frontier.points:
        replanning.prove(one.num_moved + 1, one.iteration_s, hooks.stopped)
        yield


def _chosen(replanning: ReplanSearch, tolerance: float) -> ReplanSolution | None:
    """The fewest moves of plans that take no longer than the fastest times 1 + tolerance."""
    return replanning.frontier.chosen((1.0 + tolerance) * replanning.fastest_s)


def _point(replanning: ReplanSearch, one: ReplanSolution) -> ReplanPoint:
    plan, context = one.plan, replanning.context
    state = state_moves(context, plan.configuration, one.settled, replanning.standing)
    return ReplanPoint(
        num_groups=plan.configuration.degrees.pp * plan.configuration.degrees.dp,
        num_moved=one.num_moved,
        least_moved=replanning.least_moved(one.iteration_s, one.num_moved),
        num_untouched_replicas=one.settled.num_untouched,
        iteration_s=one.iteration_s,
        lower_bound_s=replanning.least_s(one.num_moved, one.iteration_s),
        state_bytes=state.num_bytes,
        checkpoint_bytes=state.checkpoint_bytes,
        transfer_s=state.seconds,
        fetches=tuple(_stated(fetch) for fetch in state.fetches),
        plan=witness_of(plan),
    )


def _stated(fetch: StateDemand) -> StateMove:
    return StateMove(
        from_place=fetch.from_place,
        to_place=fetch.to_place,
        num_groups=fetch.num_groups,
        num_bytes=fetch.num_bytes,
        links=fetch.links,
        seconds=fetch.seconds,
    )


def what_if_lost(question: WhatIfLost, found: Callable[[WhatIfLostAnswer], None], hooks: RunHooks) -> WhatIfLostAnswer:
    """Prepared answers for each loss, each with an equal part of what is left of the time."""
    before = with_profile(timed_only(changed(question.asked, question.changes)))
    plan = _plan_before(question.plan, before, hooks)
    losses = list(possible_losses(before, plan, question.kinds)) if plan else []
    answer = WhatIfLostAnswer(
        stack_profile=stack_for(before).name,
        before_s=plan.metrics.iteration_s if plan else None,
        losses=tuple(PreparedLoss(kind=kind, name=name, answer=None) for kind, name in losses),
        complete=False,
        elapsed_s=0.0,
    )
    known: dict[tuple[str, ...], WhatNowAnswer] = {}
    alike = [what_is_gone(before, name) for _, name in losses]
    for number, (_, name) in enumerate(losses):
        if alike[number] in known:
            same = known[alike[number]].model_copy(update={"lost": (name,)})
            answer = _with(answer, number, same, hooks.elapsed_s)
            continue
        if hooks.stopped():
            break
        limit_s = hooks.left_s / len(set(alike[number:]) - set(known))
        one = WhatNow(request=before, plan=plan, lost=(name,), time_tolerance=question.time_tolerance)
        one = one.model_copy(update={"options": question.options.model_copy(update={"time_limit_s": limit_s})})
        own = RunHooks.of(one, hooks.cancelled, hooks.clock)
        prepared = what_now(one, lambda _: None, own).model_copy(update={"plan": None})
        known[alike[number]] = prepared
        answer = _with(answer, number, prepared, hooks.elapsed_s)
        found(answer)
    tried = all(one.answer is not None for one in answer.losses)
    return answer.model_copy(update={"complete": plan is not None and tried, "elapsed_s": hooks.elapsed_s})


def _with(answer: WhatIfLostAnswer, number: int, prepared: WhatNowAnswer, elapsed_s: float) -> WhatIfLostAnswer:
    losses = list(answer.losses)
    losses[number] = losses[number].model_copy(update={"answer": prepared})
    return answer.model_copy(update={"losses": tuple(losses), "elapsed_s": elapsed_s})
