"""Worlds beside a base: each planned or bounded, its gain an interval that the bounds of both sides prove.

With plans of value T found and bounds LB proven, of the base (0) and of another world (1), the best plans that exist
have values in [LB0, T0] and [LB1, T1]. So what the other gains lies in [LB0 - T1, T0 - LB1], whatever a longer search
finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf
from statistics import NormalDist
from typing import Any

from models.errors import InvalidRequest
from models.outcome import Infeasible, NotFound, Outcome, Planned, Reason
from models.plan import Plan
from models.question_parts import Gain, Witness
from models.request import PlanRequest
from solver.configurations.framework import within_framework
from solver.configurations.unusual import covering
from solver.context import Context, stack_for
from solver.memo import Memo
from solver.objective import Goal
from solver.questions.carried_over import carried_over
from solver.questions.more import Direction
from solver.questions.own_rows import has_every_row, own_bound_s
from solver.questions.row_bounds import least_bound_s
from solver.questions.searches import SearchRuns, witness_of
from solver.search.warm_start import allowing_only

BASE_SHARE = 0.4  # of the question's time at most goes to the base, which every gain is measured against
CARRIED_SHARE = 0.1  # of the base's time, for its own plan carried over into itself
NEAR_S = 2.0  # for a plan that differs little: the first one on 16,384 GPUs takes as long
SEARCHED_FROM_S = 5.0  # of a variant's time: below it a search seldom beats the base's plan carried over
WORSE = 1.2  # times the base's value: a plan carried over that is worse may have become the wrong one
MILLION = 1e6  # the unit
TIMES = ("iteration_time", "time_at_confidence")
ROUNDING = 1e-9  # relative: what bounds give away, and how near to a whole number a bound on one is that number


@dataclass(frozen=True)
class SharedGoal:
    """What is compared, the lower the better, in one unit for all plans of a question."""

    kind: str
    unit: str
    per_token: bool

    @classmethod
    def of(cls, requests: Sequence[PlanRequest]) -> SharedGoal:
        """The measure of a base and its variants. Raises InvalidRequest where they have none in common."""
        kinds = [request.objective.kind for request in requests]
        kind = kinds[0]
        if set(kinds) != {kind}:
            number = next(number for number, one in enumerate(kinds) if one != kind)
            raise InvalidRequest(
                f"the objective is {kinds[number]} here and {kind} in the request, which cannot be subtracted",
                pointer=f"/variants/{number - 1}/changes",
                remedy="leave the objective as it is, or ask about a request that has the other one",
            )
        if kind == "cost_per_token":
            return cls(kind, "USD/million tokens" if _priced(requests) else "GPU s/million tokens", per_token=True)
        if kind in TIMES:
            per_token = len({request.workload.tokens_per_iteration for request in requests}) > 1
            return cls(kind, "s/million tokens" if per_token else "s/iteration", per_token)
        return cls(kind, "GPUs" if kind == "fewest_gpus" else "bytes/iteration", per_token=False)

    def value(self, request: PlanRequest, plan: Plan) -> float:
        """The value of a plan of a request."""
        metrics = plan.metrics
        if self.kind == "fewest_gpus":
            return float(metrics.num_gpus)
        if self.kind == "least_cross_building_traffic":
            return metrics.cross_building_bytes
        if self.unit.startswith("USD"):
            assert metrics.usd_per_million_tokens is not None
            return metrics.usd_per_million_tokens
        if self.kind == "time_at_confidence":
            return self.of_seconds(request, _confident_s(request, plan))
        gpus = metrics.num_gpus if self.kind == "cost_per_token" else 1
        return self.of_seconds(request, metrics.iteration_s * gpus)

    def bound(self, request: PlanRequest, outcome: Outcome) -> float | None:
        """What no plan of the request falls below; None where nothing is proven."""
        if isinstance(outcome, NotFound):
            return self.of_seconds(request, outcome.lower_bound_s) if self.kind == "iteration_time" else None
        if not isinstance(outcome, Planned):
            return None
        least = self.value(request, outcome.plan) * (1.0 - outcome.plan.proof.relative_gap)
        return float(ceil(least * (1.0 - ROUNDING))) if self.kind == "fewest_gpus" else least

    def of_seconds(self, request: PlanRequest, seconds: float) -> float:
        """An iteration time as a value, where time is what counts."""
        return seconds * MILLION / request.workload.tokens_per_iteration if self.per_token else seconds


@dataclass(frozen=True)
class Side:
    """What is known of one world: the best plan found, its value, and the bound; None where nothing is."""

    outcome: Outcome | None = None
    value: float | None = None
    bound: float | None = None

    @property
    def witness(self) -> Witness | None:
        """The plan in short."""
        return witness_of(self.outcome.plan) if isinstance(self.outcome, Planned) else None

    def is_closed(self, request: PlanRequest) -> bool:
        """Whether nothing is left to search: no plan exists, or its gap is the one that was asked for."""
        if self.value is None or self.bound is None:
            return isinstance(self.outcome, Infeasible)
        return self.value - self.bound <= max(request.options.relative_gap, ROUNDING) * self.value

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why there is no plan, if that is proven."""
        return self.outcome.reasons if isinstance(self.outcome, Infeasible) else ()


@dataclass
class SideComparison:
    """A base and other worlds by name, as far as each is known.

    `longest_carried_s` is the longest that a plan took to carry over, which nothing interrupts. `own_s` are the bounds
    of what a smaller request alone has beside a larger one.
    """

    searches: SearchRuns
    measure: SharedGoal
    base: Side = Side()
    sides: dict[str, Side] = field(default_factory=dict)
    longest_carried_s: float = 0.0
    own_s: Memo = field(default_factory=Memo)

    def base_status(self) -> dict[str, Any]:
        """Fields of an answer that say what became of the base, under which profile, and when."""
        base = self.base
        return {
            "outcome": base.outcome.status if base.outcome else "not_found",
            "stack_profile": stack_for(self.searches.base).name,
            "reasons": base.reasons,
            "elapsed_s": self.searches.hooks.elapsed_s,
        }

    def base_figures(self) -> dict[str, Any]:
        """`base_status` with what is known of the base's value, and in which unit."""
        base = self.base
        own = {"unit": self.measure.unit, "value": base.value, "lower_bound": base.bound, "plan": base.witness}
        return self.base_status() | own

    def gain(self, name: str, direction: Direction) -> Gain:
        """What a world gains over the base, as far as it is known."""
        return gain_of(name, self.base, self.sides.get(name, Side()), direction)

    def nothing(self, name: str) -> Gain:
        """What a world gains that is the base in other words."""
        base = self.base
        same = Side(base.outcome, base.value, base.value)
        gain = gain_of(name, replace(base, bound=base.value), same, "more")
        return gain.model_copy(update={"lower_bound": base.bound})  # the two are one, wherever it lies

    def bound_of(self, request: PlanRequest, until_s: float) -> float | None:
        """What no plan of a request falls below, as far as it matters beside the base's plan."""
        hooks, base = self.searches.hooks, self.base.outcome
        if self.measure.kind == "iteration_time" and isinstance(base, Planned):
            late, whole = partial(hooks.is_late, until_s), covering(within_framework(request), base.plan.configuration)
            least_s = least_bound_s(whole, base.plan.metrics.iteration_s, late, hooks.clock)
            return self.measure.of_seconds(request, least_s)
        limit_s = max(request.options.time_limit_s, until_s - hooks.clock())
        return self.measure.bound(request, self.searches.searched(request, limit_s, until_s=until_s))

    def bound_of_less(
        self, smaller: PlanRequest, larger: PlanRequest, bound: float, until_s: float = inf
    ) -> float | None:
        """What a bound of a larger world proves of one with nothing but less, whose own configurations count, too."""
        if smaller == larger:
            return bound
        base, hooks = self.base.outcome, self.searches.hooks
        if self.measure.kind != "iteration_time" or not isinstance(base, Planned):
            contexts = (Context.of(one) for one in map(within_framework, (smaller, larger)))
            return bound if has_every_row(*contexts) else None
        enough_s = base.plan.metrics.iteration_s
        late = partial(hooks.is_late, until_s)
        own_s = self.own_s.once((smaller, larger), lambda: own_bound_s(smaller, larger, enough_s, late, hooks.clock))
        return min(bound, self.measure.of_seconds(smaller, own_s))

    def plan_base(self, limit_s: float, publish: Callable[[], None]) -> None:
        """The base, which takes the time of its own request; what is known of it is published as it is found."""
        request = self.searches.base

        def heard(found: Planned) -> None:
            self.base = self._side(request, found)
            publish()

        publish()
        limit_s = min(request.options.time_limit_s, BASE_SHARE * limit_s)
        self.base = self._side(request, self.searches.base_outcome(limit_s, heard=heard))
        publish()
        # What carrying over improves without any change is no gain of a change.
        ends_s = self.searches.hooks.clock() + CARRIED_SHARE * limit_s
        self.base = better_side(self.base, self.carried(request, ends_s))

    def plan_world(self, name: str, request: PlanRequest, limit_s: float) -> None:
        """Another world: the base's configuration in the changed world, then every configuration, then better plans.

        Where time is short a search would spend it on plans no better than the one carried over: bounds come first,
        and a search has what they leave.
        """
        until_s = self.searches.hooks.clock() + limit_s
        searched_first = limit_s >= SEARCHED_FROM_S or self.measure.kind != "iteration_time"
        side = Side() if searched_first else self._carried_and_bounded(request, until_s)
        if searched_first or not side.is_closed(request):
            begin = side.outcome or self.base.outcome
            outcome = self.searches.searched(
                request,
                max(request.options.time_limit_s, limit_s),
                until_s=until_s,
                begin=begin.plan if isinstance(begin, Planned) else None,
            )
            side = better_side(self._side(request, outcome), side)
        self.add(name, side)

    def _carried_and_bounded(self, request: PlanRequest, until_s: float) -> Side:
        """The base's plan carried over, or any plan where that is none or a bad one, with the bound of the world."""
        side = self.carried(request, until_s)
        if side.value is None or (self.base.value and side.value > WORSE * self.base.value):
            first = self.searches.searched(request, request.options.time_limit_s, first=True, until_s=until_s)
            side = better_side(self._side(request, first), side)
        return self.bounded(request, side, until_s) if isinstance(side.outcome, Planned) else side

    def add(self, name: str, side: Side) -> None:
        """What has become known of a world, beside what was known of it."""
        self.sides[name] = better_side(side, self.sides.get(name, Side()))

    def near(self, request: PlanRequest, until_s: float) -> Side:
        """A plan with as many ranks, GPUs for each and chunks as the base's has, where its configuration has none."""
        base = self.base.outcome
        if not isinstance(base, Planned):
            return Side()
        own = base.plan.configuration
        alike = {name: getattr(own.degrees, name) for name in ("tp", "cp", "ep", "pp", "vpp")}
        narrow = allowing_only(within_framework(request), alike | {"family": own.family})
        if narrow is None:
            return Side()
        limit_s = min(NEAR_S, until_s - self.searches.hooks.clock())
        found = self.searches.searched(narrow, limit_s)  # where it finds none, nothing is known of other degrees
        return replace(self._side(request, found), bound=None) if isinstance(found, Planned) else Side()

    def bounded(self, request: PlanRequest, side: Side, until_s: float) -> Side:
        """A world of which a plan is known, with a bound of all its configurations. Only for iteration times."""
        assert isinstance(side.outcome, Planned)
        hooks, best = self.searches.hooks, side.outcome.plan
        late, whole = partial(hooks.is_late, until_s), covering(within_framework(request), best.configuration)
        least_s = least_bound_s(whole, best.metrics.iteration_s, late, hooks.clock)
        return replace(side, bound=max(side.bound or 0.0, self.measure.of_seconds(request, least_s)))

    def carried(self, request: PlanRequest, until_s: float, *, as_it_stands: bool = False) -> Side:
        """The base's configuration in the changed world; of it no bound is known."""
        hooks, found, late = self.searches.hooks, None, partial(self.searches.hooks.is_late, until_s)
        began_s = hooks.clock()
        if isinstance(self.base.outcome, Planned):
            found = carried_over(request, self.base.outcome.plan, hooks.clock, late, as_it_stands=as_it_stands)
            self.longest_carried_s = max(self.longest_carried_s, hooks.clock() - began_s)
        return Side() if found is None else Side(found, self.measure.value(request, found.plan), None)

    def _side(self, request: PlanRequest, outcome: Outcome) -> Side:
        value = self.measure.value(request, outcome.plan) if isinstance(outcome, Planned) else None
        return Side(outcome, value, self.measure.bound(request, outcome))


def gain_of(name: str, base: Side, side: Side, direction: Direction = None) -> Gain:
    """The interval that holds the gain, and what it says; more never hurts, so more gains and less loses 0 at worst.

    A world with more has all plans of the base, also those that a search of it would not look at.
    """
    if direction == "more" and side.bound is not None:
        side = replace(side, bound=min(side.bound, base.bound or 0.0))
    least = base.bound - side.value if base.bound is not None and side.value is not None else None
    most = base.value - side.bound if base.value is not None and side.bound is not None else None
    if direction == "more" and base.value is not None:
        least = max(least or 0.0, 0.0)
    if direction == "less" and base.value is not None:
        most = min(most or 0.0, 0.0)
    rounding = ROUNDING * abs(base.value or 0.0)
    return Gain(
        name=name,
        status="not_tried" if side.outcome is None else side.outcome.status,
        direction=direction,
        least=least,
        most=most,
        least_fraction=least / base.value if least is not None and base.value else None,
        most_fraction=most / base.value if most is not None and base.value else None,
        verdict="no plan" if isinstance(side.outcome, Infeasible)
        else "changes nothing" if least is not None and most is not None and max(-least, most) <= rounding
        else "gains" if least is not None and least > 0
        else "loses" if most is not None and most < 0
        else "not decided yet",
        value=side.value,
        lower_bound=side.bound,
        plan=side.witness,
        reasons=side.reasons,
    )  # fmt: skip


def closed(sides: Sequence[Side]) -> list[Side]:
    """Sides from the least of a resource to the most: plans hold for those behind, bounds for those before."""
    out: list[Side] = []
    for side in sides:
        before = out[-1] if out else Side()
        better = before.value is not None and (side.value is None or before.value < side.value)
        out.append(Side(before.outcome, before.value, side.bound) if better else side)
    for index in range(len(out) - 2, -1, -1):
        bounds = [one.bound for one in out[index : index + 2] if one.bound is not None]
        out[index] = Side(out[index].outcome, out[index].value, max(bounds, default=None))
    return out


def better_side(side: Side, warm: Side) -> Side:
    """The better plan of two searches of one world, with the better bound for the whole of it."""
    bound = max((one.bound for one in (side, warm) if one.bound is not None), default=None)
    if warm.value is None or (side.value is not None and side.value <= warm.value):
        return replace(side, outcome=side.outcome or warm.outcome, bound=bound)
    return Side(warm.outcome, warm.value, None if bound is None else min(bound, warm.value))


def _confident_s(request: PlanRequest, plan: Plan) -> float:
    """The time that a measurement remains below with the confidence asked for: log-normal, as its 90 % figure."""
    assert plan.prediction is not None, "the judge asks for it"
    time = plan.prediction.iteration_s
    share = NormalDist().inv_cdf(request.objective.confidence) / NormalDist().inv_cdf(0.9)
    return float(time.p50 * (time.p90 / time.p50) ** share)


def _priced(requests: Sequence[PlanRequest]) -> bool:
    """Whether all state their prices. Raises InvalidRequest where only some do."""
    priced = [Goal.of(Context.of(request)).priced for request in requests]
    if (not priced[0]) in priced:
        number = priced.index(not priced[0])
        stated = ("not all GPUs state a price", "all GPUs state their prices")
        raise InvalidRequest(
            f"{stated[priced[number]]} here, and {stated[priced[0]]} in the request, so the costs have no unit in "
            "common",
            pointer=f"/variants/{number - 1}/changes",
            remedy="state usd_per_gpu_hour everywhere, or nowhere",
        )
    return priced[0]
