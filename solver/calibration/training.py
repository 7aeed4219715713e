"""Compares predicted training iterations with measured ones: error, memory and plan choice per family.

Owns the comparison; profiles are chosen by each row's framework and GPU and nothing is fitted. Never reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from models.catalogue import entry_names
from models.stack import StackProfile, packaged_stack
from solver.calibration.predict import Prediction, predict
from solver.calibration.report import ErrorSummary, ReportBuilder, ValidationReport
from solver.calibration.rows import Run, SkipRow, run_of
from solver.cost.columns import columns_from
from solver.cost.uncertainty import common_errors, total_spread

Rows = Sequence[Mapping[str, str]]
SUSPICIOUS = "suspicious"
PLANS_OF_A_CHOICE = 8  # a group with fewer plans of one model and batch says little about choosing
MEMORY_NOTE = """Sailor reports what PyTorch's allocator reserved, not what was in use: stages of the same layers,
micro-batch and degrees are published with 26.6 and 34.8 GiB. Copies of weights that DeepSpeed makes are not in it."""
NEWER_GPUS = ("B200", "GB200", "B300", "GB300")


@dataclass(frozen=True)
class Compared:
    """One row that counted."""

    run: Run
    prediction: Prediction

    @property
    def error_pct(self) -> float:
        """Signed error of the iteration time."""
        return 100.0 * (self.prediction.iteration_s / self.run.measured_s - 1.0)

    @property
    def spread(self) -> float:
        """Standard deviation of ln(measured / predicted) that the profile expects of this run."""
        run, known = self.run, self.run.stack.uncertainty
        columns = columns_from([self.prediction.knobs])
        errors = common_errors(run.job, run.gpu, run.fabric, run.stack, columns)[0]
        family = known.family_spread_moe if run.job.num_moe_layers else known.family_spread_dense
        return total_spread(errors, family, known.run_spread)


@dataclass(frozen=True)
class PlanChoice:
    """How well the model ranks the measured plans of one model on one number of GPUs."""

    group: str
    num_plans: int
    spearman: float
    regret_pct: float


def packaged_stacks() -> tuple[StackProfile, ...]:
    """Every profile that ships with Isthmus."""
    return tuple(packaged_stack(name) for name in entry_names("stacks"))


def compare(rows: Rows, stacks: Sequence[StackProfile] | None = None) -> tuple[list[Compared], list[tuple[str, str]]]:
    """Readable rows with their predictions, and (family, reason) of every row left out."""
    profiles = packaged_stacks() if stacks is None else stacks
    runs: list[Run] = []
    skipped: list[tuple[str, str]] = []
    for row in rows:
        family = (row.get("family") or "").strip() or "unnamed"
        if SUSPICIOUS in (row.get("notes") or "").lower():
            skipped.append((family, "the source's own notes mark the row as suspicious"))
            continue
        try:
            runs.append(run_of(row, profiles))
        except (SkipRow, ValueError) as error:
            reason = str(error) if isinstance(error, SkipRow) else "a cell is not usable"
            skipped.append((family, reason))
    return [Compared(run, one) for run, one in zip(runs, predict(runs), strict=True)], skipped


def validate_training(rows: Rows, stacks: Sequence[StackProfile] | None = None) -> ValidationReport:
    """Error of the predicted iteration time per family and in total."""
    compared, skipped = compare(rows, stacks)
    builder = ReportBuilder()
    for one in compared:
        builder.add(one.run.family, one.prediction.iteration_s, one.run.measured_s, one.spread)
    for family, reason in skipped:
        builder.skip(family, reason)
    return builder.build()


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
    return PlanChoice(name, len(members), correlation, 100.0 * (chosen / float(measured.min()) - 1.0))


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
    lines = ["| group | plans | Spearman | regret % |", "|---|---:|---:|---:|"]
    for one in choices:
        lines.append(f"| {one.group} | {one.num_plans} | {one.spearman:.3f} | {one.regret_pct:.2f} |")
    return "\n".join(lines)
