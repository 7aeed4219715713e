"""What joins buildings: links and uplinks that were stated, or nothing but defaults.

An uplink left at its default is full bisection for free, which only a request that says so may rest on.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.cluster import Place, PlaceId, Uplink
from models.request import PlanRequest
from solver.diagnostics.rule import Found, Rule, crosses_buildings, gpus_by_building
from solver.network.paths import islands
from solver.network.places import alike_pools, ancestors_of
from solver.network.topology import UPLINK_PREFIX, build_topology

SHOWN = 6  # names in a sentence


def links_missing(request: PlanRequest) -> Iterator[Found]:
    """Buildings with GPUs that nothing joins, or nothing but uplinks that nobody stated.

    Nothing is missing where the request says that they are inside one fabric, or apart on purpose, or keeps a job in
    one building.
    """
    held, cluster = gpus_by_building(request), request.cluster
    if len(held) < 2 or not crosses_buildings(request):
        return
    if cluster.fabric != "one":
        by_id = {place.id: place for place in cluster.places}
        for region, buildings in _joined_by_default(request, held, by_id).items():
            yield (
                "/cluster/links",
                f"nothing is stated that joins buildings {names_of(buildings)} of {region!r}: without links each would "
                f"reach the others at the full rate of its cards, those of {held[buildings[0]]:,} GPUs in the first",
            )
    if cluster.fabric != "separate" and not cluster.links and len(_islands(request, held)) == len(held):
        yield "/cluster/links", f"no link and no region joins buildings {names_of(list(held))}, which all have GPUs"


def _joined_by_default(
    request: PlanRequest, held: dict[PlaceId, int], by_id: dict[PlaceId, Place]
) -> dict[PlaceId, list[PlaceId]]:
    """Buildings with GPUs by region, where several have no links and an uplink left at its default."""
    uplinks = {edge.id for edge in build_topology(request.cluster).edges}
    found: dict[PlaceId, list[PlaceId]] = {}
    for name in held:
        place = by_id[name]
        if place.level == "building" and place.parent and place.uplink == Uplink() and UPLINK_PREFIX + name in uplinks:
            found.setdefault(place.parent, []).append(name)
    return {region: buildings for region, buildings in found.items() if len(buildings) > 1}


def _islands(request: PlanRequest, held: dict[PlaceId, int]) -> list[list[PlaceId]]:
    """Buildings with GPUs, by what can reach what; the one with the most GPUs first."""
    number = islands(build_topology(request.cluster))
    groups: dict[int, list[PlaceId]] = {}
    for name in held:
        groups.setdefault(number[name], []).append(name)
    return sorted(groups.values(), key=lambda group: -sum(held[name] for name in group))


def buildings_apart(request: PlanRequest) -> Iterator[Found]:
    """Buildings with GPUs that no path joins with the largest part of the cluster, unless that is said."""
    held, cluster = gpus_by_building(request), request.cluster
    if len(held) < 2 or not crosses_buildings(request) or not cluster.links or cluster.fabric == "separate":
        return
    first, *others = _islands(request, held)
    for group in others:
        yield (
            "/cluster/links",
            (
                f"no path joins {names_of(group)} ({sum(held[name] for name in group):,} GPUs) with {names_of(first)}: "
                "a plan uses one side only"
            ),
        )


def building_without_gpus(request: PlanRequest) -> Iterator[Found]:
    """Buildings that no pool lies in."""
    around = ancestors_of(request.cluster)
    live = {place for pool in request.cluster.pools for place in around[pool.place]}
    ends = {end for link in request.cluster.links for end in (link.from_place, link.to_place)}
    for index, place in enumerate(request.cluster.places):
        if place.level == "building" and place.id not in live:
            role = "its links only pass traffic on" if place.id in ends else "and no link, so it does nothing"
            yield f"/cluster/places/{index}", f"building {place.id!r} has no pool of GPUs: {role}"


def pool_without_gpus(request: PlanRequest) -> Iterator[Found]:
    """Pools whose GPUs are all reserved or out of service."""
    for index, pool in enumerate(request.cluster.pools):
        if not pool.num_free_gpus:
            total = pool.num_hosts * pool.gpus_per_host
            yield f"/cluster/pools/{index}", f"none of the {total:,} GPUs of pool {pool.id!r} are free"


def uplink_without_parent(request: PlanRequest) -> Iterator[Found]:
    """Uplinks of places that have no parent: nothing reads them."""
    for index, place in enumerate(request.cluster.places):
        if place.parent is None and place.uplink != Uplink():
            yield f"/cluster/places/{index}/uplink", f"{place.id!r} has no parent, so its uplink leads nowhere"


def uplink_beside_links(request: PlanRequest) -> Iterator[Found]:
    """Buildings with a link of their own and a stated uplink: traffic takes whichever is nearer."""
    ends = {end for link in request.cluster.links for end in (link.from_place, link.to_place)}
    for index, place in enumerate(request.cluster.places):
        if place.level == "building" and place.parent and place.id in ends and place.uplink != Uplink():
            yield (
                f"/cluster/places/{index}/uplink",
                f"building {place.id!r} has links and an uplink to {place.parent!r}: both are used",
            )


def link_out_of_reach(request: PlanRequest) -> Iterator[Found]:
    """Links of regions whose buildings have no uplink to them: the GPUs in there do not reach the link."""
    around, pools = ancestors_of(request.cluster), request.cluster.pools
    inside = {place for pool in pools for place in around[pool.place]}.difference(pool.place for pool in pools)
    upwards = (edge for edge in build_topology(request.cluster).edges if edge.id.startswith(UPLINK_PREFIX))
    reached = {edge.to_place for edge in upwards if not edge.reverse}
    for index, link in enumerate(request.cluster.links):
        for field, end in (("from_place", link.from_place), ("to_place", link.to_place)):
            if end in inside and end not in reached:
                yield (
                    f"/cluster/links/{index}/{field}",
                    f"link {link.id!r} ends at {end!r}, which the GPUs in it do not reach: its buildings have links of "
                    "their own, or are kept apart, and no uplink was stated",
                )


def pools_alike(request: PlanRequest) -> Iterator[Found]:
    """Pools of one place that differ in names and sizes alone: no tp x cp GPUs of a stage lie in two of them."""
    index_of = {pool.id: index for index, pool in enumerate(request.cluster.pools)}
    for first, *others in alike_pools(request):
        names = names_of([pool.id for pool in (first, *others)])
        yield (
            f"/cluster/pools/{index_of[others[0].id]}",
            f"pools {names} of {first.place!r} differ in names and sizes alone: no tp x cp GPUs of a stage lie in two",
        )


def names_of(places: list[PlaceId]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(repr(name) for name in places[:SHOWN])
    return shown if len(places) <= SHOWN else f"{shown} and {len(places) - SHOWN} more"


ONE_FABRIC = (
    "state a link for every pair of buildings that fibre joins, with its rate and length",
    "state the uplinks of the buildings",
    'set cluster.fabric to "one" if all buildings of a region really are inside one fabric of full bisection',
    'set cluster.fabric to "separate" if nothing joins them and a plan has to stay in one of them',
)
LINKS_MISSING = Rule("links-missing", "error", ONE_FABRIC, links_missing)
RULES = (
    Rule("buildings-apart", "warning",
         ("add the missing link", "leave out or forbid the buildings that stay apart"), buildings_apart),
    Rule("building-without-gpus", "warning",
         ("add its pools", "remove the place if it holds no equipment of the job"), building_without_gpus),
    Rule("pool-without-gpus", "warning",
         ("lower num_reserved_gpus or num_unhealthy_gpus", "remove the pool"), pool_without_gpus),
    Rule("uplink-without-parent", "warning",
         ("give the place its parent", "state a link instead"), uplink_without_parent),
    Rule("uplink-beside-links", "note", ("remove the uplink if the links are the only way out",), uplink_beside_links),
    Rule("link-out-of-reach", "warning",
         ("let the link end at the building whose GPUs use it", "state the uplinks of the buildings in that place"),
         link_out_of_reach),
    Rule("pools-alike", "note", ("state them as one pool if nothing keeps them apart",), pools_alike),
)  # fmt: skip
