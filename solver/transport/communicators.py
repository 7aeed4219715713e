"""The transport choice of every communicator of a placement, on the widest tier that it crosses.

The options of a path are weighed in `solver/network/choices.py`; a scale-up domain has none.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from models.cluster import Pool
from models.plan import Configuration
from models.transport import Algorithm, Collective, TransportChoice
from solver.configurations.stages import PoolStages
from solver.context import Context
from solver.cost.fabric import Fabric, fabric_of, share_place
from solver.cost.job import Job
from solver.network import fabrics
from solver.network.algorithms import Communicator
from solver.network.choices import choose_transport
from solver.network.collectives import Level, bus_factor
from solver.network.technology import CHUNK_BYTES
from solver.placement.fill import PooledRoute
from solver.transport.hops import StageMessages
from solver.transport.message_paths import MessagePaths


def place_replicas(context: Context, counts: Counter[int]) -> Counter[str]:
    """Replicas by place: pools of one place exchange inside it."""
    here: Counter[str] = Counter()
    for pool, count in counts.items():
        here[context.pools[pool].place] += count
    return here


def slowest_by_place(context: Context, counts: Counter[int]) -> list[tuple[int, int]]:
    """The index of the pool with the slowest cards, of two the first, and all replicas there, of every place."""
    slowest: dict[str, int] = {}
    for pool in sorted(counts, key=lambda one: context.pools[one].nic_bytes_per_s_per_gpu):
        slowest.setdefault(context.pools[pool].place, pool)
    return [(slowest[place], count) for place, count in place_replicas(context, counts).items()]


def transport_choices(
    context: Context,
    configuration: Configuration,
    routes: tuple[PooledRoute, ...],
    stages: dict[int, PoolStages],
    *,
    across: tuple[TransportChoice, ...],
) -> tuple[TransportChoice, ...]:
    """One choice per dimension, collective and tier: those between places as timed, and those inside."""
    chosen: dict[tuple[str, str, str], TransportChoice] = {}
    for choice in (*across, *_inside(context, configuration, routes, stages)):
        key = (choice.dimension, choice.collective, choice.tier)
        if key not in chosen or choice.expected_s > chosen[key].expected_s:
            chosen[key] = choice
    return tuple(chosen[key] for key in sorted(chosen))


def _inside(
    context: Context, configuration: Configuration, routes: tuple[PooledRoute, ...], stages: dict[int, PoolStages]
) -> Iterator[TransportChoice]:
    """Communicators inside one place, on the first pool of the first route."""
    degrees, job = configuration.degrees, context.job
    index = routes[0].pools[0]
    pool, cost = context.pools[index], stages[index].cost
    tokens = configuration.micro_batch_sequences * job.sequence_length / degrees.cp
    hidden = job.value_bytes * tokens * job.hidden_size
    if degrees.tp > 1:
        yield _local(context, pool, "tp", "all_reduce", num_ranks=degrees.tp, spacing=1, message_bytes=hidden)
    if degrees.cp > 1:
        yield _local(context, pool, "cp", "all_gather", num_ranks=degrees.cp, spacing=degrees.tp, message_bytes=hidden)
    if degrees.ep > 1:
        copies = hidden * max(job.experts_per_token, 1) / degrees.tp
        yield _local(context, pool, "ep", "all_to_all", num_ranks=degrees.ep, spacing=degrees.tp, message_bytes=copies)
    here = Counter[tuple[int, str]]()
    for route in routes:
        for rank, one in enumerate(route.pools):
            here[rank, context.pools[one].place] += route.num_replicas
    replicas = max(here.values()) * degrees.cp
    if replicas > 1:
        size = float(cost.parameters[0]) * job.optimizer.gradient_bytes_per_parameter
        for collective, share in _gradient_collectives(configuration, job):
            yield _local(
                context, pool, "dp", collective, num_ranks=replicas, spacing=degrees.tp, message_bytes=size * share
            )
    ends = {pair for route in routes for pair in pairwise(context.pools[one] for one in route.pools)}
    if any(share_place(*pair) for pair in ends):
        paths = MessagePaths(context.topology)
        messages = StageMessages(context, configuration, float(cost.boundary_bytes.max()), paths)
        yield messages.sent(index, index, sharers=1, senders=1).choice


def _gradient_collectives(configuration: Configuration, job: Job) -> list[tuple[Collective, float]]:
    """What the sharding does to the gradients and weights inside a place, sizes relative to the gradients."""
    if configuration.sharding == "ddp":
        return [("all_reduce", 1.0)]
    return [("reduce_scatter", 1.0), ("all_gather", job.value_bytes / job.optimizer.gradient_bytes_per_parameter)]


def _local(
    context: Context,
    pool: Pool,
    dimension: str,
    collective: Collective,
    *,
    num_ranks: int,
    spacing: int,
    message_bytes: float,
) -> TransportChoice:
    """A communicator of members `spacing` GPUs apart: in the scale-up domain, or over the zone's network."""
    fabric = fabric_of(pool)
    per_domain = max(fabric.scale_up_domain_gpus // spacing, 1)
    inside = min(num_ranks, per_domain)
    member = fabric.nic_bytes_per_s * context.stack.scale_out_efficiency.value
    level = Level(inside, fabric.scale_up_latency_s, float(fabric.scale_up_rate_bytes_per_s(inside)))
    if inside == num_ranks:
        alone = Communicator(dimension, collective, "scale_up", 1, level, message_bytes, 1, level.rate_bytes_per_s)  # type: ignore[arg-type]
        return choose_scale_up(alone, fabric)
    tier = context.topology.tier(pool.place, pool.place)
    places = -(-num_ranks // inside)
    wide = Communicator(dimension, collective, tier, places, level, message_bytes, inside, member, num_ranks)  # type: ignore[arg-type]
    return choose_transport(wide, context.topology.path_facts(pool.place, pool.place))


def choose_scale_up(communicator: Communicator, fabric: Fabric) -> TransportChoice:
    """The transport inside a scale-up domain, from the measured curve of its generation; the fabric has no options."""
    line_rate = fabric.scale_up_bytes_per_s
    profile = fabrics.scale_up_profile(line_rate, full_mesh=fabric.full_mesh)
    size, ranks = communicator.message_bytes, communicator.num_ranks
    seconds = profile.collective_s(communicator.collective, size, ranks, line_rate=line_rate)
    factor = bus_factor(communicator.collective, ranks) if ranks > 1 else 0.0
    rate = factor * size / seconds if seconds > 0 else line_rate
    algorithm: Algorithm = "ring" if communicator.collective not in ("send_recv", "all_to_all") else "direct"
    return TransportChoice(
        dimension=communicator.dimension,
        collective=communicator.collective,
        tier="scale_up",
        num_ranks=ranks,
        message_bytes=size,
        algorithm=algorithm,
        chunk_bytes=min(CHUNK_BYTES),
        num_queue_pairs=1,
        num_outstanding=1,
        load_balancing="ecmp",
        reliability="go_back_n",
        expected_s=seconds,
        effective_bytes_per_s=rate,
        reason=f"Scale-up domain: measured curve of {profile.name} gives {rate / 1e9:.0f} GB/s of bus bandwidth at "
        f"{size / 1e6:.3g} MB; there is no route, hash or loss to choose for.",
    )
