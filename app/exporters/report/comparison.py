"""The plan beside other ways of planning the same job, and beside the next best plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.exporters.report.figures import drawing, figure, paragraph, section, table
from app.exporters.report.formatting import fitted, number, odds, percent
from app.exporters.report.markup import Child, Markup, joined, tag
from app.exporters.report.scene import Scene
from app.exporters.report.svg import Scale, rect, time_axis, words
from app.words import rounded, seconds
from models.plan import Alternative, Baseline, Degrees

LEFT, RIGHT = 250.0, 810.0
ROW = 24.0
BASELINE_HEADS = ("rule", "#iteration time", "#our speed-up", "what was assumed of it")
ALTERNATIVE_HEADS = (
    "degrees",
    "sharding",
    "recompute",
    "chunks",
    "crossing",
    "#iteration time",
    "#behind by",
    "#slower with",
    "why second",
)


def comparison_section(scene: Scene) -> Markup:
    """Baselines, then alternatives."""
    return section(
        "comparison",
        "Beside other plans",
        tag("h3", "Other ways of planning, under the same evaluator"),
        _baselines(scene),
        tag("h3", "The next best plans"),
        _alternatives(scene),
    )


def _baselines(scene: Scene) -> Markup:
    found = scene.plan.baselines
    if not found:
        return paragraph("No other way of planning was evaluated for this plan.", class_="note")
    timed = [(one.name, one.iteration_s) for one in found if one.iteration_s is not None]
    bars = [("this plan", scene.plan.metrics.iteration_s), *timed]
    picture = figure(comparison_bars("baseline-bars", "Iteration time of each way of planning", bars))
    return joined((picture, table("Baselines", BASELINE_HEADS, (_baseline_row(one) for one in found))))


def _baseline_row(one: Baseline) -> list[Child]:
    if one.iteration_s is None:
        return [one.name, "no plan", "", f"{one.assumptions} No plan: {one.reason or 'no reason given'}"]
    speed_up: Child = "" if one.speed_up is None else number(one.speed_up, f"{rounded(one.speed_up)} ×")
    return [one.name, number(one.iteration_s, seconds), speed_up, one.assumptions]


def _alternatives(scene: Scene) -> Markup:
    found = scene.plan.alternatives
    if not found:
        return paragraph("This plan does not carry alternatives.", class_="note")
    bars = [("this plan", scene.plan.metrics.iteration_s)]
    bars += [(f"{rank}. {degrees_in_short(one.degrees)}", one.iteration_s) for rank, one in enumerate(found, 2)]
    picture = figure(comparison_bars("alternative-bars", "Iteration time of the next best plans", bars))
    rows = (_alternative_row(one) for one in found)
    return joined((picture, table("Alternatives, best first", ALTERNATIVE_HEADS, rows)))


def _alternative_row(one: Alternative) -> list[Child]:
    return [
        degrees_in_short(one.degrees),
        one.sharding,
        one.recompute,
        one.family + (", layers by GPU type" if one.layer_split == "by_gpu_type" else ""),
        one.crossing,
        number(one.iteration_s, seconds),
        number(one.slower_by, percent),
        "" if one.slower_probability is None else number(one.slower_probability, odds),
        one.why_second,
    ]


def degrees_in_short(one: Degrees) -> str:
    """Degrees above 1.

    >>> degrees_in_short(Degrees(tp=8, pp=16, dp=64))
    'tp 8 pp 16 dp 64'
    """
    named = (("tp", one.tp), ("cp", one.cp), ("ep", one.ep), ("pp", one.pp), ("dp", one.dp), ("vpp", one.vpp))
    return " ".join(f"{name} {value}" for name, value in named if value > 1) or "one GPU"


def comparison_bars(name: str, title: str, bars: Sequence[tuple[str, float]]) -> Markup:
    """One bar each; the first is the plan."""
    bottom = 4 + len(bars) * ROW + 4
    scale = Scale(0.0, max(value_s for _, value_s in bars) or 1.0, LEFT, RIGHT)
    return drawing(
        name,
        height=bottom + 20,
        title=title,
        description="; ".join(f"{label} {seconds(value_s)}" for label, value_s in bars),
        parts=(*time_axis(scale, bottom, 4), *_bars(bars, scale)),
    )


def _bars(bars: Sequence[tuple[str, float]], scale: Scale) -> Iterator[Markup]:
    for index, (label, value_s) in enumerate(bars):
        y = 4 + index * ROW
        yield words(LEFT - 8, y + 16, fitted(label, LEFT - 12, 12.0), "label", "end")
        yield rect(LEFT, y + 3, max(scale(value_s) - LEFT, 1.0), ROW - 6, class_="other" if index else "total")
        yield words(scale(value_s) + 6, y + 16, seconds(value_s), "value halo")
