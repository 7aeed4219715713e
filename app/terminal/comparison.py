"""Two plans side by side, and what moves between them, as plain values and as tables.

Owns which figures are compared. Every figure is a field of the plans; only differences are computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.exporters.report.formatting import TIME_PARTS
from app.jobs.moves import Moves, moves_between
from models.plan import Plan


def comparison(first: Plan, second: Plan) -> dict[str, Any]:
    """Figures and causes of time of both plans with the change from A to B, what is configured otherwise, and moves."""
    moves = asdict(moves_between(first, second))
    return {
        "figures": _beside(_figures(first), _figures(second)),
        "time": _beside(_time(first), _time(second)),
        "configuration": {
            name: {"a": one, "b": other}
            for (name, one), other in zip(_choices(first).items(), _choices(second).values(), strict=True)
            if one != other
        },
        "moves": moves,
    }


def _beside(first: Mapping[str, float | None], second: Mapping[str, float | None]) -> dict[str, Any]:
    return {name: {"a": one, "b": second[name], "change": _change(one, second[name])} for name, one in first.items()}


def _change(before: float | None, after: float | None) -> float | None:
    """The relative change; None where there is nothing to relate to.

    >>> _change(4.0, 5.0), _change(None, 5.0), _change(0.0, 5.0), _change(0.0, 0.0)
    (0.25, None, None, 0.0)
    """
    if before is None or after is None:
        return None
    if before == after:
        return 0.0
    return after / before - 1 if before else None


def _figures(plan: Plan) -> dict[str, float | None]:
    metrics = plan.metrics
    return {
        "iteration_s": metrics.iteration_s,
        "lower_bound_s": plan.proof.lower_bound_s,
        "relative_gap": plan.proof.relative_gap,
        "tokens_per_s": metrics.tokens_per_s,
        "tokens_per_s_per_gpu": metrics.tokens_per_s_per_gpu,
        "model_flops_utilisation": metrics.model_flops_utilisation,
        "num_gpus": metrics.num_gpus,
        "cross_building_bytes": metrics.cross_building_bytes,
        "usd_per_million_tokens": metrics.usd_per_million_tokens,
        "fullest_gpu_bytes": max((use.total_bytes for use in plan.memory), default=None),
    }


def _time(plan: Plan) -> dict[str, float | None]:
    return {field: float(getattr(plan.time, field)) for _, field in TIME_PARTS}


def _choices(plan: Plan) -> dict[str, Any]:
    one = plan.configuration
    return {
        **one.degrees.model_dump(),
        **one.model_dump(exclude={"degrees"}, mode="json"),
        "crossing": plan.placement.crossing,
        "stack_profile": plan.stack_profile,
    }


def print_comparison(console: Console, found: Mapping[str, Any]) -> None:
    """The tables, and a line for each choice that differs."""
    table = Table(title="Two plans", title_justify="left")
    for heading in ("", "A", "B", "change"):
        table.add_column(heading, justify="left" if not heading else "right")
    for section in ("figures", "time"):
        for name, row in found[section].items():
            if row["a"] or row["b"]:
                table.add_row(name, _number(row["a"]), _number(row["b"]), _percent(row["change"]))
        table.add_section()
    console.print(table)
    for name, row in found["configuration"].items():
        console.print(f"{name}: {escape(_short(row['a']))} -> {escape(_short(row['b']))}", highlight=False)
    if not found["configuration"]:
        console.print("The configurations are the same.")
    _moves(console, found["moves"])


def print_moves(console: Console, moves: Moves) -> None:
    """How many stage groups change place, from where to where."""
    _moves(console, asdict(moves))


def _moves(console: Console, moves: Mapping[str, Any]) -> None:
    number, moved = moves["num_stage_groups"], moves["num_moved"]
    if not moves["comparable"]:
        console.print(f"Other tensor, context or pipeline degrees: all {number:,} stage groups are other ones.")
        return
    console.print(f"{moved:,} of {number:,} stage groups change place.", highlight=False)
    for one in moves["moves"][:12]:
        where = f"{escape(one['from_place'])} -> {escape(one['to_place'])}"
        console.print(f"  pipeline rank {one['pipeline_rank']}: {one['num_stage_groups']:,} from {where}")
    if len(moves["moves"]) > 12:
        console.print(f"  and {len(moves['moves']) - 12} more rows; --json has them all")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1e5 or float(value).is_integer() else f"{value:.4g}"


def _percent(change: float | None) -> str:
    return "" if change is None else f"{100 * change:+.1f} %" if change else "="


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
