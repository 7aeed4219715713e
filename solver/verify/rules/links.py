"""Rules on link loads: real links, the bytes that the placement implies, and never more than the capacity.

Judges `Plan.link_loads`. Here the least bytes of exchanges out of every building, that no ring saves; those of the
stated rings are judged link by link in `exchange_times.py`, those of messages in `paths.py`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from models.cluster import Place
from models.transport import Dimension, LinkLoad
from solver.network.topology import Edge, leaves_building
from solver.verify.case import Case, Finding, Rule, differs, exceeds, link_name, load_name, unequal


def links_exist(case: Case) -> Iterator[Finding]:
    """Every load is on a link of the cluster, once per direction."""
    counted = Counter((load.link, load.reverse) for load in case.plan.link_loads)
    for (link, reverse), times in counted.items():
        if (link, reverse) not in case.network.topology.edge_index:
            yield Finding(link_name(link, reverse), "is not a link or uplink of the cluster")
        elif times > 1:
            yield Finding(link_name(link, reverse), f"is stated {times} times")


def link_usable(case: Case) -> Iterator[Finding]:
    """The usable capacity is what failures, oversubscription and background leave of the link."""
    for load, edge in _edges(case):
        stated, derived = load.usable_bytes_per_s, edge.capacity_bytes_per_s
        yield from unequal(load_name(load), "usable_bytes_per_s", stated, derived, "the cluster says")


def link_utilisation(case: Case) -> Iterator[Finding]:
    """Mean utilisation is bytes over usable capacity and iteration time, and the peak is not below it."""
    for load in case.plan.link_loads:
        mean = load.total_bytes / (load.usable_bytes_per_s * case.plan.metrics.iteration_s)
        yield from unequal(load_name(load), "mean_utilisation", load.mean_utilisation, mean, "its bytes give")
        if exceeds(mean, load.peak_utilisation):
            yield Finding(load_name(load), f"peak_utilisation {load.peak_utilisation:.9g} is below the mean {mean:.9g}")


def link_capacity(case: Case) -> Iterator[Finding]:
    """No link carries more than it can, over the iteration or at any instant."""
    for load, edge in _edges(case):
        most_bytes = edge.capacity_bytes_per_s * case.plan.metrics.iteration_s
        if exceeds(load.total_bytes, most_bytes):
            yield Finding(
                load_name(load), f"{load.total_bytes:.6g} B per iteration, it carries {most_bytes:.6g} B in that time"
            )
        if exceeds(load.peak_utilisation, 1.0):
            yield Finding(load_name(load), f"peak_utilisation {load.peak_utilisation:.9g}")


def exchange_bytes(case: Case) -> Iterator[Finding]:
    """At least one copy of the gradients leaves every building for the exchange, by whatever paths and detours."""
    for building, least in case.network.least_data_parallel_bytes.items():
        leaving = (
            load
            for load, edge in _edges(case)
            if case.building_of(edge.from_place) == building != case.building_of(edge.to_place)
        )
        stated = sum(load.bytes_of("dp") for load in leaving)
        if exceeds(least, stated):
            yield Finding(f"out of {building}", f"{stated:.9g} B of dp, the placement means {least:.9g} or more")


def loads_conserved(case: Case) -> Iterator[Finding]:
    """What enters a building without GPUs of the plan, or a region above buildings, leaves it."""
    held = {place for group in case.groups for place in case.network.topology.ancestors(group.pool.place)}
    for place in case.request.cluster.places:
        if place.level not in ("region", "building") or (place.level == "building" and place.id in held):
            continue
        if place.level == "region" and any(group.pool.place == place.id for group in case.groups):
            continue
        for cause, (entering, leaving) in _through(case, place).items():
            if differs(entering, leaving):
                yield Finding(f"place {place.id}", f"{entering:.9g} B of {cause} enter, {leaving:.9g} B leave")


def cross_building_bytes(case: Case) -> Iterator[Finding]:
    """The headline counts every byte on links between buildings, and on uplinks of buildings on the way up."""
    crossing = (load for load, edge in _edges(case) if leaves_building(case.network.topology, edge))
    total = sum(load.total_bytes for load in crossing)
    stated = case.plan.metrics.cross_building_bytes
    yield from unequal("metrics", "cross_building_bytes", stated, total, "the loads say")


def cross_building_limit(case: Case) -> Iterator[Finding]:
    """The bytes between buildings stay within the request's limit."""
    limit = case.request.constraints.max_cross_building_bytes_per_iteration
    stated = case.plan.metrics.cross_building_bytes
    if limit is not None and exceeds(stated, limit):
        yield Finding("metrics", f"{stated:.9g} B between buildings, the request allows {limit:.9g}")


def _through(case: Case, place: Place) -> dict[Dimension, tuple[float, float]]:
    """Bytes that enter and leave a place over stated loads, by cause."""
    sums: dict[Dimension, tuple[float, float]] = {}
    for load, edge in _edges(case):
        into = case.is_inside(edge.to_place, place.id) and not case.is_inside(edge.from_place, place.id)
        out = case.is_inside(edge.from_place, place.id) and not case.is_inside(edge.to_place, place.id)
        if place.level == "region":
            into, out = edge.to_place == place.id, edge.from_place == place.id
        for flow in load.flows:
            entering, leaving = sums.get(flow.cause, (0.0, 0.0))
            size = flow.bytes_per_iteration
            sums[flow.cause] = (entering + size * into, leaving + size * out)
    return sums


def _edges(case: Case) -> Iterator[tuple[LinkLoad, Edge]]:
    """Loads with the edge that they are on, where it exists."""
    return ((load, case.network.topology.edges[edge]) for load, edge in case.loads)


FAMILY: Mapping[str, Rule] = {
    "links-exist": links_exist,
    "link-usable": link_usable,
    "link-utilisation": link_utilisation,
    "link-capacity": link_capacity,
    "exchange-bytes": exchange_bytes,
    "loads-conserved": loads_conserved,
    "cross-building-bytes": cross_building_bytes,
    "cross-building-limit": cross_building_limit,
}
