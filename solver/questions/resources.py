"""What a planner could buy more of, or insist on less: links, uplinks, hosts, network cards, memory, stated limits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor

from models.cluster import Link, Place, Pool
from models.plan import Plan
from models.pointers import escaped
from models.question_parts import Change
from models.request import PlanRequest
from models.worth import ResourceKind
from solver.network.topology import UPLINK_PREFIX
from solver.questions.wishes import GBIT, GIB, Group, multiplied, put, wider, wider_uplink, wishes_of, with_more_hosts

ALL: dict[ResourceKind, str] = {
    "link": "all links",
    "uplink": "all uplinks",
    "hosts": "hosts of all pools",
    "network_cards": "network cards of all pools",
    "memory": "memory of all GPUs",
    "limit": "all limits",
}
NOT_LIMITS = ("/objective", "/workload")  # wishes that say what is wanted, not how much of it may be spent


@dataclass(frozen=True)
class Resource:
    """Something of which a request has so much; `larger` increases it by a fraction, where it is a number.

    A limit can be `given_up`. `links` are names under which a plan states loads. `together`: all of its kind.
    """

    kind: ResourceKind
    name: str
    there: str
    larger: Callable[[float], tuple[Change, ...]] | None
    links: tuple[str, ...] = ()
    given_up: tuple[Change, ...] = ()
    together: bool = False

    def saved_s(self, plan: Plan, fraction: float) -> float | None:
        """Seconds that a fraction more saves while the plan remains as it is, by its dual prices; None without any.

        A flow of B bytes with a price of p seconds per byte takes p B; on a link 1 + f times as wide, p B / (1 + f).
        What other work hides takes nothing, so no more is saved than transfers of the plan are exposed.
        """
        if not self.links:
            return None
        spent_s = sum(
            flow.price_s_per_gb * flow.bytes_per_iteration / 1e9
            for load in plan.link_loads
            if load.link in self.links
            for flow in load.flows
        )
        return min(spent_s * fraction / (1.0 + fraction), plan.time.pipeline_s + plan.time.data_parallel_s)


def resources_of(request: PlanRequest, kinds: Sequence[str]) -> tuple[Resource, ...]:
    """Everything of these kinds that a request has a limited amount of, in the order of its fields.

    Where there are several of a kind, all of them together come first.
    """
    found: list[Resource] = []
    if "links" in kinds:
        found += [_link(link) for link in request.cluster.links]
        found += [_uplink(place) for place in request.cluster.places if place.uplink.oversubscription > 1.0]
    if "pools" in kinds:
        found += [_hosts(pool) for pool in request.cluster.pools]
        found += [_cards(pool) for pool in request.cluster.pools]
        found += _memory(request.cluster.pools)
    if "limits" in kinds:
        found += [_limit(group) for group in wishes_of(request) if not group.pointer.startswith(NOT_LIMITS)]
    members: dict[ResourceKind, list[Resource]] = {}
    for one in found:
        members.setdefault(one.kind, []).append(one)
    return tuple(
        resource for kind, own in members.items() for resource in ([_all(kind, own)] if len(own) > 1 else []) + own
    )


def _all(kind: ResourceKind, members: Sequence[Resource]) -> Resource:
    return Resource(kind, ALL[kind], f"{len(members)} of them", None if kind == "limit" else partial(_each, members),
                    links=tuple(link for one in members for link in one.links),
                    given_up=tuple(change for one in members for change in one.given_up), together=True)  # fmt: skip


def _each(members: Sequence[Resource], fraction: float) -> tuple[Change, ...]:
    """Every one of these larger by a fraction."""
    return tuple(change for one in members if one.larger is not None for change in one.larger(fraction))


def _link(link: Link) -> Resource:
    there = f"{link.capacity_bytes_per_s / GBIT:,.4g} Gb/s {link.from_place} to {link.to_place}"
    return Resource("link", f"link {link.id}", there, lambda more: wider(link, 1.0 + more), links=(link.id,))


def _uplink(place: Place) -> Resource:
    over = place.uplink.oversubscription
    return Resource("uplink", f"uplink of {place.id}", f"{over:g} to 1", lambda more: wider_uplink(place, 1.0 + more),
                    links=(UPLINK_PREFIX + place.id,))  # fmt: skip


def _hosts(pool: Pool) -> Resource:
    there = f"{pool.num_hosts:,} hosts of {pool.gpus_per_host} {pool.gpu.name}"
    return Resource("hosts", f"hosts of {pool.id}", there, lambda more: with_more_hosts(pool, 1.0 + more))


def _cards(pool: Pool) -> Resource:
    there = f"{pool.nic_bytes_per_s_per_gpu / GBIT:,.4g} Gb/s per GPU"
    pointer = f"/cluster/pools/{escaped(pool.id)}/nic_bytes_per_s"
    return Resource("network_cards", f"network cards of {pool.id}", there, partial(_times_more, [pointer]))


def _memory(pools: Sequence[Pool]) -> Iterator[Resource]:
    for name in dict.fromkeys(pool.gpu.name for pool in pools):
        alike = [pool for pool in pools if pool.gpu.name == name]
        pointers = [f"/cluster/pools/{escaped(pool.id)}/gpu/memory_bytes" for pool in alike]
        there = f"{alike[0].gpu.memory_bytes / GIB:.1f} GiB per GPU"
        yield Resource("memory", f"memory of {name}", there, partial(_times_more, pointers))


def _times_more(pointers: Sequence[str], fraction: float) -> tuple[Change, ...]:
    """Each of these numbers larger by a fraction."""
    return tuple(multiplied(pointer, 1.0 + fraction) for pointer in pointers)


def _limit(group: Group) -> Resource:
    """A wish, looser by a fraction where it is a number."""
    name, stated = group.pointer.rpartition("/")[2], group.stated
    steps: dict[str, Callable[[float], tuple[Change, ...]]] = {
        "max_gpus": partial(_scaled, group.pointer, stated, whole=True),
        "max_cross_building_bytes_per_iteration": partial(_scaled, group.pointer, stated),
        "memory_headroom_fraction": lambda fraction: (put(group.pointer, float(stated) * max(1.0 - fraction, 0.0)),),
    }
    return Resource("limit", group.name, stated, steps.get(name), given_up=group.changes)


def _scaled(pointer: str, stated: str, fraction: float, *, whole: bool = False) -> tuple[Change, ...]:
    value = float(stated) * (1.0 + fraction)
    return (put(pointer, max(floor(value), int(stated) + 1) if whole else value),)
