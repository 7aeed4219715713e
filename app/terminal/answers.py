"""Answers to questions as a person reads them in a terminal; every figure is one of the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from app.exporters.report.answer_picture import gpu_hours, is_priced
from app.terminal.screen import number, table

if TYPE_CHECKING:
    from models.least import FrontierAnswer, SizingAnswer
    from models.outcome import Reason
    from models.question_parts import Gain
    from models.questions import Reply, WhatIfAnswer, WhyNotAnswer
    from models.robust import RobustAnswer
    from models.what_now import ReplanPoint, WhatIfLostAnswer, WhatNowAnswer
    from models.worth import CurvesAnswer, WorthAnswer

SHOWN = 30  # of the values; the rest is in the file
GIGABYTE = 1e9
MOST_FETCHES = 8


def print_reply(console: Console, reply: Reply) -> None:
    """An answer for people."""
    PRINTERS[reply.ask](console, reply)


def _tell(console: Console, reasons: Sequence[Reason], of: str = "") -> None:
    for reason in reasons:
        console.print(escape(f"{of}{reason.detail}"))


def _worth(console: Console, reply: WorthAnswer) -> None:
    """What more of each resource is worth."""
    console.print(_base(reply))
    title = f"gains in {reply.unit}, profile {escape(reply.stack_profile)}"
    values = table(title, "", ">a little more", ">much more", ">of the plans", ">plan held, s", "")
    for one in reply.values[:SHOWN]:
        small = "" if one.small is None else _interval(one.small)
        held = "" if one.plan_held_s is None else f"{one.plan_held_s:.3g}"
        verdict = "not tried" if one.useful.status == "not_tried" else one.useful.verdict
        found = "" if reply.value is None or one.useful.value is None else number(reply.value - one.useful.value)
        values.add_row(escape(f"{one.name} ({one.there})"), small, _interval(one.useful), found, held, verdict)
    console.print(values)
    if len(reply.values) > SHOWN:
        console.print(f"and {len(reply.values) - SHOWN} more, further down in the ranking: the JSON has them")
    if reply.in_one_building is not None:
        gain = reply.in_one_building
        said = "not determined" if gain.verdict == "not decided yet" else gain.verdict
        console.print(f"the same GPUs in one building gain {_interval(gain)} {reply.unit}: {said}")


def _curves(console: Console, reply: CurvesAnswer) -> None:
    """The best plan over each quantity."""
    for curve in reply.curves:
        points = table(f"{escape(curve.over)}: {reply.unit}", ">times", ">plan", ">bound", ">gap", "")
        for one in curve.points:
            gap = "" if one.relative_gap is None else f"{100 * one.relative_gap:.1f} %"
            why = f"{one.status}: {one.detail}" if one.detail else one.status.replace("_", " ")
            points.add_row(f"{one.factor:g}", number(one.value), number(one.lower_bound), gap, escape(why))
        console.print(points)
    _tell(console, reply.reasons)


def _least(console: Console, reply: SizingAnswer) -> None:
    """The least of everything that reaches the target."""
    console.print(f"target {reply.target_iteration_s:.4g} s per iteration: {reply.outcome}")
    sizes = table(f"profile {escape(reply.stack_profile)}", "", ">enough", ">needed", ">there", "")
    for one in reply.least:
        plan = "" if one.plan is None else f"{one.plan.iteration_s:.4g} s on {one.plan.num_gpus:,} GPUs"
        said = "; ".join(text for text in (plan, one.detail) if text) or one.status.replace("_", " ")
        sizes.add_row(f"{one.of} ({one.unit})", number(one.value), number(one.lower_bound), number(one.there),
                      escape(said))  # fmt: skip
    console.print(sizes)
    _tell(console, reply.reasons)


def _frontier(console: Console, reply: FrontierAnswer) -> None:
    """Plans of which none is better in time and in what is spent."""
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
    _tell(console, reply.reasons)


def _interval(gain: Gain) -> str:
    """An interval of gain, with what is not known left open."""
    least, most = (number(value) or "?" for value in (gain.least, gain.most))
    return f"{least} to {most}"


def _base(reply: WorthAnswer) -> str:
    if reply.value is None:
        return escape(f"{reply.outcome}: {'; '.join(reason.detail for reason in reply.reasons)}")
    return f"as it is: {number(reply.value)} {reply.unit}, none below {number(reply.lower_bound) or 'what is known'}"


def _why_not(console: Console, reply: WhyNotAnswer) -> None:
    if reply.plan is not None:
        console.print(f"The request has a plan: {reply.plan.iteration_s:.4g} s on {reply.plan.num_gpus:,} GPUs.")
        return
    console.print(f"{reply.outcome}, {reply.num_searches} searches in {reply.elapsed_s:.1f} s")
    stated = {wish.name: wish.stated for wish in reply.wishes}
    for conflict in reply.conflicts:
        wishes = [f"{name} {stated[name]}" for name in conflict.wishes] or ["what the hardware is"]
        against = f" with {', '.join(conflict.physics)}" if conflict.physics else ""
        console.print(escape(f"conflict{against}: {' and '.join(wishes)}"))
        _tell(console, conflict.reasons, "    ")
    for one in reply.relaxations:
        untried = "; whether less will do was not found in the time" if one.kind == "hardware" else ""
        short = f"; {one.least_proven} is not enough" if one.least_proven else untried
        console.print(
            escape(f"{'instead' if one.kind == 'wish' else 'or buy'}: {one.text} -> {one.plan.iteration_s:.4g} s on "
                   f"{one.plan.num_gpus:,} GPUs{short}"))  # fmt: skip
    for names in reply.undecided:
        console.print(f"undecided: {', '.join(names) or 'no wish at all'}")
    if not reply.complete:
        console.print("There may be more conflicts: give more time.")


def _what_if(console: Console, reply: WhatIfAnswer) -> None:
    title = f"gains in {reply.unit}, profile {escape(reply.stack_profile)}"
    gains = table(title, "", ">plan", ">bound", ">gains at least", ">at most", "")
    gains.add_row("base", number(reply.value, 5), number(reply.lower_bound, 5), "", "", reply.outcome)
    for gain in reply.gains:
        gains.add_row(escape(gain.name), number(gain.value, 5), number(gain.lower_bound, 5),
                      _part(gain.least, gain.least_fraction), _part(gain.most, gain.most_fraction),
                      "not tried" if gain.status == "not_tried" else gain.verdict)  # fmt: skip
    console.print(gains)
    for gain in reply.gains:
        _tell(console, gain.reasons, f"{gain.name}: ")


def _part(value: float | None, fraction: float | None) -> str:
    return "" if value is None or fraction is None else f"{value:.4g} ({100 * fraction:+.1f} %)"


def _what_now(console: Console, reply: WhatNowAnswer) -> None:
    """The ways on, fewest moves first, and what the chosen one has to fetch."""
    before = "" if reply.before_s is None else f" of {reply.before_s:.4g} s"
    console.print(f"The plan{before} has lost {reply.num_groups_lost:,} of {reply.num_groups_before:,} stage groups.")
    if not reply.points:
        console.print("No plan is left:" if reply.outcome == "infeasible" else "No plan was found yet.")
        _tell(console, reply.reasons, "    ")
        return
    rows = ((*_cells(one), "<- chosen" if at == reply.chosen else "") for at, one in enumerate(reply.points))
    console.print(table("", ">moved", ">at least", ">of", ">s/iteration", ">at least", ">untouched", ">state GB",
                        ">checkpoint GB", ">fetch s", "", rows=rows))  # fmt: skip
    console.print(f"No plan takes less than {reply.lower_bound_s:.4g} s, whatever moves.")
    if reply.chosen is not None:
        _print_fetches(console, reply.points[reply.chosen])


def _cells(one: ReplanPoint) -> tuple[str, ...]:
    return (
        f"{one.num_moved:,}", f"{one.least_moved:,}", f"{one.num_groups:,}", f"{one.iteration_s:.4g}",
        f"{one.lower_bound_s:.4g}", f"{one.num_untouched_replicas:,}", f"{one.state_bytes / GIGABYTE:,.4g}",
        f"{one.checkpoint_bytes / GIGABYTE:,.4g}", f"{one.transfer_s:.3g}",
    )  # fmt: skip


def _print_fetches(console: Console, one: ReplanPoint) -> None:
    degrees = one.plan.configuration.degrees
    moved = f"{one.num_moved:,} of {one.num_groups:,} stage groups move"
    untouched = f"{one.num_untouched_replicas:,} of {degrees.dp:,} replicas go on untouched"
    console.print(f"Chosen: {degrees}; {moved}, {untouched}.")
    for fetch in one.fetches[:MOST_FETCHES]:
        source = "a checkpoint" if fetch.from_place is None else fetch.from_place
        way = f" over {', '.join(fetch.links)} in {fetch.seconds:.3g} s" if fetch.links else ""
        console.print(escape(f"  {fetch.to_place} fetches {fetch.num_bytes / GIGABYTE:,.4g} GB from {source}{way}"))
    if len(one.fetches) > MOST_FETCHES:
        console.print(f"  and {len(one.fetches) - MOST_FETCHES} more; --json has them all")


def _what_if_lost(console: Console, reply: WhatIfLostAnswer) -> None:
    """One line for each loss."""
    losses = table("What if it is lost?", "", "lost", ">groups lost", ">moved", ">at least", ">s/iteration",
                   ">at least", ">fetch s")  # fmt: skip
    for loss in reply.losses:
        answer = loss.answer
        if answer is None or answer.chosen is None:
            said = "not tried" if answer is None else "no plan" if answer.outcome == "infeasible" else "nothing found"
            losses.add_row(loss.kind, escape(loss.name), "", said, "", "", "", "")
            continue
        one = answer.points[answer.chosen]
        losses.add_row(loss.kind, escape(loss.name), f"{answer.num_groups_lost:,}", f"{one.num_moved:,}",
                       f"{one.least_moved:,}", f"{one.iteration_s:.4g}", f"{one.lower_bound_s:.4g}",
                       f"{one.transfer_s:.3g}")  # fmt: skip
    console.print(losses)


def _robust(console: Console, reply: RobustAnswer) -> None:
    """World by world, then what robustness costs and saves."""
    title = f"s/iteration, profile {escape(reply.stack_profile)}"
    headings = ("world", ">weight", ">robust plan", ">plan of the request", ">best alone", ">at least")
    rows = ((escape(one.name), f"{one.weight:.3g}", number(one.iteration_s), number(one.request_plan_s),
             number(one.best_s) or one.status, f"{one.lower_bound_s:.4g}") for one in reply.figures)  # fmt: skip
    console.print(table(title, *headings, rows=rows))
    if reply.value_s is None or reply.plan is None:
        console.print("No plan that runs in every world was found." if reply.outcome == "not_found"
                      else "A world has no plan:")  # fmt: skip
        for one in reply.figures:
            _tell(console, one.reasons, f"{one.name}: ")
        return
    console.print(f"{reply.measure} iteration {reply.value_s:.4g} s; no plan is below {reply.lower_bound_s:.4g} s")
    other = reply.request_plan_value_s
    if other is None:
        console.print("the plan of the request does not run in every world")
    else:
        saved = f"{100 * (other / reply.value_s - 1):.1f} % more" if other > reply.value_s else "the same"
        console.print(f"the plan of the request: {other:.4g} s, {saved}")
    if reply.least_price_s is not None and reply.most_price_s is not None:
        console.print(f"price of robustness as requested: {reply.least_price_s:.4g} to {reply.most_price_s:.4g} s")
    console.print(f"plan: {reply.plan.configuration.degrees} {reply.plan.crossing}")


PRINTERS: Mapping[str, Callable[..., None]] = {
    "why_not": _why_not, "what_if": _what_if, "what_now": _what_now, "what_if_lost": _what_if_lost, "robust": _robust,
    "worth": _worth, "curves": _curves, "least": _least, "frontier": _frontier,
}  # fmt: skip
