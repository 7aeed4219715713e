"""Compares predicted training iterations with measured ones: the error per family.

Profiles are chosen by each row's framework and GPU and nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.catalogue import entry_names
from models.stack import StackProfile, packaged_stack
from solver.calibration.predict import RunPrediction, predict
from solver.calibration.report import ReportBuilder, ValidationReport
from solver.calibration.rows import Run, SkipRow, run_of
from solver.cost.columns import columns_from
from solver.cost.layer import Setting
from solver.cost.uncertainty import common_errors, family_spread, total_spread

Rows = Sequence[Mapping[str, str]]
SUSPICIOUS = "suspicious"


@dataclass(frozen=True)
class Compared:
    """One row that counted."""

    run: Run
    prediction: RunPrediction

    @property
    def spread(self) -> float:
        """Standard deviation of ln(measured / predicted) that the profile expects of this run."""
        run = self.run
        columns = columns_from([self.prediction.knobs])
        errors = common_errors(Setting.of(run.job, run.gpu, run.fabric, run.stack, columns))[0]
        return total_spread(errors, family_spread(run.job, run.stack), run.stack.uncertainty.run_spread)


def packaged_stacks() -> tuple[StackProfile, ...]:
    """Every profile that ships with Isthmus."""
    return tuple(packaged_stack(name) for name in entry_names("stacks"))


def readable(rows: Rows, stacks: Sequence[StackProfile] | None = None) -> tuple[list[Run], list[tuple[str, str]]]:
    """The runs of the rows that can be used, and (family, reason) of every row left out."""
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
    return runs, skipped


def compare(rows: Rows, stacks: Sequence[StackProfile] | None = None) -> tuple[list[Compared], list[tuple[str, str]]]:
    """Readable rows with their predictions, and (family, reason) of every row left out."""
    runs, skipped = readable(rows, stacks)
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
