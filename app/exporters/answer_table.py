"""Answers that are points, frontiers, curves and values, as CSV: one line each, numbers in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.csv_text import csv_text, harmless
from models.least import FrontierAnswer, SizingAnswer
from models.questions import Reply
from models.worth import CurvesAnswer, WorthAnswer

Cell = str | float | None
Tabular = FrontierAnswer | CurvesAnswer | WorthAnswer | SizingAnswer
FRONTIER = ("against", "iteration_s", "num_gpus", "usd_per_million_tokens", "cross_building_bytes",
            "kwh_per_million_tokens", "limited", "limit", "lower_bound", "relative_gap")  # fmt: skip
CURVES = ("over", "factor", "status", "value", "lower_bound", "relative_gap")
WORTH = ("resource", "step", "status", "gain_least", "gain_most", "value", "lower_bound", "verdict")
LEAST = ("of", "unit", "status", "value", "lower_bound", "there", "num_gpus", "iteration_s")
# Questions whose answers are tables, with the columns of each.
COLUMNS = {"frontier": FRONTIER, "curves": CURVES, "worth": WORTH, "least": LEAST}


def answer_table(reply: Reply) -> str | None:
    """An answer as CSV with a header; None for one that is no table."""
    if not isinstance(reply, Tabular):
        return None
    cells = ([harmless(cell) if isinstance(cell, str) else "" if cell is None else cell for cell in row]
             for row in _rows(reply))  # fmt: skip
    return csv_text(COLUMNS[reply.ask], cells, quoted=True)


def _rows(reply: Tabular) -> Iterator[Sequence[Cell]]:
    if isinstance(reply, FrontierAnswer):
        return _of_frontiers(reply)
    if isinstance(reply, CurvesAnswer):
        return ([curve.over, *(getattr(at, name) for name in CURVES[1:])] for curve in reply.curves
                for at in curve.points)  # fmt: skip
    return _of_worth(reply) if isinstance(reply, WorthAnswer) else _of_least(reply)


def _of_frontiers(reply: FrontierAnswer) -> Iterator[Sequence[Cell]]:
    for one in reply.frontiers:
        own = {"against": one.against, "limited": one.limited}
        for point in one.points:
            yield [own[name] if name in own else getattr(point, name) for name in FRONTIER]


def _of_worth(reply: WorthAnswer) -> Iterator[Sequence[Cell]]:
    for value in reply.values:
        for step, gain in (("useful", value.useful), ("small", value.small)):
            if gain is not None:
                yield [value.name, step, gain.status, gain.least, gain.most, gain.value, gain.lower_bound,
                       gain.verdict]  # fmt: skip


def _of_least(reply: SizingAnswer) -> Iterator[Sequence[Cell]]:
    for one in reply.least:
        plan = one.plan
        figures = [None, None] if plan is None else [plan.num_gpus, plan.iteration_s]
        yield [*(getattr(one, name) for name in LEAST[:6]), *figures]
