"""What messages between stages take, as the judge derives it from the transports that a plan states and the links.

Every replica keeps an equal share of each link that it uses, less what the plan's policy leaves to the exchange; a
connection reaches what its load balancing, window and loss recovery make of that. No time of the plan is read.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from models.cluster import Pool
from models.transport import Connection, MessageTransport
from solver.cost.collectives import boundary_message_s
from solver.cost.fabric import fabric_of, share_place
from solver.memo import Memo
from solver.network.connection import Wire, connection_rate_bytes_per_s, option_of, step_s
from solver.network.split import part_by_edge, step_facts
from solver.network.topology import PathFacts
from solver.verify.message_paths import message_parts
from solver.verify.network_facts import Boundary
from solver.verify.reading import Reading

SAME_PACE = 1e-9  # relative: float sums


@dataclass(frozen=True)
class MessageTime:
    """What one connection makes of its way: payload rate, delay of a message beyond its bytes, time of a message.

    Of `num_parallel` that send at once the slowest is waited for.
    """

    connection: Connection
    num_parallel: int
    rate_bytes_per_s: float
    step_s: float
    message_s: float


@dataclass(frozen=True)
class AtOnce:
    """A hop when all replicas send at once; `slower` is the slower of its two directions, None inside a place.

    `num_sharers` whole messages share what it can carry as equals; `num_senders` queues are on its fullest edge.
    """

    latency_s: float
    transfer_s: float
    num_sharers: int = 1
    num_senders: int = 1
    bottlenecks: tuple[int, ...] = ()
    slower: MessageTime | None = None


@dataclass(frozen=True)
class MessageWays:
    """Times of the messages of a plan. LookupError where the plan states no transport for a way."""

    case: Reading
    _known: Memo = field(default_factory=Memo, repr=False, compare=False)

    @cached_property
    def crossing(self) -> tuple[Boundary, ...]:
        """Boundaries between two places."""
        return tuple(one for one in self.case.network.boundaries if not self.is_local(one))

    def is_local(self, boundary: Boundary) -> bool:
        """Whether both stages are in one place, where bandwidth is full."""
        return share_place(boundary.sender, boundary.receiver)

    @cached_property
    def transports(self) -> Mapping[tuple[str, str, str | None], MessageTransport]:
        """Stated transports by pools and route; of two for one way the first."""
        stated = reversed(self.case.plan.message_transports)
        return {(one.from_pool, one.to_pool, one.route): one for one in stated}

    @cached_property
    def _loads(self) -> tuple[Counter[int], Mapping[int, float]]:
        """Queues on every edge, and the parts of a message that they put on it together."""
        queues: Counter[int] = Counter()
        parts: dict[int, float] = {}
        largest: dict[tuple[str, int, frozenset[str], bool], float] = {}
        for one in self.crossing:
            ranks = [self.case.configuration.rank_of_stage(one.from_stage + step) for step in (0, 1)]
            upwards = ranks[1] > ranks[0]
            pair = frozenset((one.sender.id, one.receiver.id))
            for ends, way in ((one.places, upwards), (one.places[::-1], not upwards)):
                for edge, part in self._parts_by_edge(*ends).items():
                    key = (one.route, edge, pair, way)
                    largest[key] = max(largest.get(key, 0.0), part)
        for (route, edge, _, _), part in largest.items():
            replicas = self.case.route_by_id[route].num_replicas
            queues[edge] += replicas
            parts[edge] = parts.get(edge, 0.0) + part * replicas
        return queues, parts

    def _parts_by_edge(self, source: str, target: str) -> dict[int, float]:
        return part_by_edge([message_parts(self.case, source, target)])

    @cached_property
    def exchanging(self) -> frozenset[int]:
        """Edges on the paths of least latency between neighbours of the rings that gradients travel."""
        topology = self.case.network.topology
        steps = {(step.from_place, step.to_place) for ring in self.case.plan.exchange_rings for step in ring.steps}
        return frozenset(edge for step in steps for edge in topology.path(*step))

    def free_bytes_per_s(self, edge: int) -> float:
        """What one whole message may use of an edge, all queues on it sending at once."""
        share = self.case.plan.transport_policy.exchange_share if edge in self.exchanging else 0.0
        capacity = float(self.case.network.topology.capacity_bytes_per_s[edge])
        return (1.0 - share) * capacity / self._loads[1][edge]

    def facts(self, source: Pool, target: Pool) -> PathFacts:
        """All paths from pool to pool as one."""
        ends = source.place, target.place
        return step_facts(self.case.network.topology, ends, message_parts(self.case, *ends))

    def num_connections(self, source: Pool, target: Pool) -> int:
        """Connections that share the way from pool to pool as equals, those of other groups included.

        Of edge e with capacity C_e all queues together carry y_e whole messages, each at C_e / y_e or less; a path that
        carries C has as many equal shares as the fullest of its edges leaves: the largest C y_e / C_e, rounded up.
        """
        capacity, parts = self.case.network.topology.capacity_bytes_per_s, self._loads[1]
        filled = max(parts[edge] / float(capacity[edge]) for edge in self._parts_by_edge(source.place, target.place))
        whole = self.facts(source, target).capacity_bytes_per_s * filled
        return math.ceil(whole - SAME_PACE * whole) * self.case.gpus_per_group

    def num_senders(self, source: Pool, target: Pool) -> int:
        """Queues on the fullest edge from pool to pool."""
        return max(self._loads[0][edge] for edge in self._parts_by_edge(source.place, target.place))

    def sent(
        self, source: Pool, target: Pool, size_bytes: float, route: str | None = None, *, senders: int | None = None
    ) -> MessageTime:
        """A message of a stage group of this size by the stated transport; KeyError where none is stated.

        So many `senders` send at once, by default all.
        """

        def time() -> MessageTime:
            stated = self.transports[source.id, target.id, route].connection
            return self.travels(source, target, size_bytes, stated, senders=senders)

        return self._known.once((source.id, target.id, route, size_bytes, senders), time)

    def travels(
        self, source: Pool, target: Pool, size_bytes: float, connection: Connection, *, senders: int | None = None
    ) -> MessageTime:
        """A message of a stage group by such connections, each of its GPUs sending its share."""
        path, option = self.facts(source, target), option_of(connection)
        member = min(source.nic_bytes_per_s_per_gpu, target.nic_bytes_per_s_per_gpu)
        card = member * self.case.derived.stack.point_to_point_efficiency.value
        at_once = self.num_senders(source, target) if senders is None else senders
        num_parallel = at_once * self.case.gpus_per_group
        wire = Wire(path, card, connection.num_connections, path.capacity_bytes_per_s, num_parallel)
        rate, share = connection_rate_bytes_per_s(option, wire), size_bytes / self.case.gpus_per_group
        delay = step_s(option, wire, share, rate)
        return MessageTime(connection, num_parallel, rate, delay, delay + share / rate)

    def at_once(self, boundary: Boundary) -> AtOnce:
        """The hop of a boundary when all replicas send at once, the same between the same pools."""
        size = self.case.network.boundary_bytes(boundary)
        key = (boundary.sender.id, boundary.receiver.id, size)
        return self._known.once(key, lambda: self._sent_at_once(boundary, size))

    def _sent_at_once(self, boundary: Boundary, size: float) -> AtOnce:
        if self.is_local(boundary):
            columns, sizes, stack = self.case.derived.columns, np.array([size]), self.case.derived.stack
            local_s = [boundary_message_s(sizes, columns.tp, columns.cp, fabric_of(pool), stack)[0]
                       for pool in (boundary.sender, boundary.receiver)]  # fmt: skip
            return AtOnce(float(max(local_s)), 0.0)
        both = [self.sent(*way, size) for way in boundary.ways]
        ways = (self._parts_by_edge(source.place, target.place) for source, target in boundary.ways)
        free = {edge: self.free_bytes_per_s(edge) for way in ways for edge in way}
        slower = min(both, key=lambda one: one.rate_bytes_per_s)
        stack, group = self.case.derived.stack, self.case.gpus_per_group
        cards = min(boundary.sender.nic_bytes_per_s_per_gpu, boundary.receiver.nic_bytes_per_s_per_gpu)
        cards *= stack.point_to_point_efficiency.value
        pace = min(group * cards, *free.values())
        return AtOnce(
            latency_s=max(one.step_s for one in both) + stack.collective_latency_s.value,
            transfer_s=size / min(group * slower.rate_bytes_per_s, *free.values()),
            num_sharers=max(self.num_connections(*way) for way in boundary.ways) // group,
            num_senders=max(self.num_senders(*way) for way in boundary.ways),
            bottlenecks=tuple(edge for edge in free if free[edge] <= pace * (1.0 + SAME_PACE)),
            slower=slower,
        )
