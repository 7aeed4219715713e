"""Something that is lost, named by its id, as changes of the request; and what a plan could lose."""

from collections.abc import Collection, Iterator, Sequence

from models.cluster import Uplink
from models.errors import InvalidRequest
from models.plan import Plan
from models.pointers import escaped
from models.question_parts import Change
from models.request import PlanRequest
from models.what_now import LossKind
from solver.network.places import ancestors_of, buildings_of


def changes_of(request: PlanRequest, lost: Sequence[str]) -> tuple[Change, ...]:
    """The changes that take away places, pools, links or hosts. Raises InvalidRequest for a name of none, or of two."""
    changes: list[Change] = []
    hosts: dict[str, list[str]] = {}
    for number, name in enumerate(lost):
        kinds = _kinds(request, name)
        if len(kinds) != 1:
            what = " and ".join(kinds) if kinds else "neither a place, a pool, a link nor a host"
            raise InvalidRequest(
                f"{name!r} is {what} of cluster {request.cluster.name!r}",
                pointer=f"/lost/{number}",
                remedy="say by a change which of them is meant" if kinds else "use the id of one of them",
            )
        (kind,) = kinds
        if kind == "a host":
            pool = next(pool for pool in request.cluster.pools if name in pool.host_names)
            hosts.setdefault(pool.id, []).append(name)
        elif kind != "a link" and name not in lost[:number]:
            changes.append(_without(request, kind, name))
    links = _links_gone(request, lost)
    changes += [Change(pointer=f"/cluster/links/{escaped(link)}", op="remove") for link in links]
    for pool_id, names in hosts.items():
        if pool_id not in lost:
            changes += _without_hosts(request, pool_id, names)
    return (*changes, *_cut_off(request, links))


def _links_gone(request: PlanRequest, lost: Collection[str]) -> list[str]:
    """Links that are lost themselves, or with a place that holds one of their ends: nothing passes through it."""
    around, names = ancestors_of(request.cluster), set(lost)
    return [
        link.id
        for link in request.cluster.links
        if link.id in names or not names.isdisjoint((*around[link.from_place], *around[link.to_place]))
    ]


def _cut_off(request: PlanRequest, lost: Collection[str]) -> Iterator[Change]:
    """Buildings whose last link is lost leave their region: an uplink that nobody stated is not there to take over."""
    cluster, buildings = request.cluster, buildings_of(request.cluster)
    before, after = (
        {buildings[end] for link in cluster.links if link.id not in gone for end in (link.from_place, link.to_place)}
        for gone in ((), lost)
    )
    for place in cluster.places:
        if cluster.fabric != "one" and place.id in before - after and place.uplink == Uplink():
            yield Change(pointer=f"/cluster/places/{escaped(place.id)}/parent", value=None)


def _kinds(request: PlanRequest, name: str) -> list[str]:
    cluster = request.cluster
    found = {
        "a place": any(one.id == name for one in cluster.places),
        "a pool": any(one.id == name for one in cluster.pools),
        "a link": any(one.id == name for one in cluster.links),
        "a host": any(name in one.host_names for one in cluster.pools),
    }
    return [kind for kind, is_one in found.items() if is_one]


def _without(request: PlanRequest, kind: str, name: str) -> Change:
    if kind == "a place":
        return Change(pointer="/constraints/forbidden_places", op="add", value=name)
    return _all_unhealthy(request, name)


def _all_unhealthy(request: PlanRequest, pool_id: str) -> Change:
    """Every GPU of the pool out of service: the last pool of a cluster cannot be removed, only emptied."""
    pool = next(one for one in request.cluster.pools if one.id == pool_id)
    gone = pool.num_hosts * pool.gpus_per_host - pool.num_reserved_gpus
    return Change(pointer=f"/cluster/pools/{escaped(pool_id)}/num_unhealthy_gpus", value=gone)


def _without_hosts(request: PlanRequest, pool_id: str, names: Sequence[str]) -> list[Change]:
    """Fewer hosts. GPUs in use by others or out of service may be on those that are left, as many as fit there."""
    pool = next(one for one in request.cluster.pools if one.id == pool_id)
    left = [name for name in pool.host_names if name not in names]
    if not left:
        return [_all_unhealthy(request, pool_id)]
    num_gpus = len(left) * pool.gpus_per_host
    num_reserved = min(pool.num_reserved_gpus, num_gpus)
    num_unhealthy = min(pool.num_unhealthy_gpus, num_gpus - num_reserved)
    fields = {"host_names": left, "num_hosts": len(left), "num_reserved_gpus": num_reserved,
              "num_unhealthy_gpus": num_unhealthy}  # fmt: skip
    at = f"/cluster/pools/{escaped(pool_id)}"
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


def what_is_gone(request: PlanRequest, name: str) -> tuple[str, ...]:
    """The pools and links that go with a place, pool or link: what losses have in common has the same answer.

    A single link of a place led to nothing but it.
    """
    around, links = ancestors_of(request.cluster), _links_gone(request, [name])
    pools = tuple(pool.id for pool in request.cluster.pools if name == pool.id or name in around[pool.place])
    return pools if pools and len(links) < 2 else (*pools, *links)
