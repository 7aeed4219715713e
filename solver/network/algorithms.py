"""Time of every algorithm of a communicator over a two-level network, given what one connection can do.

Which algorithms a collective has and how each maps on inside and across, for one connection or for arrays of what
different ones can do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import numpy as np

from models.cluster import Tier
from models.transport import Algorithm, Collective, Dimension
from solver.network import collectives as cost
from solver.network.collectives import Amount, Level, largest
from solver.network.connection import Wire
from solver.network.topology import PathFacts

NUM_SLICES = (1, 2, 4, 8, 16, 32)  # of a hierarchical collective, pipelined over inside and across
POSTED_AHEAD = 32  # network requests in flight per connection in NCCL 2.30


@dataclass(frozen=True)
class Communicator:
    """A group that communicates: `num_places` groups of `inside.num_ranks` members meet at the widest tier.

    `message_bytes` is the whole array of an all-reduce, all-gather or reduce-scatter, what one member sends in an
    all-to-all, and the message of a send/receive. `num_connections` members share the path, those of other
    communicators that do the same included; `num_parallel` send at the same time (see `Wire`). `num_members` are fewer
    than groups hold where the last is not full. `one_ring`: a ring over all members, whatever else there would be.
    """

    dimension: Dimension
    collective: Collective
    tier: Tier
    num_places: int
    inside: Level[float]
    message_bytes: float
    num_connections: int
    member_bytes_per_s: float
    num_members: int | None = None
    one_ring: bool = False
    num_parallel: int | None = None

    @property
    def num_ranks(self) -> int:
        """Members of the communicator."""
        return self.num_places * self.inside.num_ranks if self.num_members is None else self.num_members

    def wire(self, path: PathFacts) -> Wire:
        """The path as a connection of it sees it."""
        rate = path.capacity_bytes_per_s
        return Wire(path, self.member_bytes_per_s, self.num_connections, rate, self.num_parallel)


@dataclass(frozen=True)
class StepCost(Generic[Amount]):
    """What a step across costs: its rate, its delay for a message of some size, and the window of a connection."""

    rate_bytes_per_s: Amount
    step_s: Callable[[float], Amount]
    in_flight_bytes: Amount


def algorithms(communicator: Communicator) -> tuple[Algorithm, ...]:
    """Algorithms that a collective has; the hierarchical ones need more than one member inside a place."""
    if communicator.collective == "send_recv":
        return ("direct",)
    if communicator.one_ring:
        return ("ring",)
    nested = communicator.inside.num_ranks > 1
    if communicator.collective == "all_to_all":
        return ("direct", "direct_hierarchical") if nested else ("direct",)
    flat: tuple[Algorithm, ...] = (
        ("ring", "pat", "tree") if communicator.collective == "all_reduce" else ("ring", "pat")
    )
    return (*flat, "hierarchical") if nested else flat


def algorithm_s(
    algorithm: Algorithm, communicator: Communicator, crossing: StepCost[Amount], num_slices: int
) -> Amount:
    """Expected time of one operation; `num_slices` only matters to the hierarchical exchange."""
    part = communicator.message_bytes / communicator.inside.num_ranks
    step = part / communicator.num_places
    if communicator.collective == "send_recv":
        return crossing.step_s(communicator.message_bytes) + communicator.message_bytes / crossing.rate_bytes_per_s
    if communicator.collective == "all_to_all":
        return _all_to_all_s(algorithm, communicator, crossing)
    if algorithm == "ring":
        return _flat_ring_s(communicator, crossing)
    if algorithm == "tree":
        exchange = cost.tree_all_reduce_s(
            part, communicator.num_places, crossing.step_s(step), crossing.rate_bytes_per_s, chunk_bytes=step
        )
        return exchange + 2 * _gather_inside_s(communicator)
    if algorithm == "pat":
        passes = 2 if communicator.collective == "all_reduce" else 1
        half = crossing.step_s(part / 2)
        exchange = cost.recursive_gather_s(part, communicator.num_places, half, crossing.rate_bytes_per_s)
        return passes * (exchange + _gather_inside_s(communicator))
    return _hierarchical_s(communicator, crossing, num_slices)


def _gather_inside_s(communicator: Communicator) -> float:
    inside = communicator.inside
    return cost.ring_gather_s(communicator.message_bytes, inside.num_ranks, inside.step_s, inside.rate_bytes_per_s)


def _flat_ring_s(communicator: Communicator, crossing: StepCost[Amount]) -> Amount:
    """One ring through all members; only one member per place crosses, so every cable of the place is one card."""
    inside, ranks = communicator.inside, communicator.num_ranks
    time = cost.flat_ring_across_sites_s(
        communicator.message_bytes,
        ranks,
        communicator.num_places,
        inside=(inside.step_s, inside.rate_bytes_per_s),
        across=(crossing.step_s(communicator.message_bytes / ranks), crossing.rate_bytes_per_s),
    )
    return time if communicator.collective == "all_reduce" else time / 2


def _hierarchical_s(communicator: Communicator, crossing: StepCost[Amount], num_slices: int) -> Amount:
    slice_step = communicator.message_bytes / communicator.num_ranks / num_slices
    in_flight = crossing.in_flight_bytes // slice_step if slice_step > 0 else np.inf
    across = Level(communicator.num_places, crossing.step_s(slice_step), crossing.rate_bytes_per_s)
    time = cost.hierarchical_all_reduce_s if communicator.collective == "all_reduce" else cost.hierarchical_gather_s
    return time(communicator.message_bytes, communicator.inside, across, num_chunks=num_slices, num_in_flight=in_flight)


def _all_to_all_s(algorithm: Algorithm, communicator: Communicator, crossing: StepCost[Amount]) -> Amount:
    """Direct: a message to every member of another place. Hierarchical: regroup inside, then one to every place."""
    size, ranks, inside = communicator.message_bytes, communicator.num_ranks, communicator.inside
    places = communicator.num_places
    if algorithm == "direct_hierarchical":
        regroup = cost.ring_gather_s(size, inside.num_ranks, inside.step_s, inside.rate_bytes_per_s)
        return regroup + _posted_s(places - 1, size / places, crossing)
    message = size / ranks
    local = (inside.num_ranks - 1) * (inside.step_s + message / inside.rate_bytes_per_s)
    return largest(_posted_s(ranks - inside.num_ranks, message, crossing), local)


def _posted_s(num_messages: int, message_bytes: float, crossing: StepCost[Amount]) -> Amount:
    """Independent messages through one card, with so many posted ahead that their delays overlap."""
    delay_s = crossing.step_s(message_bytes)
    return delay_s + num_messages * (delay_s / POSTED_AHEAD + message_bytes / crossing.rate_bytes_per_s)
