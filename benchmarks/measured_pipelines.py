"""Compares pipeline timing with published measurements of schedules across buildings: rows in, figures out.

Reads no file and fits nothing to a row with delay. Static schedules ran with blocking sends, those that know the delays
with asynchronous ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise

import numpy as np

from benchmarks.first_schedules import quick_schedule
from models.schedule import PipelineHop, PipelineProblem, PipelineRank, PipelineSchedule, PipelineStage
from solver.calibration.report import ErrorSummary, ReportBuilder, ValidationReport, error_pct
from solver.pipeline.generators.list_scheduler import with_messages
from solver.pipeline.portfolio import candidates
from solver.pipeline.problem import shape_of
from solver.pipeline.simulate import replay_shape

CLEAR_DIFFERENCE = 0.05  # relative: measurements nearer than that are not ranked
RECOMPUTED_ACTIVATION = 0.5  # assumed, from above: layer inputs are about a seventeenth, one layer is whole at a time
WEIGHT_SHARES = np.linspace(0.25, 0.5, 11)
GENERATORS: Mapping[str, tuple[str, tuple[str, ...] | None]] = {
    "1F1B": ("fused", ("one_f_one_b",)),
    "ZBH1": ("one_way", ("zb_h1",)),
    "ZBV": ("v", ("zbv",)),
    "CrossUDSub": ("one_way", ("cross_pipe", "cross_pipe_interleaved")),  # its greedy, of both settings the better
    "CrossUD": ("one_way", None),
    "CrossWave": ("v", None),
}
STATIC = ("1F1B", "ZBH1", "ZBV")
REQUIRED = ("n_dc", "pp", "t_fwd_s", "lat_over_tf", "bw_over_tf", "microbatches", "act_mem_budget", "schedule")


@dataclass(frozen=True)
class Row:
    """One measured cell: a schedule over sites with a delay, and its seconds per micro-batch."""

    num_sites: int
    num_ranks: int
    forward_s: float
    latency_s: float
    transfer_s: float
    num_microbatches: int
    budget: float
    recompute: bool
    schedule: str
    measured_s: float

    @property
    def delayed(self) -> bool:
        """Whether a hop between sites takes any time."""
        return self.latency_s > 0 or self.transfer_s > 0

    @property
    def cell(self) -> tuple[object, ...]:
        """Rows of one cell differ in the schedule alone."""
        return (
            self.num_sites,
            self.num_ranks,
            self.latency_s,
            self.transfer_s,
            self.num_microbatches,
            self.budget,
            self.recompute,
        )


@dataclass(frozen=True)
class Profile:
    """Backward of a stage in units of its forward, as the rows without delay say: whole, and the share of W in it."""

    backward_over_forward: float
    weight_share: float


@dataclass(frozen=True)
class Cell:
    """Our best schedule against the best published one, at the same memory."""

    row: Row
    best_published: str
    measured_s: float
    ours: str
    predicted_s: float


@dataclass(frozen=True)
class PipelineReport:
    """Errors by family, the ranking, and our schedule per cell. `pairs` counts pairs that differ by more than 5 %.

    `by_message` has the errors of schedules with asynchronous sends, by what a message takes in forwards: "0.25".
    """

    errors: ValidationReport
    by_message: Mapping[str, ErrorSummary]
    pairs: int
    pairs_right: int
    cells: tuple[Cell, ...]
    profile: Profile | None

    @property
    def ranking_share(self) -> float:
        """Pairs ranked as measured, of those that differ clearly."""
        return self.pairs_right / self.pairs if self.pairs else 0.0

    @property
    def cells_won(self) -> int:
        """Cells where our predicted time is below the best published measurement."""
        return sum(cell.predicted_s < cell.measured_s for cell in self.cells)

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        ranking = {"pairs": self.pairs, "right": self.pairs_right, "share": self.ranking_share}
        return {**self.errors.to_dict(), "ranking": ranking, "cells": len(self.cells), "cells_won": self.cells_won}


def validate_pipeline(
    rows: Iterable[Mapping[str, str]], *, schedule: Callable[[PipelineProblem], PipelineSchedule] = quick_schedule
) -> PipelineReport:
    """Predict every row whose schedule and numbers are known; name the reason for every other.

    `schedule` makes our own schedule of each cell: the portfolio by default, or the full search.
    """
    good, skipped = read_rows(rows)
    profile = fit_profile([row for row in good if not row.delayed])
    if profile is None:
        if good:
            skipped["no 1F1B row without delay to take the profile from"] = len(good)
        empty = ValidationReport(families={}, total=ErrorSummary(rows=0, skipped=skipped))
        return PipelineReport(empty, {}, 0, 0, (), None)
    predicted = [predict_s(row, profile) for row in good]
    builder, by_message = ReportBuilder(), ReportBuilder()
    for row, seconds in zip(good, predicted, strict=True):
        builder.add(f"{row.schedule} {'delayed' if row.delayed else 'zero delay'}", seconds, row.measured_s)
        if row.schedule not in STATIC:
            by_message.add(f"{row.transfer_s / row.forward_s:g}", seconds, row.measured_s)
    found = builder.build()
    report = replace(found, total=replace(found.total, skipped=skipped))
    pairs, right = rank_pairs(good, predicted)
    cells = tuple(_cells(good, profile, schedule))
    return PipelineReport(report, by_message.build().families, pairs, right, cells, profile)


def read_rows(rows: Iterable[Mapping[str, str]]) -> tuple[list[Row], dict[str, int]]:
    """Rows that can be predicted, and why the others cannot."""
    good: list[Row] = []
    skipped = Counter[str]()
    for row in rows:
        try:
            good.append(_read(row))
        except (KeyError, ValueError) as problem:
            skipped[str(problem).strip("'")] += 1
    return good, skipped


def _read(row: Mapping[str, str]) -> Row:
    for name in (*REQUIRED, "runtime_per_microbatch_s"):
        if not row.get(name):
            raise ValueError(f"column {name} is missing or empty")
    if row["schedule"] not in GENERATORS:
        raise ValueError(f"schedule {row['schedule']} is not known")
    forward_s = float(row["t_fwd_s"])
    return Row(
        num_sites=int(row["n_dc"]),
        num_ranks=int(row["pp"]),
        forward_s=forward_s,
        latency_s=float(row["lat_over_tf"]) * forward_s,
        transfer_s=float(row["bw_over_tf"]) * forward_s,
        num_microbatches=int(row["microbatches"]),
        budget=float(row["act_mem_budget"].split("x")[0]),
        recompute=row.get("recompute", "none") not in ("", "none"),
        schedule=row["schedule"],
        measured_s=float(row["runtime_per_microbatch_s"]),
    )


def fit_profile(rows: Sequence[Row]) -> Profile | None:
    """From rows without delay or recomputation: 1F1B gives F + B, and W's share is what fits the others best.

    1F1B takes (m + p - 1)(F + B) for m micro-batches on p ranks.
    """
    plain = [row for row in rows if not row.recompute]
    base = [row for row in plain if row.schedule == "1F1B"]
    if not base:
        return None
    ratios = []
    for row in base:
        rounds = (row.num_microbatches + row.num_ranks - 1) / row.num_microbatches
        ratios.append(row.measured_s / rounds / row.forward_s - 1)
    backward = float(np.median(ratios))
    others = [row for row in plain if row.schedule not in ("1F1B", "CrossUD", "CrossWave")]

    def misfit(share: float) -> float:
        profile = Profile(backward, share)
        return sum(abs(error_pct(predict_s(row, profile), row.measured_s)) for row in others)

    return Profile(backward, min((float(share) for share in WEIGHT_SHARES), key=misfit))


@lru_cache(maxsize=4096)
def predict_s(row: Row, profile: Profile) -> float:
    """Seconds per micro-batch of the row's schedule."""
    kind, names = GENERATORS[row.schedule]
    problem = problem_of(row, profile, kind)
    if row.schedule in STATIC:
        problem = problem.model_copy(update={"sends": "blocking"})
        return _static_makespan_s(problem, names) / row.num_microbatches
    return quick_schedule(problem, names).makespan_s / row.num_microbatches


def _static_makespan_s(problem: PipelineProblem, names: tuple[str, ...] | None) -> float:
    """A schedule that was made without knowing the delays, run with them."""
    shape = shape_of(problem)
    nothing = np.zeros(shape.num_stages)
    near = replace(shape, latency_s=nothing, transfer_s=nothing)
    best = min(candidates(near, "makespan", names), key=lambda one: one.value_s)
    order = with_messages(shape, best.order.rank_ops)
    assert order is not None, "delays never block an order"
    return replay_shape(shape, order).makespan_s


def problem_of(row: Row, profile: Profile, kind: str) -> PipelineProblem:
    """The pipeline of a row: equal stages, sites of equally many ranks in a line, memory in units of 1F1B's."""
    chunks = 2 if kind == "v" else 1
    forward_s = row.forward_s / chunks
    backward_s = forward_s * profile.backward_over_forward
    weight_s = backward_s * profile.weight_share
    again_s = forward_s if row.recompute else 0.0
    held = RECOMPUTED_ACTIVATION if row.recompute else 1.0
    stage = PipelineStage(
        forward_s=forward_s,
        input_grad_s=backward_s - weight_s + again_s,
        weight_grad_s=weight_s,
        activation_bytes=held / chunks,
        weight_grad_context_bytes=held / chunks,
    )
    rank = PipelineRank(activation_budget_bytes=row.budget * row.num_ranks)
    problem = PipelineProblem(
        num_microbatches=row.num_microbatches,
        ranks=(rank,) * row.num_ranks,
        layout="v" if kind == "v" else "one_way",
        stages=(stage,) * (row.num_ranks * chunks),
        backward="fused" if kind == "fused" else "split_allowed",
    )
    return problem.model_copy(update={"hops": _hops(row, problem.placement)})


def _hops(row: Row, placement: Sequence[int]) -> tuple[PipelineHop, ...]:
    per_site = -(-row.num_ranks // row.num_sites)
    sites = [rank // per_site for rank in placement]
    return tuple(
        PipelineHop(
            from_stage=stage,
            to_stage=stage + 1,
            latency_s=row.latency_s,
            transfer_s=row.transfer_s,
            link=f"site {min(here, there)} to {max(here, there)}",
        )
        for stage, (here, there) in enumerate(pairwise(sites))
        if here != there and row.delayed
    )


def rank_pairs(rows: Sequence[Row], predicted: Sequence[float]) -> tuple[int, int]:
    """Pairs of one cell whose measurements differ by more than 5 %, and how many are predicted in that order."""
    pairs = right = 0
    for (one, one_s), (two, two_s) in combinations(zip(rows, predicted, strict=True), 2):
        low, high = sorted((one.measured_s, two.measured_s))
        if one.cell != two.cell or high <= low * (1 + CLEAR_DIFFERENCE):
            continue
        pairs += 1
        right += (one_s < two_s) == (one.measured_s < two.measured_s)
    return pairs, right


def _cells(
    rows: Sequence[Row], profile: Profile, schedule: Callable[[PipelineProblem], PipelineSchedule]
) -> Iterable[Cell]:
    for cell in dict.fromkeys(row.cell for row in rows):
        published = min((row for row in rows if row.cell == cell), key=lambda row: row.measured_s)
        ours = []
        for kind in ("one_way", "v"):
            seconds = schedule(problem_of(published, profile, kind)).makespan_s / published.num_microbatches
            ours.append((seconds, kind))
        seconds, kind = min(ours)
        yield Cell(published, published.schedule, published.measured_s, kind, seconds)
