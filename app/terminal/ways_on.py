"""Ways on after a loss, and prepared ones, as tables on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from app.terminal.tables import table

if TYPE_CHECKING:
    from models.what_now import ReplanPoint, WhatIfLostAnswer, WhatNowAnswer

GIGABYTE = 1e9
MOST_FETCHES = 8


def print_what_now(console: Console, reply: WhatNowAnswer) -> None:
    """The ways on, fewest moves first, and what the chosen one has to fetch."""
    before = "" if reply.before_s is None else f" of {reply.before_s:.4g} s"
    console.print(f"The plan{before} has lost {reply.num_groups_lost:,} of {reply.num_groups_before:,} stage groups.")
    if not reply.points:
        console.print("No plan is left:" if reply.outcome == "infeasible" else "No plan was found yet.")
        for reason in reply.reasons:
            console.print(escape(f"    {reason.detail}"))
        return
    ways = table("", ">moved", ">at least", ">of", ">s/iteration", ">at least", ">untouched", ">state GB",
                 ">checkpoint GB", ">fetch s", "")  # fmt: skip
    for number, one in enumerate(reply.points):
        ways.add_row(*_cells(one), "<- chosen" if number == reply.chosen else "")
    console.print(ways)
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


def print_what_if_lost(console: Console, reply: WhatIfLostAnswer) -> None:
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
