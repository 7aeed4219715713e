"""Plans a request: checks it, enumerates configurations, searches them best first under bounds, says why none does.

Data in, data out: the clock, the progress and the cancellation are arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from models.diagnostic import Diagnostic
from models.outcome import Infeasible, NotFound, Outcome, Planned, Progress, Reason, RequestCheck
from models.request import PlanRequest
from solver.bounds.work import light_bound_s, other_shares_fit
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import framework_reasons, within_framework
from solver.configurations.unusual import covering, with_every_degree
from solver.context import Context
from solver.diagnostics.table import diagnostics_of
from solver.explain.infeasible import (
    duration_reasons,
    memory_reason,
    memory_reasons,
    placement_reasons,
    space_reasons,
    target_reasons,
)
from solver.lint import lint
from solver.objective import LONGEST_S
from solver.search.branch_and_bound import Search
from solver.search.hooks import Hooks
from solver.search.params import DEFAULTS, SearchParams
from solver.search.warm_start import COLD, WarmStart
from solver.search.worker_pool import NoWorkerPool, WorkerPool


def validate(request: PlanRequest) -> tuple[Reason, ...]:
    """Contradictions that show before any search: lint, an empty space, memory that cannot suffice."""
    found = lint(request) or framework_reasons(request)
    if found:
        return found
    request = within_framework(request)
    context, space = Context.of(request), enumerate_space(request)
    reasons = memory_reasons(context, space) if len(space) else space_reasons(context)
    every = with_every_degree(request) if reasons else None
    if every is not None and not _nothing_fits(every):
        return ()
    return () if _is_short_of_memory(reasons) and _others_fit(every or request) else reasons


def check(request: PlanRequest) -> RequestCheck:
    """The linter: errors that refuse the request, then warnings, then notes, each with its place in the request."""
    reasons = validate(request)
    errors = (
        Diagnostic(rule=one.code, severity="error", pointer=one.pointer, detail=one.detail, remedies=one.remedies)
        for one in reasons
    )
    return RequestCheck(reasons=reasons, diagnostics=(*errors, *diagnostics_of(request)))


def plan(
    request: PlanRequest,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    incumbent: Callable[[Planned], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    worker_pool: WorkerPool | None = None,
    params: SearchParams = DEFAULTS,
    begin_with: WarmStart = COLD,
    keep: Callable[[bytes], None] | None = None,
) -> Outcome:
    """The best judged plan within the time limit, or why there is none.

    Other processes help where a `worker_pool` is given, whose workers read the same clock; never in reproducible mode.
    The search may `begin_with` a plan, of this request or of one before it was changed, and with the state of an
    earlier search of this request, which `keep` is given again and again (`SavedSearch.from_bytes` reads it). Where
    the plan has a degree that a search leaves out, every degree is searched: bounds of the others say nothing of it.
    Raises nothing for a request without a plan: `Infeasible` says why, `NotFound` that time was too short.
    """
    started = clock()
    reasons = lint(request) or framework_reasons(request)
    if reasons:
        return Infeasible(reasons=reasons, elapsed_s=clock() - started)
    request = within_framework(request)
    if begin_with.plan is not None:
        request = covering(request, begin_with.plan.configuration)
    hooks = Hooks(
        progress=progress, incumbent=incumbent, cancelled=cancelled, clock=clock, started_s=started, keep=keep
    )
    others = NoWorkerPool() if worker_pool is None or request.options.reproducible else worker_pool
    outcome = _searched(request, hooks, others, params, begin_with)
    return (
        _for_every_degree(request, outcome, hooks, params, begin_with) if isinstance(outcome, Infeasible) else outcome
    )


def _for_every_degree(
    request: PlanRequest, usual: Infeasible, hooks: Hooks, params: SearchParams, begin_with: WarmStart
) -> Outcome:
    """Infeasible only where no degree beside the usual ones helps either; not found where no time is left to see."""
    every = with_every_degree(request)
    if every is None or _nothing_fits(every):
        return _unless_others_fit(every or request, usual)
    elapsed_s = hooks.clock() - hooks.started_s
    if hooks.cancelled() or elapsed_s >= request.options.time_limit_s:
        least_s = light_bound_s(Context.of(every))
        if least_s > LONGEST_S:
            return usual
        detail = "none of the usual degrees can be planned, and no time was left to try the others"
        return NotFound(lower_bound_s=least_s, detail=detail, elapsed_s=elapsed_s)
    other = _searched(every, hooks, NoWorkerPool(), params, begin_with)
    return _unless_others_fit(every, usual) if isinstance(other, Infeasible) else other


def _unless_others_fit(request: PlanRequest, usual: Infeasible) -> Infeasible | NotFound:
    """What is infeasible, or not found where memory is short for the layers that an even split gives its stages alone.

    A plan counts as even with any number of layers on its first and last stage; those that are tried follow a rule.
    """
    if not _is_short_of_memory(usual.reasons) or not _others_fit(request):
        return usual
    detail = f"{usual.reasons[0].detail}; with fewer layers on the first or the last stage some may fit, none was tried"
    return NotFound(lower_bound_s=light_bound_s(Context.of(request)), detail=detail, elapsed_s=usual.elapsed_s)


def _is_short_of_memory(reasons: tuple[Reason, ...]) -> bool:
    return any(one.code == "memory-too-small" for one in reasons)


def _others_fit(request: PlanRequest) -> bool:
    """Whether some configuration may fit with other layers per stage than those that are tried."""
    return other_shares_fit(Context.of(request), enumerate_space(request))


def _nothing_fits(request: PlanRequest) -> bool:
    """No configuration at all, or least memory says of each that it does not fit: a search would only say it later."""
    context, space = Context.of(request), enumerate_space(request)
    return not len(space) or bool(memory_reasons(context, space, late=lambda: True))


def _searched(
    request: PlanRequest, hooks: Hooks, others: WorkerPool, params: SearchParams, begin_with: WarmStart
) -> Outcome:
    """What a search of the configurations of a request ends with."""
    clock, started = hooks.clock, hooks.started_s
    context = Context.of(request)
    space = enumerate_space(request)

    def late() -> bool:
        return clock() - started >= request.options.time_limit_s

    if not len(space):
        return Infeasible(reasons=space_reasons(context, late), elapsed_s=clock() - started)
    if request.options.reproducible:
        hooks = hooks.counting_work(request.options.time_limit_s)
    search = Search(context, space, hooks, others, params=params, warm_start=begin_with)
    best = search.run()
    elapsed = clock() - started
    if best is not None:
        return Planned(plan=best, complete=search.complete, elapsed_s=elapsed)
    reasons = _reasons(search, late)
    if reasons or search.result.nothing_open:
        return Infeasible(reasons=reasons, elapsed_s=clock() - started)
    return NotFound(lower_bound_s=search.result.least_s, detail=search.result.account(), elapsed_s=elapsed)


def _reasons(search: Search, late: Callable[[], bool]) -> tuple[Reason, ...]:
    """Why a search that priced everything found nothing: no memory, no place, or what fits is late, the rest too big.

    What is late for certain is never priced, so nothing is known of its memory. Of a search that had no time for all
    of it, what is known without prices, if anything.
    """
    context, frontier, least_s = search.frontier.context, search.frontier, search.result.least_s
    if not search.result.nothing_open:
        too_big = () if frontier.any_fits else memory_reasons(context, frontier.space, late=late)
        return too_big or duration_reasons(context, least_s)
    need_bytes, row = frontier.least_need
    reasons = () if frontier.any_fits or row < 0 else memory_reason(context, frontier.space, need_bytes, row, late=late)
    if reasons and not frontier.unpriced.target_rules_out:
        return reasons
    if least_s == float("inf") and frontier.any_fits:
        return placement_reasons(context, frontier.space, late)
    takes_months = duration_reasons(context, least_s)
    if takes_months or not frontier.goal.has_target:
        return (*reasons, *takes_months)
    return (*reasons, *target_reasons(context, least_s))
