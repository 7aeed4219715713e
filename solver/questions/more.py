"""Whether one request has nothing but more than another: then its best plan is as good at least.

The law `more_never_hurts` of tests/laws tries every one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from models.request import PlanRequest

Direction = Literal["more", "less"] | None
HELPS = frozenset(
    {"capacity_bytes_per_s", "reverse_capacity_bytes_per_s", "nic_bytes_per_s", "memory_bytes", "num_hosts", "max_gpus"}
)
HURTS = frozenset({"latency_s", "distance_km", "loss_probability", "oversubscription", "memory_headroom_fraction"})


def direction(base: PlanRequest, other: PlanRequest) -> Direction:
    """What the other request has of everything that differs: more, less, or something else beside."""
    if base.constraints.use_all_gpus or other.constraints.use_all_gpus:
        return None
    found = {
        _worth(path, one, two)
        for path, one, two in _differences(base.model_dump(exclude={"options"}), other.model_dump(exclude={"options"}))
        if path[-1] != "host_names"  # which change nothing
    }
    return found.pop() if len(found) == 1 else None


def _worth(path: tuple[str, ...], one: Any, two: Any) -> Direction:
    """Of one difference. No limit at all is more than any."""
    name = path[-1]
    if name == "max_gpus" and (one is None or two is None):
        return "more" if two is None else "less"
    if name not in HELPS | HURTS or not isinstance(one, int | float) or not isinstance(two, int | float):
        return None
    return "more" if (two > one) == (name in HELPS) else "less"


def _differences(one: Any, two: Any, path: tuple[str, ...] = ("",)) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every place where two documents differ, down to single values."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        for key in one:
            yield from _differences(one[key], two[key], (*path, key))
    elif isinstance(one, list | tuple) and isinstance(two, list | tuple) and len(one) == len(two):
        for first, second in zip(one, two, strict=True):
            yield from _differences(first, second, path)
    elif one != two:
        yield path, one, two
