"""The map of buildings: who sits where, and what flows between them by cause."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from app.exporters.report.figures import WIDTH, drawing, figure, folded, legend, paragraph, section, table
from app.exporters.report.formatting import NOT_STATED, count, fitted, number, percent, plural, ranges, size
from app.exporters.report.geography import (
    ROW,
    Connection,
    Flow,
    Node,
    Point,
    connections,
    height_of,
    in_rows,
    mapped,
    nodes,
    positions,
)
from app.exporters.report.markup import Child, Markup, joined, tag
from app.exporters.report.scene import Scene
from app.exporters.report.svg import line, rect, words

CARD = (172.0, 74.0)
NARROW = (146.0, 74.0)  # of rows: labels stand between the cards
CAUSES = {
    "pp": "pipeline",
    "dp": "data parallel",
    "ep": "expert parallel",
    "cp": "context parallel",
    "tp": "tensor parallel",
}
WIDEST = 9.0
APART = 9.0
PAIR_HEADS = ("#no.", "from", "to", "over", "carries per iteration", "#busiest link, mean", "#peak")
BUILDING_HEADS = ("building", "#GPUs in use", "#GPUs free for the job", "pipeline ranks")


def buildings_section(scene: Scene) -> Markup:
    """Map and tables."""
    found, joins = nodes(scene), connections(scene)
    drawn = mapped(found)
    flows = [flow for one in joins for flow in (one.there, one.back) if flow]
    causes = sorted({cause for flow in flows for cause, _ in flow.bytes_of_cause})
    keys = [(f"c-{cause}", CAUSES[cause]) for cause in causes] + [("used", "GPUs in use")]
    left_out = len(found) - len(drawn)
    rest = f" {left_out} buildings with no more GPUs in use are in the table only." if left_out else ""
    caption = (
        "Lines are as thick as what they carry, one for each direction; the label gives the number in the table and "
        f"the peak use of the busier direction. Thin dashed lines carry nothing.{rest}"
    )
    return section(
        "buildings",
        "Buildings and what flows between them",
        figure(building_map(drawn, joins), caption, legend(keys)),
        _pairs(joins, scene),
        table("GPUs by building", BUILDING_HEADS, (_building_row(one) for one in found if one.is_building)),
        _routes(scene),
    )


def building_map(drawn: Sequence[Node], joins: Sequence[Connection]) -> Markup:
    """The drawing."""
    height = height_of(drawn)
    middle = WIDTH / 2, height / 2
    places = positions(drawn, middle, (WIDTH / 2 - CARD[0] / 2 - 14, height / 2 - CARD[1] / 2 - 8))
    shown = [one for one in joins if one.first in places and one.second in places]
    widest = max([flow.total_bytes for one in shown for flow in (one.there, one.back) if flow] + [1.0])
    return drawing(
        "building-map",
        height=height,
        title="Map of buildings with the load of their links",
        description=f"{len(drawn)} places and {len(shown)} connections; the tables below hold every figure.",
        parts=(
            *(part for one in shown for part in _lines(one, places, widest)),
            *(part for one in drawn for part in _card(one, places[one.name], NARROW if in_rows(drawn) else CARD)),
            *(part for one in shown for part in _badge(one, drawn, places)),
        ),
    )


def _lines(one: Connection, places: Mapping[str, Point], widest: float) -> Iterator[Markup]:
    start, end = places[one.first], places[one.second]
    if one.there is None and one.back is None:
        yield line(*start, *end, "idle-link")
        return
    for flow, ends in ((one.there, (start, end)), (one.back, (end, start))):
        if flow is not None:
            yield from _stripes(flow, ends, widest)


def _stripes(flow: Flow, ends: tuple[Point, Point], widest: float) -> Iterator[Markup]:
    """One stripe per cause, to the right of the way there, with an arrow head on it."""
    (x1, y1), (x2, y2) = ends
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    across = -(y2 - y1) / length, (x2 - x1) / length
    aside = APART / 2
    for cause, amount in flow.bytes_of_cause:
        width = max(1.2, WIDEST * amount / widest)
        shift = aside + width / 2
        aside += width
        dx, dy = across[0] * shift, across[1] * shift
        yield tag("line", x1=x1 + dx, y1=y1 + dy, x2=x2 + dx, y2=y2 + dy, class_=f"flow c-{cause}", stroke_width=width)
    yield _arrow(ends, across, (APART / 2 + aside) / 2)


def _arrow(ends: tuple[Point, Point], across: Point, shift: float) -> Markup:
    """A small triangle at two thirds of the way."""
    (x1, y1), (x2, y2) = ends
    along = across[1], -across[0]
    x, y = x1 + 0.66 * (x2 - x1) + across[0] * shift, y1 + 0.66 * (y2 - y1) + across[1] * shift
    corners = [
        (x + 8 * along[0], y + 8 * along[1]),
        (x - 4 * along[0] + 6 * across[0], y - 4 * along[1] + 6 * across[1]),
        (x - 4 * along[0] - 6 * across[0], y - 4 * along[1] - 6 * across[1]),
    ]
    return tag("path", d="M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in corners) + "z", class_="arrow")


def _card(one: Node, at: Point, size: Point) -> Iterator[Markup]:
    width, height = size if one.is_building else (120.0, 26.0)
    x, y = at[0] - width / 2, at[1] - height / 2
    is_unused = one.is_building and not one.num_used_gpus
    yield rect(x, y, width, height, rx=6.0, class_="card unused" if is_unused else "card")
    if not one.is_building:
        yield words(at[0], at[1] + 4, fitted(one.name, width - 12, 12.0), "label", "middle")
        return
    yield words(x + 10, y + 19, fitted(one.name, width - 16, 14.0), "name")
    total = one.num_free_gpus if one.num_free_gpus is not None else one.num_used_gpus
    of = f" of {count(total)}" if one.num_free_gpus is not None else ""
    yield words(x + 10, y + 37, f"{count(one.num_used_gpus)}{of} GPUs", "label")
    yield rect(x + 10, y + 43, width - 20, 6, class_="idle")
    yield rect(x + 10, y + 43, (width - 20) * min(1.0, one.num_used_gpus / total) if total else 0.0, 6, class_="used")
    ranks = f"pipeline {'rank' if len(one.ranks) == 1 else 'ranks'} {ranges(one.ranks)}" if one.ranks else "unused"
    yield words(x + 10, y + 65, fitted(ranks, width - 16, 11.5), "tick")


def _badge(one: Connection, drawn: Sequence[Node], places: Mapping[str, Point]) -> Iterator[Markup]:
    flows = [flow for flow in (one.there, one.back) if flow]
    if not flows:
        return
    (x1, y1), (x2, y2) = places[one.first], places[one.second]
    share = 0.5 if one.number % 2 else 0.42  # diagonals that meet in the middle keep their labels apart
    if in_rows(drawn):
        share = _beside_a_building(one, drawn, places)
    x, y = x1 + share * (x2 - x1), y1 + share * (y2 - y1)
    peak = max(flow.busiest.peak_utilisation for flow in flows)
    text = f"{one.number}: {percent(peak)}"
    width = 7.0 * len(text) + 10
    yield rect(x - width / 2, y - 10, width, 20, rx=10.0, class_="badge hot" if peak >= 0.9 else "badge")
    yield words(x, y + 4, text, "label", "middle")


def _beside_a_building(one: Connection, drawn: Sequence[Node], places: Mapping[str, Point]) -> float:
    """Where a line leaves the gap around the card that it starts from, as a share of it; at most half way."""
    (x1, y1), (x2, y2) = places[one.first], places[one.second]
    gaps = [gap / length for gap, length in ((WIDTH / 8, abs(x2 - x1)), (ROW / 2, abs(y2 - y1))) if length]
    share = min([0.5, *gaps])
    starts_at_building = any(node.name == one.first and node.is_building for node in drawn)
    return share if starts_at_building else 1.0 - share


def _pairs(joins: Sequence[Connection], scene: Scene) -> Markup:
    rows = [row for one in joins for row in _pair_rows(one)]
    if not rows:
        unknown = "the ends of links are in the request, not in the plan"
        why = unknown if scene.request is None else "nothing crosses"
        return paragraph(f"No traffic between buildings to show: {why}.", class_="note")
    return table("Traffic between buildings", PAIR_HEADS, rows)


def _pair_rows(one: Connection) -> Iterator[list[Child]]:
    for flow, source, target in ((one.there, one.first, one.second), (one.back, one.second, one.first)):
        if flow is not None:
            sizes = joined(
                tag("span", number(amount, f"{CAUSES[cause]} {size(amount)}"), class_="part")
                for cause, amount in flow.bytes_of_cause
            )
            busiest = flow.busiest
            yield [str(one.number), source, target, ", ".join(one.links), sizes,
                   number(busiest.mean_utilisation, percent),
                   number(busiest.peak_utilisation, percent)]  # fmt: skip


def _building_row(one: Node) -> list[Child]:
    free = NOT_STATED if one.num_free_gpus is None else number(one.num_free_gpus, count)
    return [one.name, number(one.num_used_gpus, count), free, ranges(one.ranks) or "none"]


MAX_ROUTES = 100


def _routes(scene: Scene) -> Markup:
    found = scene.plan.placement.routes
    rows = [
        (route.id, number(route.num_replicas, count), _runs(scene.buildings_of_route[route.id]))
        for route in found[:MAX_ROUTES]
    ]
    note = f", the first {MAX_ROUTES} of {count(len(found))}" if len(found) > MAX_ROUTES else ""
    inside = table(f"Routes{note}", ("route", "#replicas", "pipeline ranks in each building"), rows)
    return folded(f"{plural(len(found), 'route')} of replicas", inside, printed=len(rows) <= 20)


def _runs(buildings: Sequence[str]) -> str:
    ranks: dict[str, list[int]] = {}
    for rank, building in enumerate(buildings):
        ranks.setdefault(building, []).append(rank)
    return "; ".join(f"{building}: {ranges(held)}" for building, held in ranks.items())
