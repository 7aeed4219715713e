"""The placement as an integer flow of blocks of ranks: how many replicas keep ranks i to j-1 together.

A replica is a chain of blocks through the cuts between ranks. Its crossings are counted at the cuts, so nothing has a
variable per pair of capacity groups: capacity groups x ranks^2 / 2 columns per crossing allowed, whatever the number of
replicas. One programme has at most `crossings` per replica, inside groups of one tier.
Everything in it is whole: seconds are ticks, rounded so that the programme remains a relaxation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from solver.pipeline.quantise import seconds_to_ticks
from solver.placement.problem import PlacementProblem, Tier

MOST_PINS = 3  # with counts; of more, a replica obeys one or all of them: the columns double with each
TICK_S = 1e-6  # of whole-number programmes: far below any difference between placements
Entries = list[tuple[int, int]]
Node = tuple[int, int, int, frozenset[int]]


@dataclass(frozen=True)
class RankBlock:
    """Ranks first to last-1 in one capacity group, after so many crossings, of replicas that obey these pins."""

    capacity_group: int
    first: int
    last: int
    crossings: int
    pins: frozenset[int] = frozenset()

    @property
    def length(self) -> int:
        """Ranks that stay together."""
        return self.last - self.first


def kinds_of_replicas(problem: PlacementProblem) -> list[frozenset[int]]:
    """Sets of pins with counts and several ranks that replicas obey: of more than a few each one and all of them."""
    numbers = [number for number, pin in enumerate(problem.minimums) if len(pin.ranks) > 1]
    most = len(numbers) if len(numbers) <= MOST_PINS else 1
    kinds = [frozenset(some) for size in range(most + 1) for some in combinations(numbers, size)]
    return list(dict.fromkeys([*kinds, frozenset(numbers)]))


def most_blocks(problem: PlacementProblem, crossings: int) -> int:
    """Columns of a programme at most, told without building it."""
    blocks = problem.num_capacity_groups * problem.num_ranks * (problem.num_ranks + 1) // 2
    return blocks * (crossings + 1) * len(kinds_of_replicas(problem))


@dataclass
class Programme:
    """Minimise whole costs over whole columns from 0 to their upper bound, under rows of whole entries."""

    cost: list[int] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    rows: list[tuple[Entries, int | None, int]] = field(default_factory=list)

    def column(self, *, upper: int, cost: int = 0) -> int:
        """A new column; its index."""
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def at_most(self, entries: Entries, limit: int) -> None:
        """sum of entries <= limit."""
        self.rows.append((entries, None, limit))

    def exactly(self, entries: Entries, value: int) -> None:
        """sum of entries = value."""
        self.rows.append((entries, value, value))


@dataclass
class RankBlockModel:
    """One programme with the meaning of its columns. Built once; one method per family of rows, with its formula.

    `choices` are the columns that say yes or no; all others count or measure.
    """

    problem: PlacementProblem
    tier: Tier
    crossings: int
    programme: Programme = field(default_factory=Programme)
    blocks: dict[RankBlock, int] = field(default_factory=dict)
    choices: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for block in self._possible():
            most = min(self.problem.num_replicas, self.problem.capacity_u[block.capacity_group] // block.length)
            if most:
                self.blocks[block] = self.programme.column(upper=most)
        self.add_chains()
        self.add_capacity()
        self.add_minimums()
        if self.problem.num_buildings > 1:
            self.add_spans()
            self.add_excess()

    def _possible(self) -> Iterator[RankBlock]:
        """Blocks in allowed ranks that can belong to a chain: the first starts at rank 0, short ones only whole."""
        last = self.problem.num_ranks
        for u in range(self.problem.num_capacity_groups):
            for first in range(last):
                for end in range(first + 1, last + 1):
                    if not self.problem.allowed_pu[end - 1][u]:
                        break
                    long_enough = end - first >= min(self.problem.least_block, last)
                    for crossings in range(self.crossings + 1) if long_enough else ():
                        starts = (first == 0) == (crossings == 0)
                        if starts and (end == last or crossings < self.crossings):
                            for pins in self._obeyed(u, first, end):
                                yield RankBlock(u, first, end, crossings, pins)

    def _obeyed(self, capacity_group: int, first: int, end: int) -> list[frozenset[int]]:
        """Kinds of replicas that may have the block: each obeys some set of pins."""
        apart = {
            number
            for number, pin in enumerate(self.problem.minimums)
            if capacity_group not in pin.capacity_groups and max(first, pin.ranks.start) < min(end, pin.ranks.stop)
        }
        return [kind for kind in self._kinds if not kind & apart]

    @cached_property
    def _kinds(self) -> list[frozenset[int]]:
        return kinds_of_replicas(self.problem)

    def _node(self, block: RankBlock, cut: int) -> Node:
        """A cut between ranks where the block begins or ends, with the crossings up to and including it."""
        return cut, block.crossings + (cut == block.last), self.tier.group_u[block.capacity_group], block.pins

    def add_chains(self) -> None:
        """Every replica starts once: sum of first blocks = replicas; blocks that end at a cut have a next one."""
        ends: dict[Node, Entries] = {}
        for block, column in self.blocks.items():
            if block.first > 0:
                ends.setdefault(self._node(block, block.first), []).append((column, -1))
            if block.last < self.problem.num_ranks:
                ends.setdefault(self._node(block, block.last), []).append((column, 1))
        for entries in ends.values():
            self.programme.exactly(entries, 0)
        first = [(column, 1) for block, column in self.blocks.items() if block.first == 0]
        self.programme.exactly(first, self.problem.num_replicas)

    def add_capacity(self) -> None:
        """A capacity group holds what it has: sum of length * blocks <= capacity."""
        for u, capacity in enumerate(self.problem.capacity_u):
            entries = [(column, block.length) for block, column in self.blocks.items() if block.capacity_group == u]
            if entries:
                self.programme.at_most(entries, capacity)

    def add_minimums(self) -> None:
        """Pins: first blocks of replicas that obey it, or blocks over its only rank, >= the replicas asked for."""
        for number, pin in enumerate(self.problem.minimums):
            if len(pin.ranks) == 1:
                over = self._over_p[pin.ranks.start]
                obeying = [column for block, column in over if block.capacity_group in pin.capacity_groups]
            else:
                obeying = [column for block, column in self._over_p[0] if number in block.pins]
            self.programme.at_most([(column, -1) for column in obeying], -pin.num_replicas)

    @cached_property
    def _over_p(self) -> list[list[tuple[RankBlock, int]]]:
        found: list[list[tuple[RankBlock, int]]] = [[] for _ in range(self.problem.num_ranks)]
        for block, column in self.blocks.items():
            for rank in range(block.first, block.last):
                found[rank].append((block, column))
        return found

    def add_spans(self) -> None:
        """alone[p,b] where all of rank p is in b, which saves its exchange: blocks over p in b >= replicas alone[p,b].

        b has room for capacity[b] / replicas such ranks.
        """
        problem, programme = self.problem, self.programme
        alone: dict[int, Entries] = {}
        for p in range(problem.num_ranks):
            ones: Entries = []
            for b, over in self._by_building(p).items():
                if problem.capacity_b[b] >= problem.num_replicas:
                    column = programme.column(upper=1, cost=-seconds_to_ticks(problem.prices.span_s[p], TICK_S))
                    self.choices.append(column)
                    blocks = [(one, -1) for _, one in over]
                    programme.at_most([*blocks, (column, problem.num_replicas)], 0)
                    alone.setdefault(b, []).append((column, 1))
                    ones.append((column, 1))
            if not problem.replicas_may_cross:
                programme.exactly(ones, 1)
        for b, entries in alone.items():
            programme.at_most(entries, problem.capacity_b[b] // problem.num_replicas)

    def _by_building(self, rank: int) -> dict[int, list[tuple[RankBlock, int]]]:
        found: dict[int, list[tuple[RankBlock, int]]] = {}
        for block, column in self._over_p[rank]:
            found.setdefault(self.problem.building_u[block.capacity_group], []).append((block, column))
        return found

    @property
    def constant_s(self) -> float:
        """What the objective leaves out: every rank is priced as if it spanned."""
        return sum(self.problem.prices.span_s) if self.problem.num_buildings > 1 else 0.0

    def add_excess(self) -> None:
        """excess >= microbatches * (slot[b] * messages over b's links - work), in ticks."""
        problem = self.problem
        m, work = problem.num_microbatches, seconds_to_ticks(problem.prices.work_s, TICK_S)
        by_building: dict[int, Entries] = {}
        for block, column in self.blocks.items():
            b = problem.building_u[block.capacity_group]
            slot = int(m * problem.prices.slot_b[b] / TICK_S)
            ends = (block.first > 0) + (block.last < problem.num_ranks)
            if slot and ends:
                by_building.setdefault(b, []).append((column, slot * ends))
        if by_building:
            most = sum(limit * self.programme.upper[column] for one in by_building.values() for column, limit in one)
            excess = self.programme.column(upper=most, cost=1)
            for entries in by_building.values():
                self.programme.at_most([*entries, (excess, -1)], m * work)
