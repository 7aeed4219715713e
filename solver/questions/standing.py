"""What still stands of a plan after a loss or a change: which stage groups can stay where they are.

A stage group is one pipeline rank of one replica. It is left there if its GPUs are still there and a new plan puts
a group there that holds the same layers, split the same way.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from models.cluster import Pool
from models.plan import Configuration, Plan, RankRange
from solver.context import Context

RankKey = tuple[object, ...]


@dataclass(frozen=True)
class Slot:
    """Where a stage group stands: a pool of the changed world (its index there) and the place in it, in groups."""

    pool: int
    group: int


@dataclass(frozen=True)
class Standing:
    """A plan seen from the changed world. `slots[p][replica]` are the groups of rank p whose GPUs are still there."""

    configuration: Configuration
    slots: tuple[dict[int, Slot], ...]

    @property
    def num_groups(self) -> int:
        """Stage groups of the plan, lost ones included."""
        return self.configuration.degrees.pp * self.configuration.degrees.dp

    @property
    def num_lost(self) -> int:
        """Stage groups whose GPUs are gone."""
        return self.num_groups - sum(len(one) for one in self.slots)

    @cached_property
    def rank_by_key(self) -> dict[RankKey, int]:
        """The rank that holds certain layers."""
        return {key: rank for rank, key in enumerate(rank_keys(self.configuration))}

    @cached_property
    def whole(self) -> dict[int, tuple[Slot, ...]]:
        """Replicas all of whose groups are still there, with their slots by rank."""
        alive = set.intersection(*(set(one) for one in self.slots))
        return {replica: tuple(one[replica] for one in self.slots) for replica in sorted(alive)}

    def ranks_retained(self, configuration: Configuration) -> tuple[int | None, ...]:
        """For every rank of a configuration the rank of the plan that holds the same layers; None: no rank does."""
        return tuple(self.rank_by_key.get(key) for key in rank_keys(configuration))

    def count(self, rank: int | None, pool: int) -> int:
        """Groups of a rank of the plan that are still there in a pool."""
        return 0 if rank is None else self._counts[rank, pool]

    @cached_property
    def _counts(self) -> Counter[tuple[int, int]]:
        return Counter((rank, slot.pool) for rank, slots in enumerate(self.slots) for slot in slots.values())


def rank_keys(configuration: Configuration) -> tuple[RankKey, ...]:
    """What each pipeline rank holds: its layers chunk by chunk, the ends of the model, and how they are split."""
    degrees, ends = configuration.degrees, [0]
    for layers in configuration.layers_per_stage:
        ends.append(ends[-1] + layers)
    last = degrees.num_stages - 1
    return tuple(
        (degrees.tp, degrees.cp, degrees.ep,
         *((ends[stage], ends[stage + 1], stage == 0, stage == last) for stage in configuration.stages_of_rank(rank)))
        for rank in range(degrees.pp)
    )  # fmt: skip


def standing_of(plan: Plan, before: Context, after: Context) -> Standing:
    """The plan made for the world before, in the world after.

    Of a pool that has lost hosts with names, the groups on these hosts are gone. Where only the number of GPUs fell, it
    is taken to be those that the plan leaves idle, then those behind all others.
    """
    degrees = plan.configuration.degrees
    shifts = {pool.id: _Shift.of(pool, after) for pool in before.pools}
    slots: list[dict[int, Slot]] = [{} for _ in range(degrees.pp)]
    for one in plan.placement.rank_map:
        for replica, slot in _slots(one, degrees.gpus_per_stage_group, degrees.dp, shifts[one.pool]):
            slots[one.pipeline_rank][replica] = slot
    return Standing(plan.configuration, tuple(slots))


@dataclass(frozen=True)
class _Shift:
    """Where the GPUs of a pool are in the changed world: its index there, its GPUs, and hosts that are gone."""

    pool: Pool
    index: int | None
    num_gpus: int
    lost_hosts: frozenset[int]

    @classmethod
    def of(cls, pool: Pool, after: Context) -> _Shift:
        index = next((i for i, other in enumerate(after.pools) if other.id == pool.id), None)
        other = None if index is None else after.pools[index]
        if other is None or (other.place, other.gpu.name, other.gpus_per_host) != (
            pool.place, pool.gpu.name, pool.gpus_per_host,
        ):  # fmt: skip
            return cls(pool, None, 0, frozenset())
        there = set(other.host_names)
        lost = (n for n, name in enumerate(pool.host_names) if there and name not in there)
        return cls(pool, index, other.num_free_gpus, frozenset(lost))

    def slot(self, first_gpu: int, size: int) -> Slot | None:
        """Where a group is whose first GPU was this one; None where one of its GPUs is gone.

        A group that the loss of other hosts leaves at no whole place counts as gone.
        """
        per_host = self.pool.gpus_per_host
        hosts = range(first_gpu // per_host, (first_gpu + size - 1) // per_host + 1)
        if self.index is None or any(host in self.lost_hosts for host in hosts):
            return None
        new = first_gpu - per_host * sum(host < hosts.start for host in self.lost_hosts)
        return Slot(self.index, new // size) if new % size == 0 and new + size <= self.num_gpus else None


def _slots(one: RankRange, size: int, dp: int, shift: _Shift) -> list[tuple[int, Slot]]:
    first = one.first_rank // size - one.pipeline_rank * dp
    found = [(first + i, shift.slot(one.first_gpu + i * size, size)) for i in range(one.num_ranks // size)]
    return [(replica, slot) for replica, slot in found if slot is not None]
