"""Something that is lost, named by its id, as changes of the request; and what a plan could lose."""

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from models.cluster import Pool, Uplink
from models.errors import InvalidRequest
from models.plan import Plan
from models.pointers import escaped
from models.question_parts import Change
from models.request import PlanRequest
from models.what_now import LossKind
from solver.network.places import ancestors_of, buildings_of

Kind = Literal["place", "pool", "link", "host"]
# What may be lost, as names are looked up.
KINDS: tuple[Kind, ...] = ("place", "pool", "link", "host")
# A loss that is prepared for, as what is named by it.
KIND_OF: dict[LossKind, Kind] = {"building": "place", "pool": "pool", "link": "link"}


def changes_of(request: PlanRequest, lost: Sequence[str], kind: Kind | None = None) -> tuple[Change, ...]:
    """The changes that take away places, pools, links or hosts, all of one kind where that is given.

    Raises InvalidRequest for a name of none, or of two.
    """
    named: dict[Kind, list[str]] = {one: [] for one in KINDS}
    for number, name in enumerate(lost):
        kinds = _kinds(request, name) if kind is None else [kind]
        if len(kinds) != 1:
            what = " and ".join(f"a {one}" for one in kinds) or "neither a place, a pool, a link nor a host"
            raise InvalidRequest(
                f"{name!r} is {what} of cluster {request.cluster.name!r}",
                pointer=f"/lost/{number}",
                remedy="say by a change which of them is meant" if kinds else "use the id of one of them",
            )
        if name not in named[kinds[0]]:
            named[kinds[0]].append(name)
    links, hosts = links_gone(request, named["place"], named["link"]), frozenset(named["host"])
    return (
        *(Change(pointer="/constraints/forbidden_places", op="add", value=name) for name in named["place"]),
        *(_all_unhealthy(request, name) for name in named["pool"]),
        *(Change(pointer=f"/cluster/links/{escaped(name)}", op="remove") for name in links),
        *(change for pool in request.cluster.pools if pool.id not in named["pool"]
          for change in _without_hosts(request, pool, hosts)),
        *_cut_off(request, links),
        *_apart(request, links),
    )  # fmt: skip


def links_gone(request: PlanRequest, places: Collection[str], links: Collection[str]) -> tuple[str, ...]:
    """Links that are lost themselves, or with a place that holds one of their ends: nothing passes through it."""
    around = ancestors_of(request.cluster)
    return tuple(
        link.id
        for link in request.cluster.links
        if link.id in links or not {*around[link.from_place], *around[link.to_place]}.isdisjoint(places)
    )


def _cut_off(request: PlanRequest, lost: Collection[str]) -> Iterator[Change]:
    """Buildings whose last link is lost leave their region: an uplink that nobody stated is not there to take over."""
    cluster, buildings = request.cluster, buildings_of(request.cluster)
    before, after = (
        {buildings[end] for link in cluster.links if link.id not in gone for end in (link.from_place, link.to_place)}
        for gone in ((), lost)
    )
    for place in cluster.places:
        is_cut_off = place.level == "building" and place.id in before - after
        if cluster.fabric != "one" and is_cut_off and place.uplink == Uplink():
            yield Change(pointer=f"/cluster/places/{escaped(place.id)}/parent", value=None)


def _apart(request: PlanRequest, lost: Collection[str]) -> Iterator[Change]:
    """Without its last link a job goes on in one building: that nothing joins them is what happened, not left out."""
    if request.cluster.fabric == "linked" and lost and len(lost) == len(request.cluster.links):
        yield Change(pointer="/cluster/fabric", value="separate")


def _kinds(request: PlanRequest, name: str) -> list[Kind]:
    cluster = request.cluster
    found: dict[Kind, bool] = {
        "place": any(one.id == name for one in cluster.places),
        "pool": any(one.id == name for one in cluster.pools),
        "link": any(one.id == name for one in cluster.links),
        "host": any(name in one.host_names for one in cluster.pools),
    }
    return [kind for kind, is_one in found.items() if is_one]


def _all_unhealthy(request: PlanRequest, pool_id: str) -> Change:
    """Every GPU of the pool out of service: the last pool of a cluster cannot be removed, only emptied."""
    pool = next(one for one in request.cluster.pools if one.id == pool_id)
    gone = pool.num_hosts * pool.gpus_per_host - pool.num_reserved_gpus
    return Change(pointer=f"/cluster/pools/{escaped(pool_id)}/num_unhealthy_gpus", value=gone)


def _without_hosts(request: PlanRequest, pool: Pool, names: Collection[str]) -> list[Change]:
    """Fewer hosts. GPUs in use by others or out of service may be on those that are left, as many as fit there."""
    left = [name for name in pool.host_names if name not in names]
    if len(left) == len(pool.host_names):
        return []
    if not left:
        return [_all_unhealthy(request, pool.id)]
    num_gpus = len(left) * pool.gpus_per_host
    num_reserved = min(pool.num_reserved_gpus, num_gpus)
    num_unhealthy = min(pool.num_unhealthy_gpus, num_gpus - num_reserved)
    fields = {"host_names": left, "num_hosts": len(left), "num_reserved_gpus": num_reserved,
              "num_unhealthy_gpus": num_unhealthy}  # fmt: skip
    at = f"/cluster/pools/{escaped(pool.id)}"
    return [Change(pointer=f"{at}/{name}", value=value) for name, value in fields.items()]


def possible_losses(request: PlanRequest, plan: Plan, kinds: Sequence[LossKind]) -> Iterator[tuple[LossKind, str]]:
    """Buildings and pools that a plan uses, and links that carry something of it; each once."""
    buildings = buildings_of(request.cluster)
    used = {pool for route in plan.placement.routes for pool in route.pools}
    pools = [pool for pool in request.cluster.pools if pool.id in used]
    if "building" in kinds:
        yield from (("building", name) for name in dict.fromkeys(buildings[pool.place] for pool in pools))
    if "pool" in kinds:
        yield from (("pool", pool.id) for pool in pools)
    if "link" in kinds:
        carrying = {load.link for load in plan.link_loads}
        yield from (("link", link.id) for link in request.cluster.links if link.id in carrying)
