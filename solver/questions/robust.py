"""What if we are wrong? The plan whose worst, or expected, iteration over several worlds is the shortest.

A plan is one configuration in one place with one order of operations: these stay what they are in every world. How
links are shared and over which paths messages go is each world's own. Every world is planned by itself first; the plans
found are timed in all worlds. Then configurations are gone through by their bound over all worlds (`robust_bounds.py`),
until none is left that could be better, or time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from math import inf

import numpy as np

from models.outcome import Infeasible, NotFound, Outcome, Planned
from models.plan import Configuration
from models.question_parts import Witness
from models.robust import Robust, RobustAnswer, ScenarioFigure
from solver.arrays import FloatArray
from solver.clock import WORK_PER_ROW_S
from solver.configurations.framework import within_framework
from solver.configurations.unusual import covering
from solver.context import Context
from solver.evaluation.candidate import Candidate
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.scheduling import Scheduler, Schedulers, Timing, or_same_order
from solver.placement.fill import PooledRoute
from solver.questions.carried_over import is_refused, judged, no_other
from solver.questions.replanning import timed_only
from solver.questions.robust_bounds import RobustBounds
from solver.questions.row_bounds import RowBounds
from solver.questions.scenarios import World, worlds_of
from solver.questions.searches import RunHooks, SearchRuns, changed, with_profile, witness_of
from solver.search.tasks import placed
from solver.search.warm_start import candidate_of, timings_of

ALONE_SHARE = 0.6  # of the time, for plans of each world by itself
MOST_ROWS = 6_000_000  # of all worlds side by side: half a gigabyte
Times = tuple[float, ...]


@dataclass(frozen=True)
class _World:
    """A world with what is derived from it, and how its plans are timed."""

    world: World
    context: Context
    quick: Scheduler
    refused: bool

    @classmethod
    def of(cls, world: World, hooks: RunHooks) -> _World:
        request = within_framework(world.request)
        context = Context.of(request)
        quick = Schedulers(context, hooks.clock, hooks.stopped).quick
        return cls(world, context, quick, is_refused(world.request))

    def timed(self, candidate: Candidate, pools: Sequence[str], scheduler: Scheduler) -> Evaluation | None:
        """A candidate of another world here, its pools found by their ids; None where it does not run."""
        index = {pool.id: number for number, pool in enumerate(self.context.pools)}
        if self.refused or any(pools[one] not in index for route in candidate.routes for one in route.pools):
            return None
        routes = tuple(
            replace(route, pools=tuple(index[pools[one]] for one in route.pools)) for route in candidate.routes
        )
        here = Candidate(candidate.configuration, routes)
        return evaluate(self.context, here, scheduler) if here.is_connected(self.context) else None


@dataclass(frozen=True)
class _Compared:
    """A plan in every world: its time there (infinite where it does not run), and the plan as a witness."""

    times: Times
    witness: Witness | None


@dataclass
class _Asked:
    """One question under way."""

    question: Robust
    hooks: RunHooks
    worlds: tuple[_World, ...]
    outcomes: list[Outcome | None]
    known: Planned | None = None
    best: _Compared | None = None
    of_request: _Compared | None = None
    bounds: RobustBounds | None = None
    num_compared: int = 0
    complete: bool = False
    seen: set[tuple[Configuration, tuple[PooledRoute, ...]]] = field(default_factory=set)

    def value_of(self, times: Times) -> float:
        """Worst or expected time."""
        return float(self.combine(np.array(times)[:, None])[0])

    def combine(self, times: FloatArray) -> FloatArray:
        """The worst or expected times of one row per world, column by column; worlds of no weight are left out."""
        weights = np.array([one.world.weight for one in self.worlds])
        rows, weights = times[weights > 0], weights[weights > 0]
        return rows.max(axis=0) if self.question.measure == "worst" else weights @ rows

    @property
    def cutoff_s(self) -> float:
        """The value of the best plan so far."""
        return inf if self.best is None else self.value_of(self.best.times)

    def compare(self, candidate: Candidate, home: _World, timings: Sequence[Timing]) -> None:
        """A candidate with its orders in every world; it is kept if it is the best and the judge takes it there."""
        self.num_compared += 1
        pools = [pool.id for pool in home.context.pools]
        scheduler = or_same_order(timings, no_other)
        found = [one.timed(candidate, pools, scheduler) for one in self.worlds]
        times = tuple(inf if one is None else one.iteration_s for one in found)
        if times[0] >= self._request_plan_s and self.value_of(times) >= self.cutoff_s:
            return
        plans = [
            None if one is None else judged(world.context, one) for world, one in zip(self.worlds, found, strict=True)
        ]
        times = tuple(inf if one is None else one.metrics.iteration_s for one in plans)
        compared = _Compared(times, next((witness_of(one) for one in plans if one is not None), None))
        if times[0] < self._request_plan_s:
            self.of_request = compared
        if self.value_of(times) < self.cutoff_s:
            self.best = compared

    @property
    def _request_plan_s(self) -> float:
        return inf if self.of_request is None else self.of_request.times[0]

    def answer(self) -> RobustAnswer:
        """The answer as far as it is known."""
        best, request_s = self.best, self.outcomes[0]
        price = best.times[0] if best else inf
        known = isinstance(request_s, Planned) and price < inf
        own_s = self._best_s(0)
        other = None if self.of_request is None else self.value_of(self.of_request.times)
        impossible = any(isinstance(one, Infeasible) and world.world.weight > 0
                         for one, world in zip(self.outcomes, self.worlds, strict=True))  # fmt: skip
        return RobustAnswer(
            outcome="planned" if best else "infeasible" if impossible else "not_found",
            measure=self.question.measure,
            stack_profile=self.worlds[0].context.stack.name,
            value_s=self.cutoff_s if best else None,
            lower_bound_s=self.lower_bound_s,
            request_plan_value_s=other if other is not None and other < inf else None,
            least_price_s=max(price - min(own_s, price), 0.0) if known else None,
            most_price_s=max(price - _bound_s(request_s), 0.0) if known else None,
            figures=tuple(self._figure(number) for number in range(len(self.worlds))),
            plan=best.witness if best else None,
            num_compared=self.num_compared,
            complete=self.complete,
            elapsed_s=self.hooks.elapsed_s,
        )

    @property
    def lower_bound_s(self) -> float:
        """At least the worst, or expected, of the worlds' own bounds; more where one configuration has to do in all."""
        alone = self.value_of(tuple(_bound_s(one) for one in self.outcomes))
        both = max(alone, self.bounds.least_s if self.bounds is not None and self.bounds.size else 0.0)
        return min(both, self.cutoff_s) if both < inf or self.best else 0.0

    def _best_s(self, number: int) -> float:
        """The best plan known in a world."""
        outcome = self.outcomes[number]
        own_s = outcome.plan.metrics.iteration_s if isinstance(outcome, Planned) else inf
        return min(own_s, *(one.times[number] for one in (self.best, self.of_request) if one is not None), inf)

    def _figure(self, number: int) -> ScenarioFigure:
        outcome, world = self.outcomes[number], self.worlds[number].world
        times = [_finite(one.times[number]) if one else None for one in (self.best, self.of_request)]
        best_s = _finite(self._best_s(number))
        return ScenarioFigure(
            name=world.name,
            weight=world.weight,
            status="planned" if best_s is not None else "not_found" if outcome is None else outcome.status,
            iteration_s=times[0],
            request_plan_s=times[1],
            best_s=best_s,
            lower_bound_s=_finite(_bound_s(outcome)) or 0.0,
            reasons=outcome.reasons if isinstance(outcome, Infeasible) else (),
        )


def _finite(value: float) -> float | None:
    return value if value < inf else None


def _bound_s(outcome: Outcome | None) -> float:
    """What no plan of a world is below; infinite where it has none."""
    if isinstance(outcome, Planned):
        return outcome.plan.proof.lower_bound_s
    if isinstance(outcome, Infeasible):
        return inf
    return outcome.lower_bound_s if isinstance(outcome, NotFound) else 0.0


def robust(question: Robust, found: Callable[[RobustAnswer], None], hooks: RunHooks) -> RobustAnswer:
    """The plan that is best over all worlds."""
    base = with_profile(timed_only(changed(question.asked, question.changes)))
    worlds = tuple(_World.of(replace(one, request=timed_only(one.request)), hooks) for one in worlds_of(question, base))
    there = SearchRuns.of(question, hooks)
    known = there.known if there.base == base else None  # its bound is one of time where time was the objective
    asked = _Asked(question, hooks, worlds, [None] * len(worlds), known)
    found(asked.answer())
    for _ in _plan_each(asked, ALONE_SHARE * question.options.time_limit_s, lambda: found(asked.answer())):
        found(asked.answer())
    for _ in _explore(asked):
        found(asked.answer())
    asked.complete = not hooks.cancelled() and all(one is not None for one in asked.outcomes)
    return asked.answer()


def _plan_each(asked: _Asked, limit_s: float, publish: Callable[[], None]) -> Iterator[None]:
    """Every world by itself, and its plan in all the others."""

    def heard(number: int, found: Planned) -> None:
        asked.outcomes[number] = found
        publish()

    ends_s = asked.hooks.clock() + limit_s
    for number, world in enumerate(asked.worlds):
        if asked.hooks.stopped():
            return
        left_s = max(ends_s - asked.hooks.clock(), 0.1 * limit_s) / (len(asked.worlds) - number)
        request = world.world.request
        runs, listen = SearchRuns(request, asked.hooks, known=asked.known), partial(heard, number)
        is_base = number == 0
        outcome = runs.base_outcome(left_s, heard=listen) if is_base else runs.searched(request, left_s, heard=listen)
        asked.outcomes[number] = outcome
        if isinstance(outcome, Planned):
            plan = outcome.plan
            candidate = candidate_of(world.context, plan.configuration, plan.placement.routes)
            if candidate is not None:
                asked.compare(candidate, world, timings_of(plan))
        yield


def _explore(asked: _Asked) -> Iterator[None]:
    """Configurations by their bound over all worlds, the likeliest first, each in its places in every world."""
    if asked.hooks.stopped() or any(isinstance(one, Infeasible) for one in asked.outcomes) or not _has_time(asked):
        return
    rows, plans = [], [one.plan for one in asked.outcomes if isinstance(one, Planned)]
    for world in asked.worlds:
        covered = reduce(covering, (one.configuration for one in plans), world.context.request)
        rows.append(RowBounds(covered, asked.hooks.clock))
        if asked.hooks.stopped() or sum(len(one) for one in rows) > MOST_ROWS:
            return
    bounds = RobustBounds(rows, asked.combine)
    bounds.price(asked.cutoff_s, asked.hooks.stopped)
    asked.bounds = bounds
    yield
    for number in np.argsort(bounds.guess_s, kind="stable"):
        if asked.hooks.stopped() or bounds.least_s >= asked.cutoff_s:
            return
        if bounds.bound_s[number] >= asked.cutoff_s or bounds.refine(int(number), asked.cutoff_s) >= asked.cutoff_s:
            continue
        before = asked.best
        for home in asked.worlds:
            for candidate in placed(home.context, bounds.configuration(int(number))):
                _try(asked, candidate, home)
        if asked.best is not before:
            yield


def _has_time(asked: _Asked) -> bool:
    """To list the configurations of every world."""
    plans = (one.plan for one in asked.outcomes if isinstance(one, Planned))
    return WORK_PER_ROW_S * sum(one.proof.num_configurations for one in plans) < asked.hooks.left_s


def _try(asked: _Asked, candidate: Candidate, home: _World) -> None:
    """A candidate with the orders that quick scheduling finds for it in each world, if the best of them would do."""
    key = (candidate.configuration, candidate.routes)
    if key in asked.seen or asked.hooks.stopped():
        return
    asked.seen.add(key)
    pools = [pool.id for pool in home.context.pools]
    own = [one.timed(candidate, pools, one.quick) for one in asked.worlds]
    times = tuple(inf if one is None else one.iteration_s for one in own)
    if asked.value_of(times) >= asked.cutoff_s:
        return
    for one in dict.fromkeys(one for one in own if one is not None):
        asked.compare(candidate, home, one.timings)
