"""The plan for several worlds, as a table on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from app.terminal.tables import number, table

if TYPE_CHECKING:
    from models.robust import RobustAnswer


def print_robust(console: Console, reply: RobustAnswer) -> None:
    """World by world, then what robustness costs and saves."""
    title = f"s/iteration, profile {escape(reply.stack_profile)}"
    worlds = table(title, "world", ">weight", ">robust plan", ">plan of the request", ">best alone", ">at least")
    for one in reply.figures:
        worlds.add_row(escape(one.name), f"{one.weight:.3g}", number(one.iteration_s), number(one.request_plan_s),
                       number(one.best_s) or one.status, f"{one.lower_bound_s:.4g}")  # fmt: skip
    console.print(worlds)
    if reply.value_s is None or reply.plan is None:
        console.print("No plan that runs in every world was found." if reply.outcome == "not_found"
                      else "A world has no plan:")  # fmt: skip
        for one in reply.figures:
            for reason in one.reasons:
                console.print(escape(f"{one.name}: {reason.detail}"))
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
