"""The fewest stage groups that must move into a configuration, over all its placements, and a placement that does so.

Which replica a group belongs to decides nothing of its move, so the groups of each pipeline rank are only counted by
pool: n[p,u] groups of rank p in pool u, of which k[p,u] <= min(n[p,u], standing[p,u]) stay. Least moves are
sum n - max sum k under the capacity of pools and what may cross buildings (CP-SAT, closed in one solve: a network flow
but for these wishes). Among placements with the fewest moves, that which changes its building least from rank to rank
is taken: sum over p, b of |N[p,b] - N[p+1,b]|, then the same of pools. Where replicas enough stand whole nothing moves
at all, and these are the placement (`whole_routes`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from ortools.sat.python import cp_model

from models.plan import Configuration
from solver.context import Context
from solver.evaluation.candidate import bundle_of
from solver.evaluation.places import placement_problem
from solver.placement.capacity_groups import groups_of
from solver.placement.problem import RouteCount
from solver.placement.routes import continued
from solver.questions.standing import Standing

BUILDING_WEIGHT = 1_000  # a change of building between two ranks counts as so many changes of pool
Counts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class MoveProblem:
    """What is to be placed with few moves: replicas in bundles, on pools. Suffixes: p pipeline rank, u pool.

    capacity_u: bundles of groups that a pool holds. standing_pu: groups (not bundles) of rank p that could stay in u.
    """

    num_replicas: int
    bundle: int
    capacity_u: tuple[int, ...]
    building_u: tuple[int, ...]
    island_u: tuple[int, ...]
    standing_pu: Counts
    allowed_pu: tuple[tuple[bool, ...], ...]
    minimums: tuple[tuple[int, tuple[int, ...], int], ...] = ()
    ranks_may_cross: bool = True
    replicas_may_cross: bool = True

    @property
    def num_ranks(self) -> int:
        """Pipeline ranks."""
        return len(self.standing_pu)


@dataclass(frozen=True)
class MinimumMoves:
    """Groups by rank and pool, how many of them move, and how many must in any placement."""

    counts: Counts
    num_moved: int
    bound: int


def move_problem(context: Context, configuration: Configuration, standing: Standing) -> MoveProblem:
    """The groups of a configuration on the pools of the changed world."""
    degrees, bundle = configuration.degrees, bundle_of(configuration)
    problem = placement_problem(context, configuration)
    pools, groups = range(len(context.pools)), context.group_of_pool
    return MoveProblem(
        num_replicas=problem.num_replicas,
        bundle=bundle,
        capacity_u=tuple(groups_of(pool, degrees.tp, degrees.cp) // bundle for pool in context.pools),
        building_u=tuple(problem.building_u[group] for group in groups),
        island_u=tuple(context.geography.island_u[group] for group in groups),
        standing_pu=tuple(
            tuple(standing.count(rank, pool) for pool in pools) for rank in standing.ranks_retained(configuration)
        ),
        allowed_pu=tuple(tuple(row[group] for group in groups) for row in problem.allowed_pu),
        minimums=tuple(
            (rank, tuple(pool for pool in pools if groups[pool] in one.capacity_groups), one.num_replicas)
            for one in problem.minimums
            for rank in one.ranks
        ),
        ranks_may_cross=problem.ranks_may_cross,
        replicas_may_cross=problem.replicas_may_cross,
    )


def whole_routes(problem: MoveProblem, whole: Sequence[tuple[int, ...]]) -> Iterator[tuple[RouteCount, ...]]:
    """Replicas that stand whole, as many as there are to be, of each island and wish that has so many: nothing moves.

    `whole` are the pools by rank of replicas that still stand, one entry per replica, those to be kept first. Pins of a
    number of replicas are left to the model.
    """
    together: defaultdict[object, list[RouteCount]] = defaultdict(list)
    for pools, number in Counter(whole).items():
        buildings = tuple(problem.building_u[u] for u in pools)
        islands = {problem.island_u[u] for u in pools}
        is_allowed = all(row[u] for row, u in zip(problem.allowed_pu, pools, strict=True))
        if is_allowed and len(islands) == 1 and (problem.ranks_may_cross or len(set(buildings)) == 1):
            key = (*islands, () if problem.replicas_may_cross else buildings)
            together[key].append(RouteCount(pools, number // problem.bundle))
    for routes in together.values():
        missing, chosen = problem.num_replicas, list[RouteCount]()
        for one in routes:
            if taken := min(missing, one.num_replicas):
                chosen.append(RouteCount(one.capacity_groups, taken * problem.bundle))
                missing -= taken
        if not missing and not problem.minimums:
            yield tuple(chosen)


def least_moves(problem: MoveProblem, *, limit_s: float = 5.0, straight_first: bool = False) -> MinimumMoves | None:
    """A placement with the fewest moves; None where there is no placement, or none was found.

    `straight_first`: the fewest changes of building come first, moves second.
    """
    model = _Model(problem)
    first, second = (model.changes, model.moved) if straight_first else (model.moved, model.changes)
    found = model.least(first, limit_s)
    if found is None:
        return None
    counts, value, bound = found
    model.model.add(first <= value)
    model.hint(counts)
    counts, _, _ = model.least(second, limit_s) or found
    moved = _num_moved(problem, counts)
    return MinimumMoves(counts, moved, 0 if straight_first else min(moved, bound))


def _num_moved(problem: MoveProblem, counts: Counts) -> int:
    return sum(
        max(number - stands, 0)
        for row, standing in zip(counts, problem.standing_pu, strict=True)
        for number, stands in zip(row, standing, strict=True)
    )


class _Model:
    """The programme; `moved` and `changes` are what can be minimised."""

    def __init__(self, problem: MoveProblem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        ranks, pools = range(problem.num_ranks), range(len(problem.capacity_u))
        most = [min(problem.num_replicas, capacity) for capacity in problem.capacity_u]
        self.bundles = [
            [self.model.new_int_var(0, most[u] if problem.allowed_pu[p][u] else 0, f"n{p},{u}") for u in pools]
            for p in ranks
        ]
        for row in self.bundles:
            self.model.add(sum(row) == problem.num_replicas)
        for u in pools:
            self.model.add(sum(self.bundles[p][u] for p in ranks) <= problem.capacity_u[u])
        for rank, inside, least in problem.minimums:
            self.model.add(sum(self.bundles[rank][u] for u in inside) >= least)
        self._keep_together()
        self.moved = self._moved()
        self.changes = BUILDING_WEIGHT * self._changes(problem.building_u) + self._changes(tuple(pools))

    def _keep_together(self) -> None:
        """One island for all; where wished, a replica in one building, or the replicas of a rank."""
        problem = self.problem
        self._one_of(problem.island_u, self.bundles)
        by_building = self._summed(problem.building_u)
        if not problem.ranks_may_cross:
            for row in by_building[1:]:
                for here, first in zip(row, by_building[0], strict=True):
                    self.model.add(here == first)
        if not problem.replicas_may_cross:
            for row in self.bundles:
                self._one_of(problem.building_u, [row])

    def _one_of(self, number_u: Sequence[int], rows: Sequence[Sequence[cp_model.IntVar]]) -> None:
        """All of these groups are on pools with one number."""
        numbers = sorted(set(number_u))
        if len(numbers) == 1:
            return
        chosen = {number: self.model.new_bool_var(f"is{number}") for number in numbers}
        self.model.add_exactly_one(chosen.values())
        for row in rows:
            for u, groups in enumerate(row):
                self.model.add(groups <= self.problem.num_replicas * chosen[number_u[u]])

    def _summed(self, number_u: Sequence[int]) -> list[list[cp_model.LinearExprT]]:
        numbers = sorted(set(number_u))
        return [
            [sum(groups for u, groups in enumerate(row) if number_u[u] == number) for number in numbers]
            for row in self.bundles
        ]

    def _moved(self) -> cp_model.LinearExprT:
        """Sum over p, u of max(0, groups there - groups that stand there)."""
        found: list[cp_model.LinearExprT] = []
        bundle = self.problem.bundle
        for p, row in enumerate(self.bundles):
            for u, groups in enumerate(row):
                stands = self.problem.standing_pu[p][u]
                if not stands:
                    found.append(bundle * groups)
                    continue
                one = self.model.new_int_var(0, bundle * self.problem.num_replicas, f"m{p},{u}")
                self.model.add(one >= bundle * groups - stands)
                found.append(one)
        return sum(found)

    def _changes(self, number_u: Sequence[int]) -> cp_model.LinearExprT:
        found = []
        summed = self._summed(number_u)
        for p in range(len(summed) - 1):
            for here, there in zip(summed[p], summed[p + 1], strict=True):
                one = self.model.new_int_var(0, self.problem.num_replicas, "")
                self.model.add_abs_equality(one, here - there)
                found.append(one)
        return sum(found)

    def hint(self, counts: Counts) -> None:
        """Begin with a known placement."""
        for row, values in zip(self.bundles, counts, strict=True):
            for groups, value in zip(row, values, strict=True):
                self.model.add_hint(groups, value // self.problem.bundle)

    def least(self, objective: cp_model.LinearExprT, limit_s: float) -> tuple[Counts, int, int] | None:
        """The least of an objective under all that was added: groups by rank and pool, its value, and its bound."""
        self.model.minimize(objective)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = limit_s
        solver.parameters.num_workers = 1
        status = solver.solve(self.model)
        self.model.clear_hints()
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        counts = tuple(tuple(self.problem.bundle * solver.value(groups) for groups in row) for row in self.bundles)
        return counts, round(solver.objective_value), ceil(solver.best_objective_bound - 0.5)


def chained_routes(problem: MoveProblem, counts: Counts, whole: Sequence[tuple[int, ...]]) -> tuple[RouteCount, ...]:
    """Counts by rank and pool as routes over pools: replicas that stand whole first, then the straightest chains.

    `whole` are the pools by rank of replicas that still stand, one entry per replica. Groups are chained from rank to
    rank in the same pool, else in the same building, else wherever is room: each cut has its fewest changes.
    """
    left = [list(row) for row in counts]
    routes = Counter[tuple[int, ...]]()
    for pools in whole:
        if all(left[p][u] > 0 for p, u in enumerate(pools)):
            routes[pools] += 1
            for p, u in enumerate(pools):
                left[p][u] -= 1
    if problem.bundle > 1:
        _give_back(routes, left, problem.bundle)
    chains = [RouteCount((u,), number) for u, number in enumerate(left[0]) if number]
    for row in left[1:]:
        following = [RouteCount((u,), number) for u, number in enumerate(row)]
        chains = continued(chains, following, partial(_distance, problem), evenly=False)
    for chain in chains:
        routes[chain.capacity_groups] += chain.num_replicas
    return tuple(RouteCount(pools, number) for pools, number in routes.items())


def _give_back(routes: dict[tuple[int, ...], int], left: list[list[int]], bundle: int) -> None:
    """Replicas share a place in whole bundles."""
    for pools, number in list(routes.items()):
        odd = number % bundle
        for p, u in enumerate(pools):
            left[p][u] += odd
        routes[pools] = number - odd
        if not routes[pools]:
            del routes[pools]


def _distance(problem: MoveProblem, here: int | None, there: int) -> int:
    """The same pool, the same building, or anywhere."""
    if here is None or here == there:
        return 0
    return 1 if problem.building_u[here] == problem.building_u[there] else 2
