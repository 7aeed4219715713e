"""Buildings as nodes and what flows between them, both directions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.exporters.report.scene import Scene
from models.transport import LinkLoad

MAX_NODES = 24
ROUND = 8  # so many stand on an ellipse, more in rows
ABREAST = 4
ROW = 120.0
Point = tuple[float, float]


@dataclass(frozen=True)
class Node:
    """A building, or the region through which its uplink leads."""

    name: str
    is_building: bool
    num_used_gpus: int
    num_free_gpus: int | None
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Flow:
    """Everything from one node to another, over however many links."""

    bytes_of_cause: tuple[tuple[str, float], ...]
    busiest: LinkLoad

    @property
    def total_bytes(self) -> float:
        """All causes together."""
        return sum(size for _, size in self.bytes_of_cause)


@dataclass(frozen=True)
class Connection:
    """Two nodes that are joined, and what flows there and back."""

    number: int
    first: str
    second: str
    links: tuple[str, ...]
    there: Flow | None
    back: Flow | None


def nodes(scene: Scene) -> list[Node]:
    """Buildings of the cluster or of the plan, then regions that carry traffic; the fullest buildings first if many."""
    names = list(dict.fromkeys([*scene.free_gpus_of_building, *sorted(scene.used_gpus_of_building)]))
    buildings = [
        Node(
            name,
            is_building=True,
            num_used_gpus=scene.used_gpus_of_building.get(name, 0),
            num_free_gpus=scene.free_gpus_of_building.get(name),
            ranks=tuple(sorted(scene.ranks_of_building.get(name, ()))),
        )
        for name in names
    ]
    passed = dict.fromkeys(node for pair in _flows(scene) for node in pair if node not in names)
    return buildings + [Node(name, False, 0, None, ()) for name in passed]


def mapped(found: Sequence[Node]) -> list[Node]:
    """The nodes that are drawn: regions, and the buildings with most GPUs in use, in their order."""
    buildings = [one for one in found if one.is_building]
    chosen = {one.name for one in sorted(buildings, key=lambda one: -one.num_used_gpus)[:MAX_NODES]}
    return [one for one in found if not one.is_building or one.name in chosen]


def in_rows(drawn: Sequence[Node]) -> bool:
    """Whether there are too many for an ellipse.

    >>> in_rows([Node("a", True, 0, None, ())] * 9)
    True
    """
    return len(drawn) > ROUND


def _flows(scene: Scene) -> dict[tuple[str, str], list[LinkLoad]]:
    """Loads by the nodes they join, in the direction of the traffic; what stays inside a node is left out."""
    found: dict[tuple[str, str], list[LinkLoad]] = defaultdict(list)
    for load in scene.plan.link_loads:
        ends = scene.ends_of_link.get(load.link)
        if ends is None:
            continue
        source, target = (scene.building(end) for end in (ends[::-1] if load.reverse else ends))
        if source != target:
            found[source, target].append(load)
    return found


def connections(scene: Scene) -> list[Connection]:
    """Joined nodes, those with traffic first, then links of the cluster that stay idle."""
    flows = _flows(scene)
    pairs = list(dict.fromkeys((min(pair), max(pair)) for pair in flows))
    pairs += [pair for pair in _idle_pairs(scene) if pair not in pairs]
    return [_connection(number, pair, flows) for number, pair in enumerate(pairs, 1)]


def _connection(number: int, pair: tuple[str, str], flows: Mapping[tuple[str, str], Sequence[LinkLoad]]) -> Connection:
    there, back = flows.get(pair, ()), flows.get(pair[::-1], ())
    links = tuple(dict.fromkeys(load.link for load in (*there, *back)))
    return Connection(number, *pair, links, _flow(there), _flow(back))


def _idle_pairs(scene: Scene) -> list[tuple[str, str]]:
    if scene.request is None:
        return []
    ends = (sorted((scene.building(one.from_place), scene.building(one.to_place)))
            for one in scene.request.cluster.links)  # fmt: skip
    return list(dict.fromkeys((first, second) for first, second in ends if first != second))


def _flow(loads: Sequence[LinkLoad]) -> Flow | None:
    if not loads:
        return None
    sizes: dict[str, float] = defaultdict(float)
    for load in loads:
        for flow in load.flows:
            sizes[flow.cause] += flow.bytes_per_iteration
    return Flow(tuple(sorted(sizes.items())), max(loads, key=lambda one: one.peak_utilisation))


def positions(drawn: Sequence[Node], middle: Point, radii: Point) -> dict[str, Point]:
    """Buildings on an ellipse, two side by side; a single region in the middle. Many stand in rows.

    >>> a, b = (Node(name, True, 0, None, ()) for name in "ab")
    >>> positions([a, b], (10.0, 5.0), (8.0, 4.0))
    {'a': (2.0, 5.0), 'b': (18.0, 5.0)}
    """
    if in_rows(drawn):
        return _rows(drawn, 2 * middle[0])
    regions = [one.name for one in drawn if not one.is_building]
    central = regions[0] if len(regions) == 1 and len(drawn) > 2 else None
    outer = [one.name for one in drawn if one.name != central]
    if len(outer) == 1 and central is None:
        return {outer[0]: middle}
    start = math.pi if len(outer) == 2 else math.pi / 2
    found = {} if central is None else {central: middle}
    for index, name in enumerate(outer):
        angle = start - 2 * math.pi * index / len(outer)
        x, y = middle[0] + radii[0] * math.cos(angle), middle[1] - radii[1] * math.sin(angle)
        found[name] = round(x, 3), round(y, 3)
    return found


def _rows(drawn: Sequence[Node], width: float) -> dict[str, Point]:
    """Along the pipeline there and back row by row, so that neighbours are beside or below each other; a single region
    stands between the rows."""
    regions = [one.name for one in drawn if not one.is_building]
    central = regions[0] if len(regions) == 1 else None
    outer = sorted((one for one in drawn if one.name != central), key=lambda one: min(one.ranks, default=math.inf))
    num_rows = -(-len(outer) // ABREAST)
    found = {}
    for index, one in enumerate(outer):
        row, place = divmod(index, ABREAST)
        column = ABREAST - 1 - place if row % 2 else place
        below = 0.5 if central is not None and row >= num_rows / 2 else 0.0
        found[one.name] = width * (column + 0.5) / ABREAST, ROW * (row + 0.5 + below)
    if central is not None:
        found[central] = width / 2, ROW * ((num_rows + 1) // 2 + 0.25)
    return found


def height_of(drawn: Sequence[Node]) -> float:
    """How high the map is.

    >>> height_of([Node("a", True, 0, None, ())] * 24)
    720.0
    """
    if in_rows(drawn):
        regions = sum(not one.is_building for one in drawn)
        num_rows = -(-(len(drawn) - (regions == 1)) // ABREAST)
        return ROW * (num_rows + (0.5 if regions == 1 else 0.0))
    return 150.0 if len(drawn) <= 2 else 330.0 if len(drawn) <= 6 else 480.0
