"""The communicators of a plan on every tier, as the judge derives them, and what a stated choice makes of each.

Inside places the first stage of the first route's first pool stands for all.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from models.cluster import Pool, Tier
from models.transport import Collective, Connection, Dimension, TransportChoice
from solver.cost.fabric import Fabric, fabric_of, share_place
from solver.network import fabrics
from solver.network.algorithms import Communicator, StepCost, algorithm_s, algorithms
from solver.network.collectives import Level, bus_factor
from solver.network.connection import connection_rate_bytes_per_s, option_of, step_s
from solver.network.technology import CHUNK_BYTES
from solver.network.topology import PathFacts
from solver.verify.case import differs
from solver.verify.reading import Reading

Key = tuple[Dimension, Collective, Tier]
SCALE_UP = Connection(
    num_connections=1,
    load_balancing="ecmp",
    reliability="go_back_n",
    num_queue_pairs=1,
    chunk_bytes=min(CHUNK_BYTES),
    num_outstanding=1,
)


@dataclass(frozen=True)
class Expected:
    """A communicator with its path, or the `fabric` of its domain; `connection` where the plan states one elsewhere."""

    communicator: Communicator
    path: PathFacts | None = None
    connection: Connection | None = None
    fabric: Fabric | None = None

    @property
    def key(self) -> Key:
        """What a choice is for."""
        return self.communicator.dimension, self.communicator.collective, self.communicator.tier

    def objections(self, choice: TransportChoice) -> Iterator[str]:
        """Where a stated choice is not what this communicator does with the stated options."""
        communicator = self.communicator
        if self.connection is not None:
            for name, value in self.connection:
                if name != "num_connections" and getattr(choice, name) != value:
                    yield f"{name} {getattr(choice, name)}, its way has {value}"
        if choice.algorithm not in self._algorithms():
            yield f"{choice.algorithm} does no {choice.collective} there"
            return
        if choice.num_slices > 1 and choice.algorithm != "hierarchical":
            yield f"{choice.num_slices} slices of a {choice.algorithm}"
        expected_s, rate = self._times(choice)
        for name, value in (
            ("num_ranks", float(communicator.num_ranks)),
            ("message_bytes", communicator.message_bytes),
            ("expected_s", expected_s),
            ("effective_bytes_per_s", rate),
        ):
            if differs(getattr(choice, name), value):
                yield f"{name} {getattr(choice, name):.9g}, it is {value:.9g}"

    def time_s(self, choice: TransportChoice) -> float:
        """Seconds of one operation with these options."""
        return self._times(choice)[0]

    def _algorithms(self) -> tuple[str, ...]:
        if self.path is not None:
            return algorithms(self.communicator)
        return ("direct",) if self.communicator.collective in ("send_recv", "all_to_all") else ("ring",)

    def _times(self, choice: TransportChoice) -> tuple[float, float]:
        """Time of one operation and the rate of a member."""
        communicator = self.communicator
        size, ranks, collective = communicator.message_bytes, communicator.num_ranks, communicator.collective
        if self.path is None:
            assert self.fabric is not None
            line_rate = self.fabric.scale_up_bytes_per_s
            profile = fabrics.scale_up_profile(line_rate, full_mesh=self.fabric.full_mesh)
            seconds = profile.collective_s(collective, size, ranks, line_rate=line_rate)
            factor = bus_factor(collective, ranks) if ranks > 1 else 0.0
            return seconds, factor * size / seconds if seconds > 0 else line_rate
        option = option_of(choice)
        wire = communicator.wire(self.path)
        rate = connection_rate_bytes_per_s(option, wire)
        crossing = StepCost(rate, lambda one: step_s(option, wire, one, rate), option.in_flight_bytes)
        return float(algorithm_s(choice.algorithm, communicator, crossing, choice.num_slices)), rate


def inside_places(case: Reading) -> Iterator[Expected]:
    """Communicators inside one place."""
    degrees, job = case.configuration.degrees, case.derived.job
    tokens = case.configuration.micro_batch_sequences * job.sequence_length / degrees.cp
    hidden = case.request.workload.value_bytes * tokens * job.hidden_size
    if degrees.tp > 1:
        yield _local(case, "tp", "all_reduce", num_ranks=degrees.tp, spacing=1, size_bytes=hidden)
    if degrees.cp > 1:
        yield _local(case, "cp", "all_gather", num_ranks=degrees.cp, spacing=degrees.tp, size_bytes=hidden)
    if degrees.ep > 1:
        copies = hidden * max(job.experts_per_token, 1) / degrees.tp
        yield _local(case, "ep", "all_to_all", num_ranks=degrees.ep, spacing=degrees.tp, size_bytes=copies)
    yield from _gradients(case)
    routes = case.plan.placement.routes
    pools = (case.pools_by_route[route.id] for route in routes)
    if any(share_place(*ends) for own in pools for ends in pairwise(own)):
        yield _message(case)


def _gradients(case: Reading) -> Iterator[Expected]:
    """Reduction and gathering over the replicas of a rank in the place that holds most of them."""
    here: Counter[tuple[int, str]] = Counter()
    for group in case.groups:
        here[group.pipeline_rank, group.pool.place] += group.route.num_replicas
    replicas = max(here.values()) * case.configuration.degrees.cp
    if replicas < 2:
        return
    gradient = case.request.workload.optimizer.gradient_bytes_per_parameter
    size = float(case.derived.stage(_pool(case), 0).parameters[0]) * gradient
    spacing = case.configuration.degrees.tp
    if case.configuration.sharding == "ddp":
        yield _local(case, "dp", "all_reduce", num_ranks=replicas, spacing=spacing, size_bytes=size)
        return
    yield _local(case, "dp", "reduce_scatter", num_ranks=replicas, spacing=spacing, size_bytes=size)
    weights = size * case.request.workload.value_bytes / gradient
    yield _local(case, "dp", "all_gather", num_ranks=replicas, spacing=spacing, size_bytes=weights)


def _local(
    case: Reading, dimension: Dimension, collective: Collective, *, num_ranks: int, spacing: int, size_bytes: float
) -> Expected:
    """Members `spacing` GPUs apart: in the scale-up domain, or over the place's network."""
    fabric, place = fabric_of(_pool(case)), _pool(case).place
    inside = min(num_ranks, max(fabric.scale_up_domain_gpus // spacing, 1))
    level = Level(inside, fabric.scale_up_latency_s, float(fabric.scale_up_rate_bytes_per_s(inside)))
    if inside == num_ranks:
        alone = Communicator(dimension, collective, "scale_up", 1, level, size_bytes, 1, level.rate_bytes_per_s)
        return Expected(alone, connection=SCALE_UP, fabric=fabric)
    topology = case.network.topology
    member = fabric.nic_bytes_per_s * case.derived.stack.scale_out_efficiency.value
    places = -(-num_ranks // inside)
    wide = Communicator(
        dimension, collective, topology.tier(place, place), places, level, size_bytes, inside, member, num_ranks
    )
    return Expected(wide, topology.path_facts(place, place))


def _message(case: Reading) -> Expected:
    """A stage message inside the pool."""
    topology, group, place = case.network.topology, case.gpus_per_group, _pool(case).place
    member = _pool(case).nic_bytes_per_s_per_gpu * case.derived.stack.point_to_point_efficiency.value
    stages = range(case.configuration.degrees.num_stages)
    size = max(float(case.derived.stage(_pool(case), stage).boundary_bytes[0]) for stage in stages)
    inside = Level(1, 0.0, member)
    tier = topology.tier(place, place)
    whole = Communicator("pp", "send_recv", tier, 2, inside, size / group, group, member)
    return Expected(whole, topology.path_facts(place, place))


def _pool(case: Reading) -> Pool:
    return case.pools_by_route[case.plan.placement.routes[0].id][0]
