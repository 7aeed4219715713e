"""Tables of docs/accuracy.md on training: errors of time and memory, and how well measured plans are ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import spearmanr

from benchmarks.measured_pipelines import CLEAR_DIFFERENCE
from models.stack import StackProfile
from solver.calibration.report import ErrorSummary, ReportBuilder, ValidationReport
from solver.calibration.rows import Run
from solver.calibration.training import Compared, Rows, compare, validate_training

PLANS_OF_A_CHOICE = 8  # a group with fewer plans of one model and batch says little about choosing
NEWER_GPUS = ("B200", "GB200", "B300", "GB300")
CHOICE_NOTE = """Regret: the measured time of the plan that is predicted to be fastest, over the fastest measured; below
the 2 to 4 % by which runs of one stack differ it is a tie. Clear pairs differ by more than 5 % as measured"""
MEMORY_NOTE = """Sailor reports what PyTorch's allocator reserved, not what was in use: stages of the same layers,
micro-batch and degrees are published with 26.6 and 34.8 GiB. Copies of weights that DeepSpeed makes are not in it."""


@dataclass(frozen=True)
class PlanChoice:
    """How well the model ranks the measured plans of one model on one number of GPUs."""

    group: str
    num_plans: int
    spearman: float
    regret_pct: float
    clear_pairs: int
    clear_right: int


def validate_memory(rows: Rows, stacks: Sequence[StackProfile] | None = None) -> ValidationReport:
    """Error of the predicted peak memory, on the rows that give one."""
    builder = ReportBuilder()
    for one in compare(rows, stacks)[0]:
        if one.run.measured_memory_bytes:
            builder.add(one.run.family, one.prediction.peak_bytes, one.run.measured_memory_bytes)
    return builder.build()


def plan_choices(compared: Sequence[Compared]) -> list[PlanChoice]:
    """Groups of many plans for one job: rank correlation, and measured time of the chosen plan over the best."""
    groups: dict[str, list[Compared]] = {}
    for one in compared:
        run = one.run
        name = f"{run.family}: {run.model}, {run.num_gpus} GPUs, batch {run.workload.global_batch_sequences}"
        groups.setdefault(name, []).append(one)
    return [
        _choice(name, members)
        for name, members in sorted(groups.items())
        if len(members) >= PLANS_OF_A_CHOICE and len({one.run.knobs for one in members}) > len(members) // 2
    ]


def _choice(name: str, members: Sequence[Compared]) -> PlanChoice:
    predicted = np.array([one.prediction.iteration_s for one in members])
    measured = np.array([one.run.measured_s for one in members])
    correlation = float(spearmanr(predicted, measured).statistic)
    chosen = float(measured[int(np.argmin(predicted))])
    pairs = [
        (predicted[one] < predicted[two]) == (measured[one] < measured[two])
        for one, two in combinations(range(len(members)), 2)
        if abs(measured[one] - measured[two]) > CLEAR_DIFFERENCE * min(measured[one], measured[two])
    ]
    regret_pct = 100.0 * (chosen / float(measured.min()) - 1.0)
    return PlanChoice(name, len(members), correlation, regret_pct, len(pairs), sum(map(bool, pairs)))


def is_newer(run: Run) -> bool:
    """Blackwell, experts, or 8 bits and less."""
    return (
        run.gpu.name.startswith(NEWER_GPUS)
        or run.workload.architecture.moe is not None
        or run.workload.precision in ("fp8", "fp4")
    )


def has_full_plan(run: Run) -> bool:
    """An A100 or H100 run whose source states micro-batch and recomputation."""
    stated = run.knobs.micro_batch is not None and run.knobs.recompute is not None
    return stated and run.gpu.name.startswith(("A100", "H100")) and not is_newer(run)


def cross_cut(compared: Sequence[Compared]) -> ValidationReport:
    """The same errors cut another way: rows with a full plan, and the newer rows."""
    builder = ReportBuilder()
    for one in compared:
        if has_full_plan(one.run):
            builder.add("A100/H100 with a full plan", one.prediction.iteration_s, one.run.measured_s)
        if is_newer(one.run):
            builder.add("newer (Blackwell, MoE, FP8 and less)", one.prediction.iteration_s, one.run.measured_s)
    return builder.build()


def accuracy_tables(rows: Rows, stacks: Sequence[StackProfile] | None = None) -> str:
    """Markdown tables of every figure, for docs/accuracy.md."""
    compared, _ = compare(rows, stacks)
    sections = [
        ("Iteration time", training_table(validate_training(rows, stacks))),
        ("Iteration time, other cuts", training_table(cross_cut(compared), with_total=False)),
        ("Peak memory", f"{training_table(validate_memory(rows, stacks))}\n\n{MEMORY_NOTE}"),
        ("Plan choice", _choice_table(plan_choices(compared))),
    ]
    return "\n\n".join(f"## {title}\n\n{table}" for title, table in sections) + "\n"


def training_table(report: ValidationReport, *, with_total: bool = True) -> str:
    """A Markdown table: one line per family, and the total."""
    lines = [
        "| family | rows | mean abs % | median abs % | bias % | worst % | 10-90 % holds | half width % | skipped |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    named = sorted(report.families.items()) + ([("total", report.total)] if with_total else [])
    return "\n".join(lines + [_line(name, summary) for name, summary in named])


def _line(name: str, summary: ErrorSummary) -> str:
    reasons = "; ".join(f"{count}: {reason}" for reason, count in sorted(summary.skipped.items()))
    figures = (summary.mean_abs_pct, summary.median_abs_pct, summary.bias_pct, summary.worst_pct)
    holds = "" if summary.coverage_80 is None else f"{100 * summary.coverage_80:.0f} %"
    width = "" if summary.half_width_pct is None else f"{summary.half_width_pct:.1f}"
    cells = [name, str(summary.rows), *(f"{figure:.2f}" for figure in figures), holds, width, reasons]
    return "| " + " | ".join(cells) + " |"


def _choice_table(choices: Sequence[PlanChoice]) -> str:
    lines = ["| group | plans | Spearman | regret % | clear pairs | ranked right |", "|---|---:|---:|---:|---:|---:|"]
    for one in choices:
        lines.append(
            f"| {one.group} | {one.num_plans} | {one.spearman:.3f} | {one.regret_pct:.2f} | {one.clear_pairs} | "
            f"{100 * one.clear_right / one.clear_pairs:.1f} % |"
        )
    pairs, right = (sum(getattr(one, name) for one in choices) for name in ("clear_pairs", "clear_right"))
    return "\n".join(lines) + f"\n\n{CHOICE_NOTE}: {right} of {pairs} ({100 * right / max(pairs, 1):.1f} %)."
