"""Routes over pools put on GPUs so that every stage group that can stay where it stands does.

A group takes slots of its pool where the same layers stand, then free ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from models.plan import Configuration
from solver.context import Context
from solver.placement.capacity_groups import groups_of
from solver.placement.fill import PooledRoute
from solver.placement.problem import RouteCount
from solver.questions.standing import Slot, Standing


@dataclass(frozen=True)
class SlotPlacement:
    """Routes on slots, which of their groups stay where they are, and the replicas of which nothing moves."""

    routes: tuple[PooledRoute, ...]
    retained_groups: tuple[tuple[int, int], ...]
    num_moved: int
    num_untouched: int


@dataclass
class _Slots:
    """Free slots: by pool those of nobody, by rank and pool those where its layers stand."""

    standing: Standing
    ranks: tuple[int | None, ...]
    free: dict[int, set[int]]
    own: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rank, old in enumerate(self.ranks):
            for slot in () if old is None else self.standing.slots[old].values():
                self.own.setdefault((rank, slot.pool), []).append(slot.group)
        for groups in self.own.values():
            groups.sort(reverse=True)

    def next_own(self, rank: int, pool: int) -> int | None:
        """A slot where the rank's layers stand."""
        own = self.own.get((rank, pool), [])
        while own:
            group = own.pop()
            if group in self.free[pool]:
                self.free[pool].remove(group)
                return group
        return None


def settled(
    context: Context, configuration: Configuration, routes: Sequence[RouteCount], standing: Standing
) -> SlotPlacement | None:
    """Routes over pools (in place of capacity groups) with the slots of their groups; None where a pool has too few."""
    degrees = configuration.degrees
    slots = _Slots(
        standing,
        standing.ranks_retained(configuration),
        {index: set(range(groups_of(pool, degrees.tp, degrees.cp))) for index, pool in enumerate(context.pools)},
    )
    replicas = _whole(routes, slots)
    num_untouched = sum(len(one.whole) for one in replicas)
    for replica in replicas:
        replica.fill_own(slots)
    for replica in replicas:
        if not replica.fill_free(slots):
            return None
    pooled = [route for one in replicas for route in one.routes()]
    retained_groups = tuple(retained for one in replicas for retained in one.retained_groups)
    return SlotPlacement(tuple(pooled), retained_groups, degrees.pp * degrees.dp - len(retained_groups), num_untouched)


@dataclass
class _Replicas:
    """The replicas of one route: `groups[p][i]` is the slot of rank p of replica i, None while it has none."""

    pools: tuple[int, ...]
    whole: list[tuple[int, ...]]
    groups: list[list[int | None]]
    retained_groups: list[tuple[int, int]] = field(default_factory=list)

    def fill_own(self, slots: _Slots) -> None:
        """Groups whose layers stand in their pool."""
        for rank, pool in enumerate(self.pools):
            row = self.groups[rank]
            self.retained_groups += [(rank, pool)] * len(self.whole)
            for i in range(len(self.whole), len(row)):
                row[i] = slots.next_own(rank, pool)
                if row[i] is not None:
                    self.retained_groups.append((rank, pool))

    def fill_free(self, slots: _Slots) -> bool:
        """The others, side by side as far as there is room; false where there is none."""
        for rank, pool in enumerate(self.pools):
            free = sorted(slots.free[pool])
            missing = [i for i, group in enumerate(self.groups[rank]) if group is None]
            if len(free) < len(missing):
                return False
            for i, group in zip(missing, free, strict=False):
                self.groups[rank][i] = group
                slots.free[pool].remove(group)
        return True

    def routes(self) -> list[PooledRoute]:
        """Replicas whose slots lie side by side on every rank become one route."""
        columns = list(zip(*self.groups, strict=True))
        runs = groupby(enumerate(columns), key=lambda one: tuple((group or 0) - one[0] for group in one[1]))
        found = []
        for _, run in runs:
            members = [column for _, column in run]
            first = tuple(group or 0 for group in members[0])
            found.append(PooledRoute(pools=self.pools, num_replicas=len(members), first_group=first))
        return found


def _whole(routes: Sequence[RouteCount], slots: _Slots) -> list[_Replicas]:
    """Every route with as many replicas as stand whole in its pools."""
    by_pools: dict[tuple[int, ...], list[tuple[Slot, ...]]] = {}
    if None not in slots.ranks and len(slots.ranks) == slots.standing.configuration.degrees.pp:
        for stands in slots.standing.whole.values():
            ordered = tuple(stands[rank] for rank in slots.ranks if rank is not None)
            by_pools.setdefault(tuple(slot.pool for slot in ordered), []).append(ordered)
    found = []
    for route in routes:
        waiting = by_pools.get(route.capacity_groups, [])
        chosen, by_pools[route.capacity_groups] = waiting[: route.num_replicas], waiting[route.num_replicas :]
        whole = [tuple(slot.group for slot in stands) for stands in chosen]
        for stands in chosen:
            for slot in stands:
                slots.free[slot.pool].remove(slot.group)
        rest = [None] * (route.num_replicas - len(whole))
        rows: list[list[int | None]] = [
            [one[rank] for one in whole] + rest for rank in range(len(route.capacity_groups))
        ]
        found.append(_Replicas(route.capacity_groups, whole, rows))
    return found
