"""Where the iteration time goes, and what distance costs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from app.exporters.report.figures import drawing, figure, folded, paragraph, section, table
from app.exporters.report.formatting import number, percent
from app.exporters.report.markup import Markup
from app.exporters.report.scene import Scene
from app.exporters.report.svg import Scale, line, rect, time_axis, words
from app.words import NO_TIME_S, seconds
from models.plan import Plan
from models.statements import bounds_time

LEFT, RIGHT = 190.0, 800.0
ROW = 24.0
TOP = 22.0


def waterfall_section(scene: Scene) -> Markup:
    """The iteration time by cause."""
    plan = scene.plan
    rows = [
        (name, number(value_s, seconds), percent(value_s / plan.time.total_s))
        for name, value_s in plan.time.by_cause.items()
    ]
    rows.append(("total", number(plan.time.total_s, seconds), percent(1.0)))
    numbers = table("Iteration time by cause", ("cause", "#time", "#share"), rows)
    caption = (
        "On the rank that finishes last; each part begins where the one above ends. Communication counts only where "
        "it is exposed, that is, not hidden behind computing. Compute includes what layers wait for the host to launch "
        "their kernels."
    )
    return section(
        "time",
        "Where the iteration time goes",
        figure(waterfall(plan), caption, numbers=folded("The parts as numbers", numbers)),
        _geography(plan),
    )


def waterfall(plan: Plan) -> Markup:
    """The drawing."""
    shown = [(name, value_s) for name, value_s in plan.time.by_cause.items() if value_s >= NO_TIME_S]
    num_rows = len(shown) + 1 + (plan.one_building_s is not None)
    bottom = TOP + num_rows * ROW + 4
    highest_s = max(plan.time.total_s, plan.one_building_s or 0.0, plan.proof.lower_bound_s) or 1.0
    scale = Scale(0.0, highest_s, LEFT, RIGHT)
    return drawing(
        "waterfall",
        height=bottom + 20,
        title="Iteration time by cause",
        description="; ".join(f"{name} {seconds(value_s)}" for name, value_s in shown),
        parts=(*time_axis(scale, bottom, TOP), *_bars(shown, scale), *_totals(plan, scale, len(shown)),
               *_bound(plan, scale, bottom), *_values(plan, shown, scale)),
    )  # fmt: skip


def _bars(shown: list[tuple[str, float]], scale: Scale) -> Iterator[Markup]:
    before_s = 0.0
    for index, (name, value_s) in enumerate(shown):
        x, end = scale(before_s), scale(before_s + value_s)
        before_s += value_s
        useful = "useful" if name == "compute" else "loss"
        yield from _row(index, name, (x, end), useful)
        if index + 1 < len(shown):
            yield line(end, TOP + index * ROW + 3, end, TOP + (index + 2) * ROW - 3, "joint")


def _row(index: int, name: str, span: tuple[float, float], class_: str) -> Iterator[Markup]:
    y = TOP + index * ROW
    x, end = span
    yield words(LEFT - 8, y + 16, name, "label", "end")
    yield rect(x, y + 3, max(end - x, 1.0), ROW - 6, class_=class_)


def _values(plan: Plan, shown: list[tuple[str, float]], scale: Scale) -> Iterator[Markup]:
    """The figures behind the bars; drawn last, so that the bound's line passes behind them."""
    ends = list(accumulate(value_s for _, value_s in shown))
    whole = [value_s for value_s in (plan.time.total_s, plan.one_building_s) if value_s is not None]
    rows = [*zip(ends, (value_s for _, value_s in shown), strict=True), *zip(whole, whole, strict=True)]
    for index, (end_s, value_s) in enumerate(rows):
        yield words(scale(end_s) + 7, TOP + index * ROW + 16, seconds(value_s), "value halo")


def _totals(plan: Plan, scale: Scale, index: int) -> Iterator[Markup]:
    yield from _row(index, "iteration time", (LEFT, scale(plan.time.total_s)), "total")
    if plan.one_building_s is not None:
        span = LEFT, scale(plan.one_building_s)
        yield from _row(index + 1, "same job in one building", span, "other")


def _bound(plan: Plan, scale: Scale, bottom: float) -> Iterator[Markup]:
    if not bounds_time(plan.proof.proven):
        return
    x = scale(plan.proof.lower_bound_s)
    yield line(x, TOP - 4, x, bottom, "limit")
    yield words(x, TOP - 8, f"lower bound {seconds(plan.proof.lower_bound_s)}", "tick", "middle" if x < 700 else "end")


def _geography(plan: Plan) -> Markup:
    """What distance costs, where somebody has computed it."""
    if plan.one_building_s is None:
        return paragraph("What distance costs was not determined for this plan.", class_="note")
    tax_s = plan.metrics.iteration_s - plan.one_building_s
    share = tax_s / plan.one_building_s if plan.one_building_s else 0.0
    return paragraph(
        "Geography tax: ",
        number(tax_s, seconds, "geography_tax_s"),
        f" per iteration ({percent(share)}), against ",
        number(plan.one_building_s, seconds, "one_building_s"),
        " of the same configuration with all its GPUs in one building.",
        class_="key",
    )
