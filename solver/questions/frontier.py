"""How much time is saved by how much of something? The Pareto frontier by epsilon constraints, a gap per point.

Against GPUs and bytes the amount is limited and time minimised; against money and energy time is limited and the cost
per token minimised, energy as a cost with power for price. A limit that is looser never hurts, so plans hold for all
looser limits and bounds for all tighter ones. Every plan counts for every frontier, whichever it was found for; what
another beats in both is left out. Against GPUs a wish that all be used is given up, for the others it holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.least import Frontier, FrontierAgainst, FrontierAnswer, FrontierPoint, Spent
from models.outcome import Planned
from models.plan import Plan
from models.question_parts import Change
from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import within_framework
from solver.configurations.unusual import covering
from solver.context import SECONDS_PER_HOUR
from solver.questions.searches import RunHooks, SearchRuns, changed, witness_of
from solver.questions.side_by_side import SharedGoal, Side, SideComparison, closed
from solver.questions.spending import KILO, MILLION, kwh_per_million_tokens, one_price, usd_per_million_tokens
from solver.questions.wishes import at_prices, put

CLOSE = 1e-9  # relative: amounts are sums of floats
LEAST_BYTES = 1 / 64  # of the fastest plan's bytes: the last limit before none at all


@dataclass(frozen=True)
class _Limited:
    """A request under one limit of a frontier, by the value of the limit."""

    against: Spent
    limit: float
    request: PlanRequest

    @property
    def name(self) -> str:
        """Its name among all."""
        return f"{self.against} {self.limit!r}"


@dataclass
class _Asked:
    """One question under way. `compared` is by time; `priced` are the same for money and energy, by cost."""

    question: Frontier
    compared: SideComparison
    watts: dict[str, float]
    comparisons: dict[str, SideComparison] = field(default_factory=dict)
    limited: dict[str, list[_Limited]] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)

    @property
    def base(self) -> PlanRequest:
        """The request as it is."""
        return self.compared.searches.base

    def answer(self) -> FrontierAnswer:
        """The answer as far as it is known."""
        tried = all(one.name in self.comparisons[one.against].sides for some in self.limited.values() for one in some)
        return FrontierAnswer(
            **self.compared.base_status(),
            frontiers=tuple(self._frontier(one) for one in self.question.against),
            complete=tried and (bool(self.limited) or self.compared.base.outcome is not None),
        )

    def begin(self, against: Spent) -> None:
        """The limits of one frontier, from the fastest plan on."""
        assert isinstance(self.compared.base.outcome, Planned)
        plan = self.compared.base.outcome.plan
        self.comparisons[against], self.limited[against] = self.compared, []
        if against == "gpus":
            free = put("/constraints/use_all_gpus", False)  # with it, a tighter limit would allow what a looser forbids
            limits = _gpu_limits(changed(self.base, (free,)), plan, self.question)
            self._limit(against, [(float(one), (put("/constraints/max_gpus", one), free)) for one in limits])
        elif against == "bytes":
            pointer = "/constraints/max_cross_building_bytes_per_iteration"
            limits_bytes = _byte_limits(plan.metrics.cross_building_bytes, self.question.max_points)
            self._limit(against, [(one, (put(pointer, one),)) for one in limits_bytes])
        else:
            self._begin_priced(against, plan.metrics.iteration_s)

    def _begin_priced(self, against: Spent, fastest_s: float) -> None:
        """Money and energy: the cost per token within ever longer times."""
        hours = one_price(self.base)
        priced = changed(self.base, hours) if against == "money" else self._with_power_for_price()
        if priced is None:
            names = ", ".join(sorted({pool.gpu.name for pool in self.base.cluster.pools} - self.watts.keys()))
            self.details[against] = f"the power of {names} is not known: state it in watts_of_gpu"
            return
        times = np.geomspace(fastest_s, fastest_s * self.question.slowest_times, self.question.max_points).tolist()
        own = SearchRuns(priced, self.compared.searches.hooks)
        worlds = [changed(priced, (put("/objective", {"kind": "cost_per_token", "target_iteration_s": one}),))
                  for one in times]  # fmt: skip
        side = SideComparison(own, SharedGoal.of(worlds))
        side.base = Side(self.compared.base.outcome)
        self.comparisons[against] = side
        self.limited[against] = [_Limited(against, limit, one) for limit, one in zip(times, worlds, strict=True)]
        if against == "money" and hours:
            self.details[against] = "not all GPUs state a price: a GPU-hour costs 1, whatever the type"

    def _limit(self, against: Spent, limits: Sequence[tuple[float, tuple[Change, ...]]]) -> None:
        self.limited[against] = [_Limited(against, limit, changed(self.base, changes)) for limit, changes in limits]

    def _with_power_for_price(self) -> PlanRequest | None:
        """The request in which a GPU-hour costs the energy that it takes (kWh), and egress nothing."""
        cluster = self.base.cluster
        if any(pool.gpu.name not in self.watts for pool in cluster.pools):
            return None
        return changed(self.base, at_prices(cluster, lambda pool: self.watts[pool.gpu.name] / KILO))

    def _frontier(self, against: Spent) -> FrontierAgainst:
        bounds = self._bounds(against)
        points = (
            [self._point(plan, against, bounds) for plan in self._plans(against)] if self.limited.get(against) else []
        )
        retained = undominated(points, against)
        return FrontierAgainst(
            against=against,
            limited={"gpus": "gpus", "bytes": "bytes"}.get(against, "iteration_s"),
            points=tuple(retained),
            num_dominated=len(points) - len(retained),
            detail=self.details.get(against, ""),
        )

    def _plans(self, against: Spent) -> list[Plan]:
        """All plans that were found, for whichever frontier; none that is too slow to be of interest.

        Those that leave GPUs idle which are to be used count against GPUs alone.
        """
        strict = self.base.constraints.use_all_gpus and against != "gpus"
        idle = {one.name for one in self.limited.get("gpus", []) if strict}
        found = {name: side for one in self.comparisons.values() for name, side in one.sides.items()}
        sides = [self.compared.base, *(side for name, side in found.items() if name not in idle)]
        plans = [side.outcome.plan for side in sides if isinstance(side.outcome, Planned)]
        fastest_s = min((one.metrics.iteration_s for one in plans), default=0.0)
        near = [one for one in plans if one.metrics.iteration_s <= self.question.slowest_times * fastest_s]
        return list({(one.metrics.iteration_s, one.metrics.num_gpus, one.metrics.cross_building_bytes): one
                     for one in near}.values())  # fmt: skip

    def _bounds(self, against: Spent) -> list[tuple[float, float]]:
        """What was minimised is no less than the second, wherever the first is the limit or a tighter one is."""
        limited = self.limited.get(against, [])
        sides = closed([self.comparisons[against].sides.get(one.name, Side()) for one in limited])
        return [(one.limit, side.bound or 0.0) for one, side in zip(limited, sides, strict=True)]

    def _point(self, plan: Plan, against: Spent, bounds: Sequence[tuple[float, float]]) -> FrontierPoint:
        metrics, tokens = plan.metrics, self.base.workload.tokens_per_iteration
        usd, kwh = usd_per_million_tokens(self.base, plan), kwh_per_million_tokens(self.base, plan, self.watts)
        gpu_hours = metrics.num_gpus * metrics.iteration_s / SECONDS_PER_HOUR * MILLION / tokens
        limited = {"gpus": float(metrics.num_gpus), "bytes": metrics.cross_building_bytes}.get(against)
        minimised = {"money": gpu_hours if usd is None else usd, "energy": kwh or 0.0}.get(against)
        limit = metrics.iteration_s if limited is None else limited
        value = metrics.iteration_s if minimised is None else minimised
        bound = next((bound for most, bound in bounds if most >= limit * (1.0 - CLOSE)), 0.0)
        return FrontierPoint(
            iteration_s=metrics.iteration_s,
            num_gpus=metrics.num_gpus,
            usd_per_million_tokens=usd,
            cross_building_bytes=metrics.cross_building_bytes,
            kwh_per_million_tokens=kwh,
            limit=limit,
            lower_bound=bound or None,
            relative_gap=max(1.0 - bound / value, 0.0) if bound and value else None,
            plan=witness_of(plan),
        )


def frontier(question: Frontier, found: Callable[[FrontierAnswer], None], hooks: RunHooks) -> FrontierAnswer:
    """The frontiers of time against what is spent."""
    limit_s = question.options.time_limit_s
    searches = SearchRuns.of(question, hooks)
    searches.for_time()
    compared = SideComparison(searches, SharedGoal.of([searches.base]))
    gpus = (pool.gpu for pool in searches.base.cluster.pools)
    watts = {gpu.name: gpu.board_power_w for gpu in gpus if gpu.board_power_w is not None}
    asked = _Asked(question, compared, watts | question.watts_of_gpu)
    num_points = len(question.against) * question.max_points
    compared.plan_base(2.0 * limit_s / (num_points + 1), lambda: found(asked.answer()))
    if isinstance(compared.base.outcome, Planned):
        for against in dict.fromkeys(question.against):
            asked.begin(against)
    for one, share_s in hooks.shares([one for some in asked.limited.values() for one in some]):
        asked.comparisons[one.against].plan_world(one.name, one.request, share_s)
        found(asked.answer())
    return asked.answer()


def undominated(points: Sequence[FrontierPoint], against: Spent) -> list[FrontierPoint]:
    """Those that no other beats in time without spending more; of equals one, the fastest first."""
    out: list[FrontierPoint] = []
    for one in sorted(points, key=lambda one: _key(one, against)):
        if not out or _key(one, against)[1] < _key(out[-1], against)[1]:
            out.append(one)
    return out


def _key(point: FrontierPoint, against: Spent) -> tuple[float, float]:
    """Time, and what is spent; without prices the GPUs' time stands for money."""
    usd = point.usd_per_million_tokens
    spent = {
        "gpus": float(point.num_gpus),
        "bytes": point.cross_building_bytes,
        "energy": point.kwh_per_million_tokens or 0.0,
        "money": point.num_gpus * point.iteration_s if usd is None else usd,
    }
    return point.iteration_s, spent[against]


def _gpu_limits(request: PlanRequest, fastest: Plan, question: Frontier) -> list[int]:
    """Numbers of GPUs that configurations have, the fewest first: all of them where they are few."""
    most, whole = fastest.metrics.num_gpus, covering(within_framework(request), fastest.configuration)
    sizes = np.unique(enumerate_space(whole).columns.num_gpus)
    wanted = sizes[(sizes <= most) & (sizes >= most / question.slowest_times)]
    if len(wanted) > question.max_points:
        places = np.searchsorted(wanted, np.geomspace(wanted[0], wanted[-1], question.max_points) - 0.5)
        wanted = wanted[np.unique(places)]
    return [int(one) for one in wanted]


def _byte_limits(most: float, max_points: int) -> list[float]:
    """No bytes between buildings, and up to those of the fastest plan."""
    if most == 0.0 or max_points < 3:
        return sorted({0.0, most})
    return [0.0, *np.geomspace(most * LEAST_BYTES, most, max_points - 1).tolist()]
