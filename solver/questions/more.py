"""Whether one request has nothing but more than another: then its best plan is as good at least.

Every plan of the smaller request is then one of the larger, where nothing of it takes longer. The law
`more_never_hurts` of tests/laws tries what is named here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from models.request import PlanRequest
from solver.network.topology import UPLINK_PREFIX, build_topology
from solver.questions.missing_links import are_missing

Direction = Literal["more", "less"] | None
HELPS = frozenset({
    "capacity_bytes_per_s", "reverse_capacity_bytes_per_s", "flow_bytes_per_s", "nic_bytes_per_s", "nics_per_gpu",
    "memory_bytes", "num_hosts", "max_gpus", "max_cross_building_bytes_per_iteration", "target_iteration_s",
    "pipeline_may_cross_buildings", "data_parallel_may_cross_buildings",
})  # fmt: skip
HURTS = frozenset({
    "latency_s", "loss_probability", "oversubscription", "num_failed_planes", "background_bytes_per_s",
    "reverse_background_bytes_per_s", "num_reserved_gpus", "num_unhealthy_gpus", "memory_headroom_fraction",
    "usd_per_gpu_hour", "usd_per_gb", "use_all_gpus",
})  # fmt: skip
NO_LIMIT = frozenset({"flow_bytes_per_s", "max_gpus", "max_cross_building_bytes_per_iteration", "target_iteration_s"})
DEMANDS = frozenset({"forbidden_places", "pins"})  # lists of what has to be obeyed
PARTS = frozenset({"places", "pools", "links"})  # what there is, by id
GPUS = (
    PARTS | DEMANDS | {"num_hosts", "num_reserved_gpus", "num_unhealthy_gpus", "max_gpus"}
)  # how many there are to use
SILENT = frozenset({"host_names", "source", "board_power_w", "switch_buffer_bytes", "definition"})  # of no plan's time
PRICES = frozenset({"usd_per_gpu_hour", "usd_per_gb"})  # which only the objective of cost looks at
ABSENT = object()
Path = tuple[str, ...]


@dataclass(frozen=True)
class StatedWorld:
    """A request as values to compare: what is left out stands as what it means, elements stand under their ids."""

    request: PlanRequest

    def direction_to(self, other: StatedWorld) -> Direction:
        """What the other request has of everything that differs: more, less, or something else beside.

        That each configuration of the smaller one is one of the larger is another matter: see `own_rows.py`.
        """
        if "time_at_confidence" in (self.request.objective.kind, other.request.objective.kind):
            return None  # what a time may turn out to be depends on the network cards and GPUs in a way of its own
        differences = list(self._differences_to(other))
        found = {_worth(path, one, two) for path, one, two in differences}
        if len(found) != 1:
            return None
        larger = other if found == {"more"} else self
        if are_missing(larger.request):
            return None  # uplinks at full bisection for free, which nobody stated, join no buildings
        other_gpus = any(GPUS.intersection(path[-2:]) for path, _, _ in differences)
        return None if other_gpus and larger.request.constraints.use_all_gpus else found.pop()

    def is_equal_to(self, other: StatedWorld) -> bool:
        """Whether two requests differ in nothing that a plan depends on."""
        return next(self._differences_to(other), None) is None

    def _differences_to(self, other: StatedWorld) -> Iterator[tuple[Path, Any, Any]]:
        for path, one, two in _differences(self.stated, other.stated):
            alone = path[-1] == "parent" and self.stands_alone(path[-2]) and other.stands_alone(path[-2])
            if not alone:
                yield path, one, two

    def stands_alone(self, place: str) -> bool:
        """Whether it does not matter what encloses a building: no uplink leads there, and nothing is said of places."""
        known, constraints = self.stated["cluster"]["places"].get(place), self.request.constraints
        tells = constraints.pins or any(place not in self._buildings for place in constraints.forbidden_places)
        return known is not None and place in self._buildings and known["uplink"] is None and not tells

    @cached_property
    def _buildings(self) -> set[str]:
        return {place.id for place in self.request.cluster.places if place.level == "building"}

    @cached_property
    def stated(self) -> dict[str, Any]:
        """Everything that the request states, as plain values."""
        return _stated(self.request)


def direction(base: PlanRequest, other: PlanRequest) -> Direction:
    """What the other request has of everything that differs from the base."""
    return StatedWorld(base).direction_to(StatedWorld(other))


def _stated(request: PlanRequest) -> dict[str, Any]:
    document = request.model_dump(mode="json", exclude={"options"})
    cluster = document["cluster"]
    delay_s = {edge.id: edge.latency_s for edge in build_topology(request.cluster).edges}
    for link in cluster["links"]:
        link |= {"latency_s": delay_s[link["id"]], "distance_km": None, "usd_per_gb": link["usd_per_gb"] or 0.0}
        for name in ("capacity_bytes_per_s", "background_bytes_per_s"):
            link[f"reverse_{name}"] = link[name] if link[f"reverse_{name}"] is None else link[f"reverse_{name}"]
    for place in cluster["places"]:
        latency_s = delay_s.get(UPLINK_PREFIX + place["id"])
        place["uplink"] = None if latency_s is None else {**place["uplink"], "latency_s": latency_s}
    for name in ("places", "pools", "links"):
        cluster[name] = {one["id"]: one for one in cluster[name]}
    for name in DEMANDS:
        document["constraints"][name] = frozenset(json.dumps(one) for one in document["constraints"][name])
    if request.objective.kind == "iteration_time":
        del document["objective"]["target_iteration_s"]  # of no meaning there
    del cluster["name"]
    _leave_out(document, SILENT if request.objective.kind == "cost_per_token" else SILENT | PRICES)
    return document


def _leave_out(value: Any, names: Collection[str]) -> None:
    if isinstance(value, dict):
        for name in names & value.keys():
            del value[name]
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _leave_out(one, names)


def _worth(path: Path, one: Any, two: Any) -> Direction:
    """Of one difference. No limit at all is more than any, and so is what there was not."""
    name, holder = path[-1], path[-2]
    if holder in PARTS or name == "uplink":
        return "more" if one in (ABSENT, None) else "less" if two in (ABSENT, None) else None
    if name in DEMANDS or holder == "allowed":
        return _of_sets(two, one) if name in DEMANDS else _of_sets(one, two)
    if name in NO_LIMIT and (one is None or two is None):
        return "more" if two is None else "less"
    if name not in HELPS | HURTS or not isinstance(one, int | float) or not isinstance(two, int | float):
        return None
    return "more" if (two > one) == (name in HELPS) else "less"


def _of_sets(one: Any, two: Any) -> Direction:
    """More where the second set has all of the first, less where it is the other way round; null is everything."""
    if one is None or two is None:
        return "less" if one is None else "more"
    return "more" if set(one) < set(two) else "less" if set(two) < set(one) else None


def _differences(one: Any, two: Any, path: Path = ("", "")) -> Iterator[tuple[Path, Any, Any]]:
    """Every place where two documents differ, down to single values."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in {**one, **two}:
            yield from _differences(one.get(key, ABSENT), two.get(key, ABSENT), (*path, key))
    elif one != two:
        yield path, one, two
