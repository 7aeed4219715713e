"""Frontiers and curves as one picture that stands alone: plans as points, and how far below them the bound lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.exporters.report.figures import WIDTH
from app.exporters.report.markup import Markup, tag
from app.exporters.report.svg import Scale, level_axis, line, ticks, words
from models.findings import StudyFindings
from models.least import FrontierAgainst, FrontierAnswer, FrontierPoint
from models.questions import Reply
from models.worth import Curve, CurvesAnswer

LEFT, RIGHT, PANEL = 92.0, WIDTH - 20.0, 300.0
SPENT = {
    "gpus": ("num_gpus", "GPUs"),
    "bytes": ("cross_building_bytes", "bytes between buildings per iteration"),
    "money": ("usd_per_million_tokens", "USD per million tokens"),
    "energy": ("kwh_per_million_tokens", "kWh per million tokens"),
}
GPU_HOURS = "GPU hours per iteration"
SECONDS_PER_HOUR = 3600.0
# Questions whose answers are pictures.
DRAWN = ("frontier", "curves")
STYLE = (
    "svg{font:12px sans-serif;background:#fff}text{fill:#333}.head{font-weight:bold}.grid{stroke:#ddd}"
    ".plan{fill:none;stroke:#b3541e;stroke-width:2}.dot{fill:#b3541e}.bound{stroke:#2b6f77;stroke-width:2}"
)


@dataclass(frozen=True)
class Mark:
    """A plan at (x, y), with the bound of what was minimised: an x or a y, where one is known."""

    x: float
    y: float
    bound_x: float | None = None
    bound_y: float | None = None


@dataclass(frozen=True)
class Panel:
    """One drawing of the picture."""

    title: str
    across: str
    up: str
    marks: Sequence[Mark]
    joined: Sequence[Mark] | None = None
    """Those that a line joins; None: all."""


def answer_picture(reply: Reply) -> str | None:
    """An answer as an SVG that stands alone; None for one that is no picture."""
    panels = list(_panels(reply))
    return _picture(panels) if panels else None


def study_picture(found: StudyFindings) -> str:
    """The points of a study, time over GPUs, each with its bound; the line is the frontier."""
    marks = [Mark(float(one.num_gpus), one.value, bound_y=one.lower_bound) for one in found.points]
    line_of = [mark for mark, one in zip(marks, found.points, strict=True) if one.index in found.frontier]
    title = "Time per million tokens against GPUs"
    return _picture([Panel(title, "GPUs", "s/million tokens", marks, line_of)])


def _picture(panels: Sequence[Panel]) -> str:
    """Panels one below the other."""
    parts = [part for number, panel in enumerate(panels) for part in _drawn(panel, number * PANEL)]
    height = PANEL * len(panels)
    names = "; ".join(panel.title for panel in panels)
    picture = tag("svg", tag("title", names), tag("style", Markup(STYLE)), *parts, xmlns="http://www.w3.org/2000/svg",
                  viewBox=f"0 0 {WIDTH:.0f} {height:.0f}", role="img")  # fmt: skip
    return f"{picture}\n"


def _panels(reply: Reply) -> Iterator[Panel]:
    if isinstance(reply, FrontierAnswer):
        for one in reply.frontiers:
            label = SPENT[one.against][1] if is_priced(one) else GPU_HOURS
            marks = [mark for point in one.points if (mark := _point(one, point)) is not None]
            yield Panel(f"Iteration time against {label}", label, "s/iteration", marks)
    elif isinstance(reply, CurvesAnswer):
        for curve in reply.curves:
            marks = [Mark(at.factor, at.value, bound_y=at.lower_bound) for at in curve.points if at.value is not None]
            yield Panel(f"{reply.unit} over {_name(curve)}", f"times {_name(curve)}", reply.unit, marks)


def _name(curve: Curve) -> str:
    return f"the number at {curve.over}" if curve.over.startswith("/") else curve.over


def _point(frontier: FrontierAgainst, point: FrontierPoint) -> Mark | None:
    spent = getattr(point, SPENT[frontier.against][0]) if is_priced(frontier) else gpu_hours(point)
    if spent is None:
        return None
    if frontier.limited != "iteration_s":
        return Mark(float(spent), point.iteration_s, bound_y=point.lower_bound)
    gap = point.relative_gap
    return Mark(float(spent), point.iteration_s, bound_x=None if gap is None else float(spent) * (1.0 - gap))


def is_priced(frontier: FrontierAgainst) -> bool:
    """Whether what is spent is stated: without prices a GPU-hour costs 1, so GPU hours stand for money."""
    return frontier.against != "money" or any(one.usd_per_million_tokens is not None for one in frontier.points)


def gpu_hours(point: FrontierPoint) -> float:
    """GPU hours of an iteration."""
    return point.num_gpus * point.iteration_s / SECONDS_PER_HOUR


def _drawn(panel: Panel, top: float) -> Iterator[Markup]:
    yield words(LEFT, top + 20, panel.title, "head")
    if not panel.marks:
        yield words(LEFT, top + 44, "nothing is known yet")
        return
    xs = [value for one in panel.marks for value in (one.x, one.bound_x) if value is not None]
    ys = [value for one in panel.marks for value in (one.y, one.bound_y) if value is not None]
    across = Scale(*_span(xs), LEFT, RIGHT)
    up = Scale(*_span(ys), top + PANEL - 48, top + 34)
    yield from _axes(panel, across, up)
    for one in panel.marks:
        x, y = across(one.x), up(one.y)
        if one.bound_y is not None:
            yield line(x, up(one.bound_y), x, y, "bound")
        if one.bound_x is not None:
            yield line(across(one.bound_x), y, x, y, "bound")
    joined = panel.marks if panel.joined is None else panel.joined
    path = "L".join(f"{across(one.x):.1f} {up(one.y):.1f}" for one in sorted(joined, key=lambda one: one.x))
    yield tag("path", d=f"M{path}", class_="plan")
    for one in panel.marks:
        yield tag(
            "circle", tag("title", f"{one.x:.6g}, {one.y:.6g}"), cx=across(one.x), cy=up(one.y), r=4, class_="dot"
        )


def _axes(panel: Panel, across: Scale, up: Scale) -> Iterator[Markup]:
    yield from level_axis(up, LEFT, RIGHT, "{:.4g}".format)
    for value in ticks(across.low, across.high, 8):
        yield line(across(value), up.end, across(value), up.start, "grid")
        yield words(across(value), up.start + 15, f"{value:.4g}", "tick", "middle")
    yield words(LEFT - 6, up.end - 4, panel.up, "tick", "end")
    yield words(RIGHT, up.start + 32, panel.across, "tick", "end")


def _span(values: Sequence[float]) -> tuple[float, float]:
    """From the least to the greatest with a margin, never below 0."""
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return max(low - margin, 0.0), high + margin
