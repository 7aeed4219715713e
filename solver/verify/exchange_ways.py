"""What the exchanges of gradients take, as the judge derives it from the rings and transports that a plan states.

Inside a place the GPUs' own cards reduce and gather; between places one copy per place travels the stated ring at the
rate that cards, links less the messages' reserve, and the stated transport allow. No time of the plan is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from models.cluster import Pool
from models.schedule import PipelineHop
from models.transport import Connection, ExchangeRing, ExchangeStep, MessageSplit
from solver.cost.fabric import fabric_of
from solver.memo import Memo
from solver.network.algorithms import Communicator
from solver.network.collectives import Level
from solver.network.connection import Wire, connection_rate_bytes_per_s, option_of, step_s, wire_efficiency
from solver.network.split import AlikeSteps, alike_steps, part_by_edge
from solver.network.topology import PathFacts
from solver.verify.joint_replay import reserved_bytes_per_s
from solver.verify.message_paths import parts_of
from solver.verify.network_facts import Boundary
from solver.verify.reading import Reading

SAME_FILL = 1e-6  # relative: edges that are full for as long set the pace together


@dataclass(frozen=True)
class OnRing:
    """An exchange on its ring: bytes of every step, time and what of it passes without bytes, the edges that set the
    pace, and the part of every edge, less the messages' reserve, that is full of it meanwhile. One that is slowed down
    for others waits beside its bytes, so that no time passes without these.
    """

    sent_bytes: float
    shared_s: float
    delay_s: float
    load: Mapping[int, float]
    bottlenecks: frozenset[int]
    shares: Mapping[int, float]
    is_slowed: bool = False

    def slowed(self, num_at_once: int) -> OnRing:
        """Sent so slowly that its fullest edge has room for so many; as it is where it has."""
        factor = max(self.shares.values()) * num_at_once
        if num_at_once == 1 or factor <= 1.0:
            return self
        shares = {edge: share / factor for edge, share in self.shares.items()}
        return replace(self, shared_s=self.shared_s * factor, delay_s=0.0, shares=shares, is_slowed=True)

    @property
    def edge_bytes_per_s(self) -> dict[int, float]:
        """Its rate on every edge."""
        return {edge: part * self.sent_bytes / self.shared_s for edge, part in self.load.items()}


@dataclass(frozen=True)
class ExchangeWays:
    """Times and bytes of the exchanges of a plan, beside the stated hops or others.

    LookupError where the plan states no ring for a stage.
    """

    case: Reading
    hops: tuple[tuple[Boundary, PipelineHop], ...] | None = None
    _known: Memo = field(default_factory=Memo, repr=False, compare=False)

    def pools(self, stage: int) -> Mapping[str, int]:
        """Replicas of a stage by pool."""
        return self.case.network.replicas_by_pool[self.case.configuration.rank_of_stage(stage)]

    def places(self, stage: int) -> frozenset[str]:
        """Places that hold a stage."""
        return self.case.network.places_of_rank(self.case.configuration.rank_of_stage(stage))

    @cached_property
    def shared_stages(self) -> tuple[int, ...]:
        """Stages whose replicas are in several places."""
        return tuple(s for s in range(self.case.configuration.degrees.num_stages) if len(self.places(s)) > 1)

    def overlap_s(self, stage: int) -> float:
        """Head start of an exchange."""
        pools = self.pools(stage)
        return max(self.case.derived.overlap_s(self.case.pool_by_id[pool], stage) for pool in pools)

    def private_s(self, stage: int) -> float:
        """Reduction and gathering inside the fullest place: pools of one place exchange inside it."""
        here: Counter[str] = Counter()
        pools = {self.case.pool_by_id[name]: count for name, count in self.pools(stage).items()}
        for pool, count in pools.items():
            here[pool.place] += count
        return max(self.case.derived.private_exchange_s(pool, stage, here[pool.place]) for pool in pools)

    @cached_property
    def ring_of(self) -> Mapping[int, ExchangeRing]:
        """Stated ring of every stage; of two the first."""
        return {stage: ring for ring in reversed(self.case.plan.exchange_rings) for stage in ring.stages}

    def alike(self, ring: Sequence[MessageSplit]) -> list[AlikeSteps]:
        """The steps of a ring by kind of path."""
        topology = self.case.network.topology
        steps = (((step.from_place, step.to_place), parts_of(topology, step.paths)) for step in ring)
        return alike_steps(topology, steps)

    def cards_bytes_per_s(self, stage: int) -> float:
        """Rate of the GPUs of the weakest place together."""
        efficiency = self.case.derived.stack.scale_out_efficiency.value
        return min(
            count * self.case.gpus_per_group * pool.nic_bytes_per_s_per_gpu * efficiency
            for pool, count in _senders(self, stage)
        )

    def fewest(self, stage: int) -> tuple[Pool, int]:
        """The slowest pool of the place with the fewest replicas of a stage, of two the first, and their number."""
        return min(_senders(self, stage), key=lambda item: item[1])

    def wire(self, stage: int, path: PathFacts, connection: Connection) -> Wire:
        """The way of a step as one connection sees it."""
        pool, _ = self.fewest(stage)
        member = fabric_of(pool).nic_bytes_per_s * self.case.derived.stack.scale_out_efficiency.value
        return Wire(path, member, connection.num_connections, path.capacity_bytes_per_s)

    def connection_bytes_per_s(self, stage: int, path: PathFacts, connection: Connection) -> float:
        """Payload rate of one connection over a path."""
        return connection_rate_bytes_per_s(option_of(connection), self.wire(stage, path, connection))

    def path_of(self, stage: int, transport: ExchangeStep) -> PathFacts:
        """The path that a stated transport is for; KeyError where it is for no kind of step of the ring."""
        ends = (transport.from_place, transport.to_place)
        return {one.narrowest: one.path for one in self.alike(self.ring_of[stage].steps)}[ends]

    @cached_property
    def left_bytes_per_s(self) -> list[float]:
        """What the messages of all queues leave of every edge."""
        capacity = self.case.network.topology.capacity_bytes_per_s
        left: list[float] = (capacity - reserved_bytes_per_s(self.case, self.hops)).tolist()
        return left

    def on_ring(self, stage: int) -> OnRing:
        """The exchange of a stage on its stated ring."""
        return self._known.once(stage, lambda: self._on_ring(stage))

    def _on_ring(self, stage: int) -> OnRing:
        ring = self.ring_of[stage]
        parts = [parts_of(self.case.network.topology, step.paths) for step in ring.steps]
        load = part_by_edge(parts)
        sent = self.case.network.exchange_bytes(stage, len(self.places(stage)))
        fill = {edge: part * sent / self.left_bytes_per_s[edge] for edge, part in load.items()}
        cards = self.cards_bytes_per_s(stage)
        wire_s = max(sent / cards, *fill.values())
        num_steps = 2 * (len(ring.steps) - 1)
        slowest_s, delay_s, efficiency = wire_s, 0.0, dict.fromkeys(fill, 1.0)
        stated = {(one.from_place, one.to_place): one.connection for one in ring.transports}
        for kind in self.alike(ring.steps):
            connection = stated[kind.narrowest]
            wire, option = self.wire(stage, kind.path, connection), option_of(connection)
            rate = connection_rate_bytes_per_s(option, wire)
            narrow = min(kind.path.capacity_bytes_per_s, cards)
            reached = min(1.0, rate * connection.num_connections / narrow)
            edges = [edge for path in kind.paths for edge in path.edges]
            own_s = max(sent / cards, *(fill[edge] for edge in edges))
            slowest_s = max(slowest_s, own_s / reached)
            delay_s = max(delay_s, step_s(option, wire, sent / num_steps / connection.num_connections, rate))
            filled = wire_efficiency(option, wire)
            efficiency |= {edge: min(efficiency[edge], filled) for edge in edges}
        shared_s = slowest_s + num_steps * delay_s
        found = OnRing(
            sent_bytes=sent,
            shared_s=shared_s,
            delay_s=num_steps * delay_s,
            load=load,
            bottlenecks=frozenset(edge for edge, time in fill.items() if time >= wire_s * (1.0 - SAME_FILL)),
            shares={edge: min(1.0, time / efficiency[edge] / shared_s) for edge, time in fill.items()},
        )
        return found.slowed(ring.num_at_once)


def _senders(ways: ExchangeWays, stage: int) -> list[tuple[Pool, int]]:
    """Of every place that holds a stage the pool with the slowest cards, of two the first, and all replicas there.

    What a place has reduced all its GPUs send together, each an equal part.
    """
    counted: dict[str, tuple[Pool, int]] = {}
    for name, count in ways.pools(stage).items():
        pool = ways.case.pool_by_id[name]
        slowest, before = counted.get(pool.place, (pool, 0))
        is_slower = pool.nic_bytes_per_s_per_gpu < slowest.nic_bytes_per_s_per_gpu
        counted[pool.place] = pool if is_slower else slowest, before + count
    return list(counted.values())


def on_links(ways: ExchangeWays) -> dict[int, OnRing]:
    """The exchange of every stage whose replicas are in several places, on its stated ring."""
    return {stage: ways.on_ring(stage) for stage in ways.shared_stages}


def ring_communicator(ways: ExchangeWays, stage: int, transport: ExchangeStep) -> Communicator:
    """The communicator of the largest stage over a step of the ring: all-reduce of copies, or scatter of one copy."""
    pool, fewest = ways.fewest(stage)
    connection, topology = transport.connection, ways.case.network.topology
    wire = ways.wire(stage, ways.path_of(stage, transport), connection)
    inside = Level(
        fewest * ways.case.configuration.degrees.cp, fabric_of(pool).scale_out_latency_s, wire.member_bytes_per_s
    )
    used = ways.case.configuration
    copies = used.sharding == "ddp" or used.num_state_copies > 1
    return Communicator(
        "dp",
        "all_reduce" if copies else "reduce_scatter",
        topology.tier(transport.from_place, transport.to_place),
        len(ways.places(stage)),
        inside,
        _largest_local_bytes(ways, stage),
        connection.num_connections,
        wire.member_bytes_per_s,
        one_ring=not copies,
    )


def _largest_local_bytes(ways: ExchangeWays, stage: int) -> float:
    """Gradients of the largest stage on one GPU, of the kind that holds this one."""
    pool = ways.case.pool_by_id[next(iter(ways.pools(stage)))]
    costs = (ways.case.derived.stage(pool, one) for one in range(ways.case.configuration.degrees.num_stages))
    largest = max(float((one.parameters + one.expert_parameters)[0]) for one in costs)
    return largest * ways.case.request.workload.optimizer.gradient_bytes_per_parameter
