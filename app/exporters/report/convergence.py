"""The course of the search: the best plan found and the bound, over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.exporters.report.figures import WIDTH, drawing, figure, folded, legend, paragraph, section, table
from app.exporters.report.formatting import number, percent
from app.exporters.report.markup import Markup, tag
from app.exporters.report.scene import Scene
from app.exporters.report.svg import Scale, level_axis, steps, time_axis
from app.words import seconds
from models.figures import ConvergencePoint
from models.statements import bounds_time

LEFT, RIGHT, TOP, BOTTOM = 78.0, WIDTH - 12, 14.0, 224.0


def convergence_section(scene: Scene) -> Markup:
    """Incumbent and bound over the search."""
    points = scene.plan.convergence
    if not points:
        text = "This plan does not carry the course of its search; how good it is stands under the summary."
        return section("convergence", "Course of the search", paragraph(text, class_="note"))
    of_time = bounds_time(scene.plan.proof.proven)
    bound = "bound" if of_time else "less the gap of what was minimised"
    heads = ("#after", "#best plan", f"#{bound}", "#gap")
    numbers = table("Course of the search", heads, (_row(one) for one in points))
    keys = legend((("incumbent-key", "best plan found"), ("bound-key", "lower bound" if of_time else bound)))
    return section(
        "convergence",
        "Course of the search",
        figure(curves(points, bound), "Time of the search to the right, iteration time upwards.", keys,
               folded("The course as numbers", numbers)),
    )  # fmt: skip


def curves(points: Sequence[ConvergencePoint], bound: str = "bound") -> Markup:
    """The drawing; the scale leaves out first plans that are far off, and says so by the curve leaving at the top."""
    last = points[-1]
    scale = Scale(0.0, max(last.elapsed_s, 1e-3), LEFT, RIGHT)
    level = Scale(*_range(points), BOTTOM, TOP)
    final = ", ".join(
        f"{name} {seconds(value_s)}"
        for name, value_s in (("best plan", last.incumbent_s), (bound, last.lower_bound_s))
        if value_s is not None
    )
    return drawing(
        "convergence-curves",
        height=BOTTOM + 20,
        title=f"Best plan and {bound} over the search",
        description=f"At the end: {final or 'neither plan nor bound'}.",
        parts=(*time_axis(scale, BOTTOM, TOP), *level_axis(level, LEFT, RIGHT, seconds), *_curve(points, scale, level)),
    )


def _range(points: Sequence[ConvergencePoint]) -> tuple[float, float]:
    """From below the last bound to above the last plan; curves are cut at that."""
    values = [value for one in points for value in (one.incumbent_s, one.lower_bound_s) if value is not None] or [0.0]
    last = next((one.incumbent_s for one in reversed(points) if one.incumbent_s is not None), max(values))
    low, high = min(values), min(max(values), 2.5 * last)
    margin = 0.08 * (high - low) or 0.1 * (high or 1.0)
    return max(0.0, low - margin), high + margin


def _curve(points: Sequence[ConvergencePoint], scale: Scale, level: Scale) -> Iterator[Markup]:
    for class_, field in (("incumbent", "incumbent_s"), ("bound", "lower_bound_s")):
        known = [(one.elapsed_s, value) for one in points if (value := getattr(one, field)) is not None]
        placed = [(scale(at_s), level(min(value, level.high))) for at_s, value in known]
        if placed:
            yield tag("path", d=steps(placed, RIGHT), class_=class_)


def _row(point: ConvergencePoint) -> list[str | Markup]:
    best_s, bound_s = point.incumbent_s, point.lower_bound_s
    gap = percent((best_s - bound_s) / best_s) if best_s and bound_s is not None else ""
    cells = ["none yet" if value_s is None else number(value_s, seconds) for value_s in (best_s, bound_s)]
    return [number(point.elapsed_s, seconds), *cells, gap]
