"""The section on the pipeline: every timing drawn, what is cut told, the same as tables, and the data to zoom in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from app.exporters.report.figures import figure, folded, legend, paragraph, section, table
from app.exporters.report.formatting import count, number, percent, plural, ranges, size
from app.exporters.report.gantt import panel
from app.exporters.report.markup import Markup, joined, tag
from app.exporters.report.scene import Scene
from app.exporters.report.timings import Timing, timings
from app.exporters.report.viewer import MAX_OPERATIONS, viewer_data
from app.exporters.report.windows import Cut, cuts, windows
from app.words import seconds, shortened

MAX_DRAWN = 4
MAX_ROWS = 64
COLOURS = (
    ("op-F", "F: forward"),
    ("op-B", "B: gradient of the input"),
    ("op-W", "W: gradient of the weights"),
    ("op-BW", "BW: both gradients at once"),
    ("idle", "idle (bubble)"),
    ("message", "transfer between buildings"),
    ("delay", "its delay on the way"),
    ("gradient", "gradient exchange"),
    ("update", "optimizer"),
)


def pipeline_section(scene: Scene) -> Markup:
    """The pipeline over time."""
    found = timings(scene)
    drawn = [_timing(index, one, scene) for index, one in enumerate(found[:MAX_DRAWN])]
    first, others = drawn[:1], drawn[1:]
    labels = [_routes_of(one) for one in found]
    return section(
        "pipeline",
        "The pipeline over time",
        paragraph(_introduction(scene, found)),
        _viewer(found, labels),
        *first,
        *(folded(f"Timing of {labels[index]}", part) for index, part in enumerate(others, 1)),
        _left_out(labels),
    )


def _introduction(scene: Scene, found: Sequence[Timing]) -> str:
    num_routes = len(scene.plan.timelines)
    if num_routes == 1:
        return "One route: all replicas run the same pipeline."
    if len(found) == 1:
        return f"{count(num_routes)} routes, and all of them run the same."
    return f"{count(num_routes)} routes run {len(found)} different timings; the slowest comes first."


def _routes_of(timing: Timing) -> str:
    names = ", ".join(shortened(name, 30) for name in timing.routes[:4])
    rest = len(timing.routes) - 4
    return f"route{'s' if len(timing.routes) > 1 else ''} {names}" + (f" and {rest} more" if rest > 0 else "")


def _left_out(labels: Sequence[str]) -> Markup:
    rest = labels[MAX_DRAWN:]
    if not rest:
        return Markup("")
    timings_left = plural(len(rest), "faster timing")
    return paragraph(f"Not drawn: {timings_left}, those of {'; '.join(rest[:12])}.", class_="note")


def _timing(index: int, timing: Timing, scene: Scene) -> Markup:
    end_s = max(timing.end_s, scene.plan.metrics.iteration_s)
    schedule = timing.timeline.schedule
    heading = tag("h3", f"Timing of {_routes_of(timing)}")
    made = paragraph(
        f"Order from {schedule.generator}; makespan ",
        number(schedule.makespan_s, seconds),
        " with gradient exchanges as its scheduler counts them, more or less than they add to the iteration; no order "
        "of this pipeline is faster than ",
        number(schedule.lower_bound_s, seconds),
        f" (gap {percent(schedule.gap)}). Numbers inside the bars are micro-batches.",
    )
    pictures = joined(_panels(index, timing, end_s, scene))
    tables = folded("The pipeline as numbers", _ranks_table(timing), _lanes_table(timing))
    return joined((heading, made, legend(_colours(timing)), pictures, tables))


def _colours(timing: Timing) -> list[tuple[str, str]]:
    """Those of what there is: kinds of operations, and messages."""
    there = {f"op-{bar.operation.kind}" for row in timing.rows for bar in row}
    absent = {name for name, _ in COLOURS if name.startswith("op-")} - there
    absent |= set() if timing.lanes else {"message", "delay"}
    return [(name, words) for name, words in COLOURS if name not in absent]


def _panels(index: int, timing: Timing, end_s: float, scene: Scene) -> Iterator[Markup]:
    shown = windows(timing, end_s)
    for position, (window, cut) in enumerate(zip(shown, cuts(timing, shown, end_s), strict=True)):
        yield tag("h4", f"{window.name}: {seconds(window.start_s)} to {seconds(window.end_s)}")
        yield figure(panel(f"gantt-{index}-{position}", timing, window, scene))
        if cut is not None:
            yield _cut_note(cut)


def _cut_note(cut: Cut) -> Markup:
    what = (
        f"{count(cut.num_operations)} operations; the ranks work {percent(cut.busy_share)} of that time"
        if cut.num_operations
        else "the pipeline has ended; gradient exchange and optimizer go on"
    )
    return paragraph(f"Cut here: {seconds(cut.start_s)} to {seconds(cut.end_s)}, {what}.", class_="cut")


def _ranks_table(timing: Timing) -> Markup:
    heads = ("#rank", "building", "#first start", "#last end", "#busy", "#idle", "#peak memory", "#budget")
    rows = [_rank_row(timing, rank) for rank in range(min(len(timing.rows), MAX_ROWS))]
    more = len(timing.rows) - len(rows)
    note = f" (the first {MAX_ROWS}; {more} more in the plan)" if more else ""
    return table(f"Ranks of {_routes_of(timing)}{note}", heads, rows)


def _rank_row(timing: Timing, rank: int) -> list[str | Markup]:
    row = timing.rows[rank]
    start_s, end_s = row[0].start_s, row[-1].end_s
    busy_s = timing.busy_s(rank, start_s, end_s)
    budget_bytes = timing.timeline.problem.ranks[rank].activation_budget_bytes
    peak_bytes = timing.timeline.schedule.ranks[rank].peak_memory_bytes
    return [
        str(rank),
        timing.buildings[rank] or "that of the route",
        number(start_s, seconds),
        number(end_s, seconds),
        number(busy_s, seconds),
        number(end_s - start_s - busy_s, seconds),
        number(peak_bytes, size),
        "none" if budget_bytes is None else number(budget_bytes, size),
    ]


def _lanes_table(timing: Timing) -> Markup:
    if not timing.lanes:
        return paragraph("No pipeline transfer of this timing leaves its building.", class_="note")
    heads = ("from", "to", "stages", "#messages", "#time on the link", "#longest delay")
    rows = [
        (
            lane.source,
            lane.target,
            ranges(bar.operation.stage for bar in lane.bars),
            count(len(lane.bars)),
            seconds(sum(bar.end_s - bar.start_s for bar in lane.bars)),
            seconds(max(bar.latency_s for bar in lane.bars)),
        )
        for lane in timing.lanes
    ]
    return table("Pipeline transfers between buildings", heads, rows)


def _viewer(found: Sequence[Timing], labels: Sequence[str]) -> Markup:
    """What the script needs to zoom; nothing is shown without it."""
    data, num_left_out = viewer_data(found, labels)
    if not data["timings"]:
        text = f"More than {count(MAX_OPERATIONS)} operations: drawn as windows, without the zoom."
        return paragraph(text, class_="note")
    # "<" would end the element, whatever the names say
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    note = f" The zoom leaves out {plural(num_left_out, 'timing')}." if num_left_out else ""
    return joined(
        (
            tag("div", id="viewer", hidden=True, data_note=note.strip() or None),
            tag("script", Markup(text), type="application/json", id="viewer-data"),
        )
    )
