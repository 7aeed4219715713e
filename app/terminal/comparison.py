"""Two plans side by side, and what moves between them, as tables on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from app.terminal.screen import table


def print_comparison(console: Console, found: Mapping[str, Any]) -> None:
    """The tables, and a line for each choice that differs."""
    both = table("Two plans", "", ">A", ">B", ">change")
    for section in ("figures", "time"):
        for name, row in found[section].items():
            if row["a"] or row["b"]:
                both.add_row(name, _number(row["a"]), _number(row["b"]), _percent(row["change"]))
        both.add_section()
    console.print(both)
    odds = found["b_faster_probability"]
    if odds is not None:
        console.print(f"B is faster than A with {100 * odds:.0f} % probability.")
    for name, row in found["configuration"].items():
        console.print(f"{name}: {escape(_short(row['a']))} -> {escape(_short(row['b']))}")
    if not found["configuration"]:
        console.print("The configurations are the same.")
    _moves(console, found["moves"])


def _moves(console: Console, moves: Mapping[str, Any]) -> None:
    number, moved = moves["num_stage_groups"], moves["num_moved"]
    if not moves["comparable"]:
        console.print(f"No stage group of B holds the layers of one of A: all {number:,} are other ones.")
        return
    console.print(f"{moved:,} of {number:,} stage groups move.")
    if others := moves["num_with_other_layers"]:
        console.print(f"  {others:,} of them hold layers, or a split of them, that no group of A holds")
    for one in moves["moves"][:12]:
        ends = "place" if one["from_place"] != one["to_place"] else "pool"
        where = f"{escape(one[f'from_{ends}'])} -> {escape(one[f'to_{ends}'])}"
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
