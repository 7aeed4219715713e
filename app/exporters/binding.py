"""Binding: hosts given when a plan is exported, by pool, and the plan and its request with these hosts.

The hosts come as text: a Slurm hostlist, one host or hostlist a line, `pool=hostlist` lines, or the JSON or YAML of
`kubectl get nodes`. No decision of the plan changes; hosts that are missing, or that the plan does not need, are named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app.exporters.hosts import HOST_NAME, pools_of
from app.exporters.kubernetes import label_value
from app.exporters.kubernetes_nodes import POINTER, WHERE, Node, is_node_list, nodes_of
from app.faults import Fault, Refused, from_planner_error, refused
from app.hostlists import MAX_HOSTS, fold, unfold
from app.words import shortened
from models.cluster import Pool, places_around
from models.errors import PlannerError
from models.plan import Plan, RankRange
from models.request import PlanRequest

FORMS = "POOL=node[001-128] a line, host names, a Slurm hostlist, or the JSON of kubectl get nodes"
MOST_SHOWN = 80  # characters of a name that is none of ours
MOST_NAMED = 20  # hosts that a message names one by one; the others are counted


@dataclass(frozen=True)
class Bound:
    """A plan and its request with the hosts that were given, and the hosts that the plan leaves free, by pool."""

    plan: Plan
    request: PlanRequest
    spare: Mapping[str, tuple[str, ...]]


def bind(plan: Plan, request: PlanRequest | None, text: str) -> Bound:
    """The plan on the hosts that `text` names; refused where hosts are missing, unknown or named twice.

    A pool needs its hosts up to the last that holds a rank. More than that are spare, whatever the pool has in the
    request: the cluster may have grown, and the plan does not use them.
    """
    pools = pools_of(plan, request)
    assert request is not None  # pools_of has refused it
    given = _by_pool(text.strip(), pools, request)
    _check_names(given)
    needed = hosts_needed(plan, pools)
    faults = [_missing(pools[pool], number, given.get(pool, ())) for pool, number in needed.items()]
    found = [fault for fault in faults if fault is not None]
    if found:
        raise Refused(found)
    ranges = tuple(_with_hosts(one, pools[one.pool].gpus_per_host, given[one.pool]) for one in plan.placement.rank_map)
    placement = plan.placement.model_copy(update={"rank_map": ranges})
    spare = {pool: hosts[needed.get(pool, 0) :] for pool, hosts in given.items()}
    return Bound(plan.model_copy(update={"placement": placement}), _renamed(request, given), spare)


def hosts_needed(plan: Plan, pools: Mapping[str, Pool]) -> dict[str, int]:
    """Hosts of every pool up to the last that holds a rank."""
    needed: dict[str, int] = {}
    for one in plan.placement.rank_map:
        last = (one.first_gpu + one.num_ranks - 1) // pools[one.pool].gpus_per_host + 1
        needed[one.pool] = max(needed.get(one.pool, 0), last)
    return needed


def spare_notes(spare: Mapping[str, Sequence[str]]) -> list[str]:
    """A line for every pool with hosts that the plan does not need."""
    return [f"pool {pool}: {len(hosts)} hosts are not needed: {shown(hosts)}" for pool, hosts in spare.items() if hosts]


def shown(hosts: Sequence[str]) -> str:
    """Host names for a message: folded, and counted from the twenty-first on."""
    rest = len(hosts) - MOST_NAMED
    return fold(hosts[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _by_pool(text: str, pools: Mapping[str, Pool], request: PlanRequest) -> dict[str, tuple[str, ...]]:
    """The hosts of every pool that has some, in the order of its ranks."""
    if not text:
        raise _refused("missing-field", "no host is named", "Name the hosts of every pool.")
    if is_node_list(text):
        return _of_nodes(nodes_of(text), pools, request)
    given: dict[str, list[str]] = defaultdict(list)
    for pool, names in _lines(text, pools):
        given[pool].extend(names)
    loose = given.pop("", [])
    for pool, hosts in _sorted_out(tuple(loose), pools).items() if loose else ():
        given[pool].extend(hosts)
    return {pool: tuple(names) for pool, names in given.items()}


def _lines(text: str, pools: Mapping[str, Pool]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The pool, or nothing, and the hosts of every line."""
    if text.count("\n") > MAX_HOSTS:
        raise _refused("limit-exceeded", f"there are more than {MAX_HOSTS:,} lines", "Give fewer hosts.")
    num_hosts = 0
    for line in text.splitlines():
        entry = line.partition("#")[0].strip()
        pool, separator, hosts = entry.rpartition("=")
        if separator and pool.strip() not in pools:
            raise _refused("not-an-option", f"there is no pool {shortened(pool.strip(), MOST_SHOWN)!r}",
                           f"Name one of {', '.join(pools)}.")  # fmt: skip
        names = _unfolded(hosts)
        num_hosts += len(names)
        if num_hosts > MAX_HOSTS:
            raise _refused("limit-exceeded", f"the lines stand for {num_hosts:,} hosts or more, the limit is "
                           f"{MAX_HOSTS:,}", "Check the ranges in brackets, or give fewer hosts.")  # fmt: skip
        yield pool.strip(), names


def _unfolded(hostlist: str) -> tuple[str, ...]:
    try:
        return unfold(hostlist)
    except PlannerError as error:
        raise Refused((replace(from_planner_error(error), pointer=POINTER, where=WHERE, allowed=FORMS),)) from None


def _sorted_out(hosts: tuple[str, ...], pools: Mapping[str, Pool]) -> dict[str, tuple[str, ...]]:
    """Hosts without a pool: those of the only pool, or of the pools whose host names hold them, in the pool's order."""
    if len(pools) == 1:
        return {next(iter(pools)): hosts}
    owner = {name: pool.id for pool in pools.values() for name in pool.host_names}
    strange = [host for host in hosts if host not in owner]
    if strange:
        raise _refused("missing-field", f"the pool of {shown(strange)} is not known",
                       f"Write POOL=HOSTS, one pool a line, for {', '.join(pools)}.")  # fmt: skip
    order = {name: at for pool in pools.values() for at, name in enumerate(pool.host_names)}
    found: dict[str, list[str]] = defaultdict(list)
    for host in sorted(hosts, key=lambda one: order[one]):
        found[owner[host]].append(host)
    return {pool: tuple(names) for pool, names in found.items()}


def _of_nodes(nodes: Sequence[Node], pools: Mapping[str, Pool], request: PlanRequest) -> dict[str, tuple[str, ...]]:
    """Nodes of Kubernetes by the labels that name a pool or a place of it, the nearest place first."""
    meant: dict[str, dict[str, int]] = defaultdict(dict)  # by label: the pools that it may mean, and how near it is
    around = places_around(request.cluster.places)
    for pool in pools.values():
        for depth, label in enumerate([pool.id, *(one.id for one in around[pool.place])]):
            meant[label_value(label)].setdefault(pool.id, depth)
    found: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        owner = _pool_of(node, pools, meant)
        if owner is not None:
            found[owner].append(node.name)
    return {pool: tuple(names) for pool, names in found.items()}


def _pool_of(node: Node, pools: Mapping[str, Pool], meant: Mapping[str, Mapping[str, int]]) -> str | None:
    """The pool whose own name, or nearest labelled place, is a label of the node; none for other nodes."""
    at: dict[str, int] = {}
    for label in node.labels:
        for pool, depth in meant.get(label, {}).items():
            if node.num_gpus is None or node.num_gpus >= pools[pool].gpus_per_host:
                at[pool] = min(depth, at.get(pool, depth))
    least = min(at.values(), default=0)
    nearest = sorted(pool for pool, depth in at.items() if depth == least)
    if len(nearest) > 1:
        raise _refused("contradiction", f"node {node.name!r} may be in the pools {', '.join(nearest)}",
                       "Label the nodes of these pools with the pool's name, under any key.")  # fmt: skip
    return nearest[0] if nearest else None


def _check_names(given: Mapping[str, tuple[str, ...]]) -> None:
    seen: set[str] = set()
    for hosts in given.values():
        for host in hosts:
            if not HOST_NAME.fullmatch(host):
                raise _refused("bad-pattern", f"{host!r} cannot be a host name", "Correct the name.")
            if host in seen:
                raise _refused("contradiction", f"host {host!r} is named twice", "Name every host once.")
            seen.add(host)


def _missing(pool: Pool, needed: int, given: tuple[str, ...]) -> Fault | None:
    """What a pool lacks: by name where the request names its hosts, by position where it does not."""
    if len(given) >= needed:
        return None
    known = [name for name in pool.host_names[:needed] if name not in given]
    lacking = f"missing: {shown(known)}" if known else f"hosts {len(given) + 1} to {needed} of the pool have no name"
    what = f"pool {pool.id!r} needs {needed} hosts, {len(given)} were given; {lacking}"
    return Fault("missing-field", what, POINTER, f"at least {needed} hosts",
                 "Name more hosts of this pool, or plan again on those that there are.", where=WHERE)  # fmt: skip


def _with_hosts(one: RankRange, gpus_per_host: int, hosts: Sequence[str]) -> RankRange:
    first, last = one.first_gpu // gpus_per_host, (one.first_gpu + one.num_ranks - 1) // gpus_per_host
    return one.model_copy(update={"hosts": tuple(hosts[first : last + 1])})


def _renamed(request: PlanRequest, given: Mapping[str, tuple[str, ...]]) -> PlanRequest:
    """The request with the hosts that were given in its pools; a pool without any keeps its own."""
    pools = tuple(
        pool.model_copy(update={"host_names": given[pool.id]}) if pool.id in given else pool
        for pool in request.cluster.pools
    )
    return request.with_cluster(pools=pools)


def _refused(code: str, what: str, remedy: str) -> Refused:
    return refused(code, what, POINTER, FORMS, remedy, where=WHERE)
