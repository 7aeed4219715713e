"""A fabric and an overlay become a cluster: places from levels, pools from hosts, links by pair or by level.

What the result still contradicts, the cluster says itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from app.faults import Fault
from app.importers.fabric import Fabric, Part, link_name
from app.importers.overlay import Overlay
from app.importers.places import Placed, PlaceTree
from app.importers.pools import pools_of
from app.importers.source import Here, names_shown, refused, validated
from models.cluster import Cluster

MAX_PAIRS = 20_000


def assemble(fabric: Fabric, overlay: Overlay) -> Cluster:
    """The cluster that a fabric is with what the overlay adds."""
    tree = PlaceTree(fabric, overlay)
    place_of_host = {host.name: tree.place_of(host) for host in fabric.hosts}
    tree.check_used()
    pools = [*pools_of(fabric, overlay, place_of_host), *_stated_pools(overlay)]
    if not pools:
        raise overlay.refused("", f"neither {fabric.name!r} nor the overlay has hosts", code="missing-field",
                              allowed="hosts, or pools", remedy="State `pools` in the overlay.")  # fmt: skip
    rates = _rates_below(tree.by_id, [pool.fields for pool in pools])
    parts = {
        "places": [_place_part(one, rates[one.id], overlay) for one in tree.by_id.values()],
        "pools": pools,
        "links": list(_links(fabric, overlay, tree.by_id)),
    }
    _check_both_ways(parts["links"])
    document = {
        "name": overlay.form.name or fabric.name,
        "source": overlay.form.source,
        **{kind: [dict(part.fields) for part in listed] for kind, listed in parts.items()},
    }
    return validated(Cluster, document, lambda fault: _place(fault, parts, overlay))


def _place(fault: Fault, parts: Mapping[str, Sequence[Part]], overlay: Overlay) -> object:
    """The line that the part came from which a fault of the cluster points to."""
    _, kind, index, *_ = *fault.pointer.split("/"), "", ""
    if kind in parts and index.isdigit():
        return parts[kind][int(index)].where
    return f"the cluster made with {overlay.document.name}, {fault.pointer or 'as a whole'}"


def _stated_pools(overlay: Overlay) -> Iterator[Part]:
    for index, pool in enumerate(overlay.form.pools):
        yield Part(pool.model_dump(), Here(overlay.document, f"/pools/{index}"))


def _rates_below(places: Mapping[str, Placed], pools: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """Rate of all network cards in each place (B/s)."""
    rates: defaultdict[str, float] = defaultdict(float)
    for pool in pools:
        rate = pool["num_hosts"] * pool["gpus_per_host"] * pool["nics_per_gpu"] * pool["nic_bytes_per_s"]
        here: str | None = pool["place"]
        for _ in range(8):  # deeper than any tree of places; the overlay may state a cycle, which the cluster refuses
            if here is None or here not in places:
                break
            rates[here] += rate
            here = places[here].parent
    return rates


def _place_part(placed: Placed, rate_below: float, overlay: Overlay) -> Part:
    uplink = placed.uplink.model_dump(exclude_unset=True)
    if placed.uplink_bytes_per_s is not None:
        if "oversubscription" in uplink:
            raise overlay.refused(placed.pointer, "oversubscription and uplink_bytes_per_s say the same twice",
                                  code="contradiction", allowed="one of them",
                                  remedy="Remove one of the two.")  # fmt: skip
        uplink["oversubscription"] = max(1.0, rate_below / placed.uplink_bytes_per_s)
    fields = {"id": placed.id, "level": placed.level, "parent": placed.parent, "uplink": uplink}
    return Part(fields, Here(overlay.document, placed.pointer))


def _links(fabric: Fabric, overlay: Overlay, places: Mapping[str, Placed]) -> Iterator[Part]:
    """Links of the input, then those by pair, then by level for pairs that have none yet."""
    joined = {frozenset((str(row.fields["from_place"]), str(row.fields["to_place"]))) for row in fabric.links}
    yield from fabric.links
    for index, rule in enumerate(overlay.form.links):
        here = Here(overlay.document, f"/links/{index}")
        if rule.between is not None:
            for number, end in enumerate(rule.between):
                if end not in places:
                    raise overlay.refused(f"/links/{index}/between/{number}", f"{end!r} is no place",
                                          code="not-an-option", allowed=names_shown(places),
                                          remedy="Name a place of the input or of the overlay.")  # fmt: skip
            joined.add(frozenset(rule.between))
            yield _link(rule.between, rule.model_extra or {}, here)
    for index, rule in enumerate(overlay.form.links):
        here = Here(overlay.document, f"/links/{index}")
        if rule.among is not None:
            ends = [one.id for one in places.values() if one.level == rule.among]
            if not 2 <= len(ends) <= 1 + (2 * MAX_PAIRS) ** 0.5:
                raise overlay.refused(f"/links/{index}/among",
                                      f"there are {len(ends)} places of the level {rule.among!r}", code="out-of-range",
                                      allowed=f"at least 2, and at most {MAX_PAIRS:,} pairs",
                                      remedy="Use `between`, or another level.")  # fmt: skip
            pairs = [pair for pair in combinations(ends, 2) if frozenset(pair) not in joined]
            joined.update(map(frozenset, pairs))
            yield from (_link(pair, rule.model_extra or {}, here) for pair in pairs)


def _check_both_ways(links: Sequence[Part]) -> None:
    """A link has both directions: two of one pair that state no id, one each way round, are one link told twice."""
    seen: dict[object, Part] = {}
    for part in links:
        ends = part.fields["from_place"], part.fields["to_place"]
        back = seen.get(link_name(*reversed(ends)))
        if part.fields["id"] == link_name(*ends) and back is not None and ends[0] != ends[1]:
            raise refused(part.where, f"{ends[0]!r} and {ends[1]!r} are joined from the other end at {back.where}",
                          code="contradiction", allowed="one link for both directions",
                          remedy="Leave one out, with reverse_capacity_bytes_per_s where the way back differs, or give "
                          "links side by side ids of their own.")  # fmt: skip
        seen[part.fields["id"]] = part


def _link(pair: tuple[str, str], fields: Mapping[str, Any], here: Here) -> Part:
    return Part({"id": link_name(*pair), **fields, "from_place": pair[0], "to_place": pair[1]}, here)
