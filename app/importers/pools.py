"""Hosts become pools: those of one place that one rule of the overlay describes, in the order of the input.

A host follows the first rule that matches it. Those with GPUs out of service are the last of a pool, because a plan
takes its GPUs from the first hosts on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.importers.fabric import Fabric, Host, Part
from app.importers.overlay import HostRule, Overlay, matcher
from app.importers.source import Here, names_shown
from models.cluster import Pool

DEFAULT_GPUS = int(Pool.model_fields["gpus_per_host"].default)


@dataclass
class _Group:
    """Hosts that make one pool."""

    hosts: list[Host] = field(default_factory=list)
    num_unhealthy_gpus: int = 0


def pools_of(fabric: Fabric, overlay: Overlay, place_of_host: Mapping[str, str]) -> list[Part]:
    """The pools as documents; every host in one of them, no rule without a host."""
    groups: dict[tuple[str, int, int], _Group] = {}
    rules = [
        (matcher(overlay.document, f"/hosts/{index}/match", rule.match), rule)
        for index, rule in enumerate(overlay.form.hosts)
    ]
    for host in fabric.hosts:
        index = next((number for number, (matches, _) in enumerate(rules) if matches(host.name)), None)
        if index is None:
            remedy = 'Add a rule that matches it; match: ["*"] at the end takes the rest.'
            raise overlay.refused("/hosts", f"no rule says which GPUs {host.name!r} has ({host.where})",
                                  code="missing-field", allowed="rules with match, gpu, gpus_per_host, nic_bytes_per_s",
                                  remedy=remedy)  # fmt: skip
        num_gpus = _gpus_per_host(host, rules[index][1], overlay, index)
        group = groups.setdefault((place_of_host[host.name], index, num_gpus), _Group())
        group.hosts.append(host)
        group.num_unhealthy_gpus += host.num_unhealthy_gpus
    idle = sorted(set(range(len(rules))) - {index for _, index, _ in groups})
    if idle:
        remedy = "Correct the pattern, move it before the rule that takes its hosts, or remove it."
        raise overlay.refused(f"/hosts/{idle[0]}", "the rule takes no host", code="not-an-option",
                              allowed=names_shown(host.name for host in fabric.hosts), remedy=remedy)  # fmt: skip
    _check_counts(groups, overlay)
    names: dict[str, int] = {}
    return [_pool(key, group, overlay, names) for key, group in groups.items()]


def _gpus_per_host(host: Host, rule: HostRule, overlay: Overlay, index: int) -> int:
    is_stated = "gpus_per_host" in (rule.model_extra or {})
    stated = overlay.host_pools[index].gpus_per_host if is_stated else DEFAULT_GPUS
    if host.num_gpus is None:
        return stated
    if is_stated and stated != host.num_gpus:
        raise overlay.refused(f"/hosts/{index}/gpus_per_host",
                              f"is {stated}, but {host.name!r} has {host.num_gpus} ({host.where})",
                              code="contradiction", allowed=str(host.num_gpus),
                              remedy="Correct the number, or leave it to the input.")  # fmt: skip
    return host.num_gpus


def _pool(key: tuple[str, int, int], group: _Group, overlay: Overlay, names: dict[str, int]) -> Part:
    place, index, num_gpus = key
    pool = overlay.host_pools[index].model_dump()
    names[place] = names.get(place, 0) + 1
    if pool["num_unhealthy_gpus"] and group.num_unhealthy_gpus:
        raise overlay.refused(f"/hosts/{index}/num_unhealthy_gpus",
                              f"the input says {group.num_unhealthy_gpus} already", code="contradiction",
                              allowed="one source", remedy="Remove the field.")  # fmt: skip
    hosts = sorted(group.hosts, key=lambda host: host.num_unhealthy_gpus)
    fields = {
        **pool,
        "id": f"{place[:100]}-hosts" + ("" if names[place] == 1 else f"-{names[place]}"),
        "place": place,
        "num_hosts": len(group.hosts),
        "gpus_per_host": num_gpus,
        "num_unhealthy_gpus": pool["num_unhealthy_gpus"] + group.num_unhealthy_gpus,
        "host_names": tuple(host.name for host in hosts),
    }
    return Part(fields, Here(overlay.document, f"/hosts/{index}"))


def _check_counts(groups: Iterable[tuple[str, int, int]], overlay: Overlay) -> None:
    """A number of GPUs belongs to one pool: a rule that makes several would repeat it."""
    num_pools = Counter(index for _, index, _ in groups)
    for index, rule in enumerate(overlay.form.hosts):
        for name in ("num_reserved_gpus", "num_unhealthy_gpus"):
            if (rule.model_extra or {}).get(name) and num_pools[index] > 1:
                raise overlay.refused(f"/hosts/{index}/{name}",
                                      f"the rule makes {num_pools[index]} pools, and each would have this number",
                                      code="contradiction", allowed="a rule for the hosts of one place",
                                      remedy="Write a rule of its own for the hosts that it holds for.")  # fmt: skip
