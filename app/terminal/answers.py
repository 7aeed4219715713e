"""Answers to questions of worth and of sizing, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from app.terminal.tables import number, table

if TYPE_CHECKING:
    from models.least import FrontierAnswer, SizingAnswer
    from models.question_parts import Gain
    from models.worth import CurvesAnswer, WorthAnswer

SHOWN = 30  # of the values; the rest is in the file


def print_worth(console: Console, reply: WorthAnswer) -> None:
    """What more of each resource is worth."""
    console.print(_base(reply))
    title = f"gains in {reply.unit}, profile {escape(reply.stack_profile)}"
    values = table(title, "", ">a little more", ">much more", ">of the plans", ">plan held, s", "")
    for one in reply.values[:SHOWN]:
        small = "" if one.small is None else interval(one.small)
        held = "" if one.plan_held_s is None else f"{one.plan_held_s:.3g}"
        verdict = "not tried" if one.useful.status == "not_tried" else one.useful.verdict
        found = "" if reply.value is None or one.useful.value is None else number(reply.value - one.useful.value)
        values.add_row(escape(f"{one.name} ({one.there})"), small, interval(one.useful), found, held, verdict)
    console.print(values)
    if len(reply.values) > SHOWN:
        console.print(f"and {len(reply.values) - SHOWN} more, further down in the ranking: the JSON has them")
    if reply.in_one_building is not None:
        gain = reply.in_one_building
        said = "not determined" if gain.verdict == "not decided yet" else gain.verdict
        console.print(f"the same GPUs in one building gain {interval(gain)} {reply.unit}: {said}")


def print_curves(console: Console, reply: CurvesAnswer) -> None:
    """The best plan over each quantity."""
    for curve in reply.curves:
        points = table(f"{escape(curve.over)}: {reply.unit}", ">times", ">plan", ">bound", ">gap", "")
        for one in curve.points:
            gap = "" if one.relative_gap is None else f"{100 * one.relative_gap:.1f} %"
            why = f"{one.status}: {one.detail}" if one.detail else one.status.replace("_", " ")
            points.add_row(f"{one.factor:g}", number(one.value), number(one.lower_bound), gap, escape(why))
        console.print(points)
    for reason in reply.reasons:
        console.print(escape(reason.detail))


def print_least(console: Console, reply: SizingAnswer) -> None:
    """The least of everything that reaches the target."""
    console.print(f"target {reply.target_iteration_s:.4g} s per iteration: {reply.outcome}")
    sizes = table(f"profile {escape(reply.stack_profile)}", "", ">enough", ">needed", ">there", "")
    for one in reply.least:
        plan = "" if one.plan is None else f"{one.plan.iteration_s:.4g} s on {one.plan.num_gpus:,} GPUs"
        said = "; ".join(text for text in (plan, one.detail) if text) or one.status.replace("_", " ")
        sizes.add_row(f"{one.of} ({one.unit})", number(one.value), number(one.lower_bound), number(one.there),
                      escape(said))  # fmt: skip
    console.print(sizes)
    for reason in reply.reasons:
        console.print(escape(reason.detail))


def print_frontier(console: Console, reply: FrontierAnswer) -> None:
    """Plans of which none is better in time and in what is spent."""
    from app.exporters.report.answer_picture import gpu_hours, is_priced

    for one in reply.frontiers:
        money = ">USD/Mtoken" if is_priced(one) else ">GPU hours"
        heads = (">s/iteration", ">GPUs", money, ">bytes between buildings", ">kWh/Mtoken", ">gap")
        points = table(f"time against {one.against}", *heads)
        for point in one.points:
            gap = "" if point.relative_gap is None else f"{100 * point.relative_gap:.1f} %"
            spent = point.usd_per_million_tokens if is_priced(one) else gpu_hours(point)
            points.add_row(number(point.iteration_s), f"{point.num_gpus:,}", number(spent),
                           number(point.cross_building_bytes), number(point.kwh_per_million_tokens), gap)  # fmt: skip
        console.print(points)
        if one.detail:
            console.print(escape(one.detail))
    for reason in reply.reasons:
        console.print(escape(reason.detail))


def interval(gain: Gain) -> str:
    """An interval of gain, with what is not known left open."""
    least, most = (number(value) or "?" for value in (gain.least, gain.most))
    return f"{least} to {most}"


def _base(reply: WorthAnswer) -> str:
    if reply.value is None:
        return escape(f"{reply.outcome}: {'; '.join(reason.detail for reason in reply.reasons)}")
    return f"as it is: {number(reply.value)} {reply.unit}, none below {number(reply.lower_bound) or 'what is known'}"
