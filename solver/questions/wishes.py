"""The named constraints of a request: what its writer wishes for, and what the hardware sets.

A wish can be given up. The hardware is changed only to see whether it stands in the way, or as something to buy; never
the distance that light has to travel.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, get_args

from models.base import MOST_BYTES_PER_S, MOST_CAPACITY_BYTES, MOST_FLOPS_PER_S
from models.cluster import MAX_GPUS, Cluster, Link, Place, Pool, Uplink
from models.plan import Sharding
from models.pointers import escaped
from models.question_parts import Change
from models.request import AllowedDegrees, PlanRequest
from models.statements import SPACE_LIMITS
from models.workload import Recompute
from solver.questions.missing_links import are_missing, in_a_row

GIB, GBIT = 2.0**30, 1.25e8  # bytes: the units
MOST_NAMED = 12  # pins, or forbidden places, that are named one by one; of more there is one wish
LARGE = 1e3  # times as fast or as large: no request that is turned down by a thousandth of it is meant
MORE_HOSTS = 64.0  # times as many, only to see whether hosts stand in the way
FULL_BISECTION = 1.0 + 1e-9  # of a stated uplink, which must not become the default that nobody stated


@dataclass(frozen=True)
class Group:
    """A named part of a request with the changes that take it away."""

    name: str
    pointer: str
    stated: str
    changes: tuple[Change, ...]


def put(pointer: str, value: Any) -> Change:
    """The change that puts a value at a pointer."""
    return Change(pointer=pointer, value=value)


def wishes_of(request: PlanRequest) -> tuple[Group, ...]:
    """Everything that a request asks for and could do without, in the order of its fields."""
    return (*_allowed(request), *_places(request), *_limits(request), *_objective(request))


def _wish(pointer: str, stated: Any, *changes: Change) -> Group:
    name = pointer[1:].replace("/", ".")
    return Group(name, pointer, json.dumps(stated)[:300], changes)


def _allowed(request: PlanRequest) -> Iterator[Group]:
    for name in AllowedDegrees.model_fields:
        values = getattr(request.constraints.allowed, name)
        if values is not None:
            pointer = f"/constraints/allowed/{name}"
            yield _wish(pointer, values, put(pointer, _open(request, name, values)))
    if request.constraints.framework is not None:
        pointer = "/constraints/framework"
        yield _wish(pointer, request.constraints.framework.name, put(pointer, None))


def _open(request: PlanRequest, name: str, stated: Sequence[Any]) -> list[Any] | None:
    """Every value of a choice. Null is not always all: what is seldom of use is tried only where it is named."""
    workload = request.workload
    if name == "sharding":
        return [*get_args(Sharding)]
    if name == "recompute":
        return [*get_args(Recompute)]
    if name == "ep" and workload.architecture.moe is not None:
        return [ep for ep in range(1, workload.architecture.moe.num_experts + 1)
                if workload.architecture.moe.num_experts % ep == 0][:64]  # fmt: skip
    usual = {"vpp": SPACE_LIMITS.max_chunks, "micro_batch_sequences": SPACE_LIMITS.max_micro_batch}.get(name)
    if usual is not None and max(stated) > usual:
        return sorted({*range(1, usual + 1), *stated})[:64]
    return None


def _places(request: PlanRequest) -> Iterator[Group]:
    constraints = request.constraints
    for name, values in (
        ("pins", [pin.model_dump(mode="json") for pin in constraints.pins]),
        ("forbidden_places", list(constraints.forbidden_places)),
    ):
        pointer = f"/constraints/{name}"
        if len(values) > MOST_NAMED:
            yield _wish(pointer, f"{len(values)} of them", put(pointer, []))
            continue
        for index, value in enumerate(values):
            one = f"{pointer}/{index}"
            yield _wish(one, value, Change(pointer=one, op="remove"))


def _limits(request: PlanRequest) -> Iterator[Group]:
    constraints = request.constraints
    for name, free in (
        ("max_gpus", None),
        ("use_all_gpus", False),
        ("memory_headroom_fraction", 0.0),
        ("max_cross_building_bytes_per_iteration", None),
        ("pipeline_may_cross_buildings", True),
        ("data_parallel_may_cross_buildings", True),
    ):
        stated, pointer = getattr(constraints, name), f"/constraints/{name}"
        if stated != free:
            yield _wish(pointer, stated, put(pointer, free))


def _objective(request: PlanRequest) -> Iterator[Group]:
    objective, precision = request.objective, request.workload.precision
    kind = put("/objective/kind", "iteration_time")
    if objective.kind in ("fewest_gpus", "least_cross_building_traffic"):
        pointer = "/objective/target_iteration_s"
        yield _wish(pointer, objective.target_iteration_s, put(pointer, None), kind)
    elif objective.kind == "cost_per_token":
        yield _wish("/objective/kind", objective.kind, kind)
    if precision not in ("bf16", "fp16"):
        yield _wish("/workload/precision", precision, put("/workload/precision", "bf16"))


def hardware_of(request: PlanRequest) -> tuple[Group, ...]:
    """What the hardware sets, with a change that makes it no hindrance; only to see whether it is one."""
    cluster, pools, links = request.cluster, "/cluster/pools/*", "/cluster/links/*"
    total = sum(pool.num_hosts * pool.gpus_per_host for pool in request.cluster.pools)
    hosts = min(MORE_HOSTS, floor(MAX_GPUS / total))
    cards, speeds = [pool.nic_bytes_per_s for pool in cluster.pools], _speeds(cluster)
    rates = [multiplied(f"{pools}/nic_bytes_per_s", _largely(cards, MOST_BYTES_PER_S)),
             *_with_uplinks(cluster, oversubscription=FULL_BISECTION)]  # fmt: skip
    near = _with_uplinks(cluster, latency_s=0.0)
    if cluster.links:
        capacities = [link.capacity_bytes_per_s for link in cluster.links]
        rates += [multiplied(f"{links}/capacity_bytes_per_s", _largely(capacities, MOST_BYTES_PER_S)),
                  put(f"{links}/reverse_capacity_bytes_per_s", None),
                  put(f"{links}/oversubscription", 1.0)]  # fmt: skip
        near.append(put(f"{links}/latency_s", 0.0))
    speed = [multiplied(f"{pools}/gpu/{name}", factor) for name, factor in speeds.items()]
    memory = _largely([pool.gpu.memory_bytes for pool in cluster.pools], MOST_CAPACITY_BYTES)
    speed += [multiplied(f"/workload/layer_profiles/{index}/{name}", 1.0 / LARGE)
              for index, profile in enumerate(request.workload.layer_profiles)
              for name in ("forward_s", "input_grad_s", "weight_grad_s") if getattr(profile, name)]  # fmt: skip
    groups = (
        Group("links between the buildings", "/cluster/links", "",
              in_a_row(request, MOST_BYTES_PER_S, latency_s=0.0) if are_missing(request) else ()),
        Group("memory of the GPUs", "/cluster/pools", "", more_memory(memory)),
        Group("number of GPUs", "/cluster/pools", "",
              (multiplied(f"{pools}/num_hosts", hosts), put(f"{pools}/host_names", []))),
        Group("speed of the GPUs", "/cluster/pools", "", tuple(speed)),
        Group("rates of links and network cards", "/cluster/links", "", tuple(rates)),
        Group("distance: the speed of light", "/cluster/links", "", tuple(near)),
    )  # fmt: skip
    return tuple(group for group in groups if group.changes)


def _with_uplinks(cluster: Cluster, **changed: float) -> list[Change]:
    """Every uplink that there is with other numbers; one that nobody stated joins no buildings, and is left alone."""

    def is_there(place: Place) -> bool:
        stated = place.level != "building" or place.uplink != Uplink()
        return place.parent is not None and (stated or cluster.fabric == "one")

    if not any(is_there(place) for place in cluster.places):
        return []
    places = [place.model_dump(mode="json") | (
                  {"uplink": place.uplink.model_dump(mode="json") | changed} if is_there(place) else {})
              for place in cluster.places]  # fmt: skip
    return [put("/cluster/places", places)]


def _speeds(cluster: Cluster) -> dict[str, float]:
    """How much faster each rate of the GPUs may be stated."""
    most = {"bf16_flops_per_s": MOST_FLOPS_PER_S, "memory_bytes_per_s": MOST_BYTES_PER_S,
            "scale_up_bytes_per_s": MOST_BYTES_PER_S}  # fmt: skip
    return {name: _largely([getattr(pool.gpu, name) for pool in cluster.pools], one) for name, one in most.items()}


def _largely(values: Sequence[float], most: float) -> float:
    """A factor so large, or what a request may state at most.

    >>> _largely([8e10, 1.41e11], 1e14)
    709.2
    """
    return min(LARGE, max(floor(10.0 * most / max(values)) / 10.0, 1.0))


def multiplied(pointer: str, times: float) -> Change:
    """The change that multiplies a number."""
    return Change(pointer=pointer, op="multiply", value=times)


def more_memory(times: float) -> tuple[Change, ...]:
    """Every GPU with so many times its memory."""
    return (multiplied("/cluster/pools/*/gpu/memory_bytes", times),)


def wider(link: Link, times: float) -> tuple[Change, ...]:
    """A link with so many times its capacity, in both directions where they differ."""
    at = f"/cluster/links/{escaped(link.id)}"
    names = ("capacity_bytes_per_s", "reverse_capacity_bytes_per_s")
    return tuple(multiplied(f"{at}/{name}", times) for name in names if getattr(link, name) is not None)


def wider_uplink(place: Place, times: float) -> tuple[Change, ...]:
    """An uplink with so many times its capacity, up to full bisection."""
    pointer = f"/cluster/places/{escaped(place.id)}/uplink/oversubscription"
    return (put(pointer, max(place.uplink.oversubscription / times, FULL_BISECTION)),)


def with_more_hosts(pool: Pool, times: float) -> tuple[Change, ...]:
    """A pool with so many times its hosts, rounded up, which then have no names."""
    at = f"/cluster/pools/{escaped(pool.id)}"
    hosts = put(f"{at}/num_hosts", ceil(times * pool.num_hosts))
    return (hosts, put(f"{at}/host_names", [])) if pool.host_names else (hosts,)


def at_prices(cluster: Cluster, usd_per_gpu_hour: Callable[[Pool], float]) -> tuple[Change, ...]:
    """Every GPU-hour at such a price, and egress for nothing."""
    hours = (
        put(f"/cluster/pools/{escaped(one.id)}/gpu/usd_per_gpu_hour", usd_per_gpu_hour(one)) for one in cluster.pools
    )
    return (*hours, *(put(f"/cluster/links/{escaped(one.id)}/usd_per_gb", None) for one in cluster.links))
