"""The gradient exchange of every stage: inside places and across them; when each runs is `exchange_times.py`.

Inside a place the GPUs' own NICs work; across places one copy per place travels a ring of places, on the paths of least
latency or, where that is faster, split over several. A few chunks are pipelined over both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from models.plan import Configuration
from models.transport import TransportChoice
from solver.arrays import FloatArray
from solver.configurations.stages import PoolStages
from solver.context import Context
from solver.cost.columns import ZERO1, Columns, columns_of
from solver.cost.data_parallel import crossing_bytes, group_parameters, step_traffic
from solver.cost.fabric import fabric_of
from solver.network.algorithms import Communicator
from solver.network.choices import choose_transport
from solver.network.collectives import Level
from solver.network.connection import Wire, option_of, step_s, wire_efficiency
from solver.network.policy import POLICY
from solver.network.split import AlikeSteps, Parts, Step, alike_steps
from solver.placement.fill import PooledRoute
from solver.transport.communicators import place_replicas, slowest_by_place
from solver.transport.ring import Ring, on_nearest_paths, ring_of, split_ring, split_steps, widest_ring
from solver.transport.ring_order import ring_order

LEAST_GAIN = 0.01  # of the time on the links, below which a split is not worth its paths


@dataclass(frozen=True)
class StepChoice:
    """The transport of a step of a ring, which serves all steps whose paths are alike.

    `num_connections` are busy at once; `reached` is the part of the rate that they reach after collisions, windows,
    headers and codes; `delay_s` what a step takes beyond its bytes: distance, posting, waiting for what was lost;
    `efficiency` the payload over the capacity that it fills.
    """

    step: Step
    choice: TransportChoice
    num_connections: int
    reached: float
    delay_s: float
    efficiency: float


@dataclass(frozen=True)
class InterSiteRing:
    """One stage's exchange between places: its ring, what each step sends, and how long the links take.

    `wire_s` is what its bytes take at the rates of cards and links, `reached` the part of these that the chosen
    transport reaches, or the exchange where it is slowed down for others; `bottlenecks` are the edges that set the
    pace, none where the GPUs' own cards do; `shares` are the parts of the edges, of what messages leave of them,
    that it has for `shared_s`.
    """

    ring: Ring
    sent_bytes: float
    wire_s: float
    shared_s: float
    reached: float
    bottlenecks: frozenset[int]
    shares: dict[int, float]
    steps: tuple[StepChoice, ...]

    def slower(self, num_at_once: int) -> InterSiteRing:
        """Sent as slowly as it takes for so many to have room on links; as it is where so many have.

        What distance delays is then part of that time.
        """
        factor = max(self.shares.values(), default=0.0) * num_at_once
        if num_at_once == 1 or factor <= 1.0:
            return self
        return replace(
            self,
            ring=replace(self.ring, num_at_once=num_at_once),
            shared_s=factor * self.shared_s,
            reached=self.wire_s / (factor * self.shared_s),
            shares={edge: share / factor for edge, share in self.shares.items()},
        )


@dataclass(frozen=True)
class ExchangeCost:
    """The exchange of one stage: head start, time inside places and on shared links, and bytes on every directed edge.

    `shares` are the parts of the edges, of what messages leave of them, that it has for `shared_s`. `other` is the same
    exchange on more paths, sooner done alone, but in the way of others on more links; or else on fewer.
    """

    overlap_s: float
    private_s: float
    shared_s: float
    edge_bytes: dict[int, float]
    shares: dict[int, float] = field(default_factory=dict)
    site_ring: InterSiteRing | None = None
    other: ExchangeCost | None = None

    @property
    def rings(self) -> tuple[Ring, ...]:
        """The ring between places and the other one, as far as there are any."""
        both = (one.site_ring for one in (self, self.other) if one is not None)
        return tuple(one.ring for one in both if one is not None)

    def slower(self, num_at_once: int) -> ExchangeCost:
        """The same sent as slowly as it takes for so many to have room on every link."""
        if self.site_ring is None:
            return self
        slower = self.site_ring.slower(num_at_once)
        if slower is self.site_ring:
            return self
        return replace(self, shared_s=slower.shared_s, shares=slower.shares, site_ring=slower, other=None)

    @property
    def duration_s(self) -> float:
        """From begin to end when the links are free."""
        return max(self.private_s, self.shared_s) + min(self.private_s, self.shared_s) / POLICY.num_exchange_chunks


def exchanging_edges(context: Context, configuration: Configuration, routes: tuple[PooledRoute, ...]) -> frozenset[int]:
    """Edges that the exchange of some rank takes."""
    edges: set[int] = set()
    for rank in range(configuration.degrees.pp):
        edges.update(ring_of(context.topology, _places(context, rank_replicas(routes, rank))).load)
    return frozenset(edges)


def exchange_costs(
    context: Context,
    configuration: Configuration,
    routes: tuple[PooledRoute, ...],
    stages: dict[int, PoolStages],
    *,
    reserved: dict[int, float],
    chosen: Sequence[tuple[Ring, ...]] | None = None,
) -> tuple[ExchangeCost, ...]:
    """Costs of the exchange of every stage; `stages` maps pool index to its stage costs.

    `reserved` is what stage messages keep of each edge (B/s). Rings are the `chosen` ones of every stage, if there are
    any (`ExchangeCost.rings`): of replicas that send all at once, whose messages keep no less of any edge than those in
    time slots, so a ring has capacity left.
    """
    capacity = _left_bytes_per_s(context, reserved)
    known: dict[object, ExchangeCost] = {}
    costs = []
    for stage in range(configuration.degrees.num_stages):
        counts = rank_replicas(routes, configuration.rank_of_stage(stage))
        rings = () if chosen is None else chosen[stage]
        key = (tuple(counts.items()), rings, *(_signature(stages[pool], stage) for pool in counts))
        if key not in known:
            known[key] = _exchange(context, configuration, counts, stages, stage, capacity=capacity, chosen=rings)
        costs.append(known[key])
    return tuple(costs)


def rings_together(
    context: Context, costs: tuple[ExchangeCost, ...], reserved: dict[int, float]
) -> tuple[tuple[Ring, ...], ...] | None:
    """Rings of every stage whose steps are split over paths together with those of all others, so that different ranks
    take different links as far as that is faster, and instead of each the one that it has; None where none meet.
    """
    rings_on, size_of = defaultdict[int, set[Ring]](set), defaultdict[Step, float](float)
    for one in costs:
        if one.site_ring is not None:
            for edge in one.site_ring.ring.load:
                rings_on[edge].add(one.site_ring.ring)
            for step in one.site_ring.ring.steps:
                size_of[step] += one.site_ring.sent_bytes
    if all(len(rings) == 1 for rings in rings_on.values()):
        return None
    capacity, every = _left_bytes_per_s(context, reserved), on_nearest_paths(context.topology, sorted(size_of))
    parts = split_steps(context, every, capacity, tuple(size_of[step] for step in every.steps))
    if parts is None:
        return None
    parts_of = dict(zip(every.steps, parts, strict=True))
    return tuple(
        tuple(dict.fromkeys((_with_parts(ring, parts_of), ring))) if ring is not None else ()
        for ring in (None if one.site_ring is None else one.site_ring.ring for one in costs)
    )


def _with_parts(ring: Ring, parts_of: Mapping[Step, Parts]) -> Ring:
    return Ring(ring.steps, tuple(parts_of[step] for step in ring.steps))


def _left_bytes_per_s(context: Context, reserved: dict[int, float]) -> FloatArray:
    """What messages leave of every edge."""
    capacity = np.array(context.topology.capacity_bytes_per_s)
    for edge, rate in reserved.items():
        capacity[edge] -= rate
    return capacity


def _signature(stages: PoolStages, stage: int) -> tuple[float, ...]:
    """What an exchange depends on: stages that agree in it share their exchange cost."""
    cost = stages.cost
    values = (cost.parameters, cost.expert_parameters, cost.forward_s, cost.input_grad_s, cost.weight_grad_s)
    return tuple(float(value[stage]) for value in values)


def rank_replicas(routes: tuple[PooledRoute, ...], rank: int) -> Counter[int]:
    """Replicas of a pipeline rank by pool."""
    counts: Counter[int] = Counter()
    for route in routes:
        counts[route.pools[rank]] += route.num_replicas
    return counts


def _exchange(
    context: Context,
    configuration: Configuration,
    counts: Counter[int],
    stages: dict[int, PoolStages],
    stage: int,
    *,
    capacity: FloatArray,
    chosen: tuple[Ring, ...],
) -> ExchangeCost:
    columns = columns_of(configuration)
    overlap_s = max(_overlap_s(context, columns, one, stage) for one in _distinct(stages, counts))
    private_s = max(_private_s(context, columns, counts, stages, stage))
    one = stages[next(iter(counts))]
    plain = ring_of(context.topology, _places(context, counts))
    if not plain.steps:
        return ExchangeCost(overlap_s, private_s, 0.0, {})
    parameters = group_parameters(one.cost.parameters[stage], one.cost.expert_parameters[stage], columns)
    sent_bytes = float(crossing_bytes(parameters, columns, len(plain.steps), context.job)[0])
    senders = _Senders(context, configuration, counts, _largest_local_bytes(context, one))

    def on_ring(site_ring: InterSiteRing, other: ExchangeCost | None = None) -> ExchangeCost:
        edge_bytes = {edge: part * sent_bytes for edge, part in site_ring.ring.load.items()}
        return ExchangeCost(
            overlap_s, private_s, site_ring.shared_s, edge_bytes, site_ring.shares, site_ring=site_ring, other=other
        )

    if chosen:
        usual, *others = (on_ring(_site_ring(senders, one, sent_bytes, capacity)) for one in chosen)
        return replace(usual, other=next(iter(others), None))
    simple = _site_ring(senders, plain, sent_bytes, capacity)
    split = _split(senders, simple, sent_bytes, capacity)
    if split is None:
        return on_ring(simple)
    if not simple.bottlenecks:
        return on_ring(simple, on_ring(split))
    single = _site_ring(senders, widest_ring(context, plain, capacity), sent_bytes, capacity)
    return on_ring(split, on_ring(single))


@dataclass(frozen=True)
class _Senders:
    """The members of an exchange: replicas by index of their pool, and the bytes of gradients on one GPU.

    Pools of one place send together what the place has reduced, every GPU an equal part.
    """

    context: Context
    configuration: Configuration
    counts: Counter[int]
    local_bytes: float

    @cached_property
    def by_place(self) -> list[tuple[int, int]]:
        """The index of the pool with the slowest cards, of two the first, and the replicas there, of every place."""
        return slowest_by_place(self.context, self.counts)

    @property
    def fewest(self) -> tuple[int, int]:
        """Pool and replicas of the place with the fewest replicas; each of their GPUs sends to the next place."""
        return min(self.by_place, key=lambda one: one[1])

    @property
    def cards_bytes_per_s(self) -> float:
        """Rate of the GPUs of the weakest place together."""
        efficiency, pools = self.context.stack.scale_out_efficiency.value, self.context.pools
        group = self.configuration.degrees.gpus_per_stage_group
        return min(count * group * pools[pool].nic_bytes_per_s_per_gpu * efficiency for pool, count in self.by_place)


def _split(senders: _Senders, simple: InterSiteRing, sent_bytes: float, capacity: FloatArray) -> InterSiteRing | None:
    """The ring split over several paths, where an optimal split saves more than a hundredth of the time.

    It is tried where links pace the ring, or where its few connections collide on their planes: more paths have more.
    """
    if not simple.bottlenecks and simple.reached >= 1.0 - LEAST_GAIN:
        return None
    split = split_ring(senders.context, simple.ring, capacity)
    if split is None:
        return None
    wider = _site_ring(senders, split, sent_bytes, capacity)
    return wider if wider.shared_s < simple.shared_s * (1.0 - LEAST_GAIN) else None


def _site_ring(senders: _Senders, ring: Ring, sent_bytes: float, capacity: FloatArray) -> InterSiteRing:
    """Every step of the ring at once, each of them once per place less one and per direction of the exchange."""
    topology = senders.context.topology
    fill = {edge: part * sent_bytes / float(capacity[edge]) for edge, part in ring.load.items()}
    cards_s = sent_bytes / senders.cards_bytes_per_s
    wire_s = max(cards_s, *fill.values())
    num_steps = 2 * (len(ring.steps) - 1)
    chosen, slowest_s, delay_s, efficiency = [], wire_s, 0.0, dict[int, float]()
    for alike in alike_steps(topology, zip(ring.steps, ring.parts, strict=True)):
        found = _step_choice(senders, alike, sent_bytes / num_steps)
        edges = {edge for path in alike.paths for edge in path.edges}
        own_s = max(cards_s, *(fill[edge] for edge in edges))
        slowest_s, delay_s = max(slowest_s, own_s / found.reached), max(delay_s, found.delay_s)
        efficiency |= {edge: min(found.efficiency, efficiency.get(edge, 1.0)) for edge in edges}
        chosen.append(found)
    shared_s = slowest_s + num_steps * delay_s
    at_full_rate = InterSiteRing(
        ring=ring if ring.num_at_once == 1 else replace(ring, num_at_once=1),  # the same one knows its load already
        sent_bytes=sent_bytes,
        wire_s=wire_s,
        shared_s=shared_s,
        reached=wire_s / slowest_s,
        bottlenecks=frozenset(edge for edge, time in fill.items() if time >= wire_s * (1.0 - 1e-6)),
        shares={edge: min(time / (efficiency[edge] * shared_s), 1.0) for edge, time in fill.items()},
        steps=tuple(chosen),
    )
    return at_full_rate.slower(ring.num_at_once)


def _largest_local_bytes(context: Context, stages: PoolStages) -> float:
    """Gradients of the largest stage on one GPU: one transport serves all stages that span the same places."""
    largest = float((stages.cost.parameters + stages.cost.expert_parameters).max())
    return largest * context.job.optimizer.gradient_bytes_per_parameter


def _step_choice(senders: _Senders, alike: AlikeSteps, step_bytes: float) -> StepChoice:
    """Transport of steps whose paths are alike; in every step a place sends so many bytes over all its connections."""
    path, context, configuration = alike.path, senders.context, senders.configuration
    pool, fewest = senders.fewest
    fabric, connections = fabric_of(context.pools[pool]), fewest * configuration.degrees.gpus_per_stage_group
    member = fabric.nic_bytes_per_s * context.stack.scale_out_efficiency.value
    one_ring = configuration.sharding != "ddp" and configuration.num_state_copies == 1  # over all that share the copy
    communicator = Communicator(
        "dp",
        "reduce_scatter" if one_ring else "all_reduce",
        context.topology.tier(*alike.narrowest),
        len(senders.by_place),
        Level(fewest * configuration.degrees.cp, fabric.scale_out_latency_s, member),
        senders.local_bytes,
        connections,
        member,
        one_ring=one_ring,
    )
    choice = choose_transport(communicator, path)
    option, rate = option_of(choice), choice.effective_bytes_per_s
    site_ring = Wire(path, senders.cards_bytes_per_s / connections, connections, path.capacity_bytes_per_s)
    reached = min(1.0, rate * connections / min(path.capacity_bytes_per_s, senders.cards_bytes_per_s))
    delay_s = step_s(option, site_ring, step_bytes / connections, rate)
    return StepChoice(alike.narrowest, choice, connections, reached, delay_s, wire_efficiency(option, site_ring))


def _overlap_s(context: Context, columns: Columns, stages: PoolStages, stage: int) -> float:
    """Buckets go out while the last backward still runs; gathered weights arrive beside the next forward (ZeRO-1)."""
    beside = stages.cost.input_grad_s[stage] + stages.cost.weight_grad_s[stage]
    if columns.sharding[0] == ZERO1:
        beside = beside + stages.cost.forward_s[stage]
    return float(context.stack.data_parallel_overlap.value * beside)


def _distinct(stages: dict[int, PoolStages], counts: Counter[int]) -> list[PoolStages]:
    """Stage costs of these pools, once per kind of pool."""
    return list(dict.fromkeys(stages[pool] for pool in counts))


def _private_s(
    context: Context, columns: Columns, counts: Counter[int], stages: dict[int, PoolStages], stage: int
) -> Iterator[float]:
    """Reduction and gathering among the replicas of every place, all places of one kind of pool at once."""
    here = place_replicas(context, counts)
    for cost in _distinct(stages, counts):
        own = [pool for pool in counts if stages[pool] is cost]
        replicas = np.unique([here[context.pools[pool].place] for pool in own])
        rows = np.zeros(len(replicas), dtype=np.int64)
        traffic = step_traffic(
            cost.cost.parameters[stage + rows],
            cost.cost.expert_parameters[stage + rows],
            replace(columns.take(rows), dp=replicas),
            fabric_of(context.pools[own[0]]),
            context.stack,
            job=context.job,
        )
        yield float((traffic.reduce_s + traffic.gather_s).max())


def _places(context: Context, counts: Counter[int]) -> list[str]:
    """Places with replicas in the order of their ring."""
    ordered = sorted(counts, key=lambda pool: (context.group_of_pool[pool], pool))
    return list(ring_order(context, tuple(dict.fromkeys(context.pools[pool].place for pool in ordered))))
