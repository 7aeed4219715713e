"""Errors of the cost, network and pipeline models against measured rows, as tables.

`python -m benchmarks.accuracy FOLDER` reads the `measured_*.csv` of a folder and prints the tables. A folder that has
all of them also gives docs/accuracy.md and the data of the desk's page. The profiles are those that ship; only where a
family is left out are constants fitted, to the others.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import accuracy_page, accuracy_runs, cross_site
from benchmarks.leave_one_out import table as left_out_table
from benchmarks.measured_network import validate_network
from benchmarks.measured_pipelines import PipelineReport, validate_pipeline
from benchmarks.training_tables import accuracy_tables
from models.schedule import PipelineProblem, PipelineSchedule
from solver.calibration.report import ErrorSummary, ValidationReport
from solver.pipeline.solve import solve_pipeline

SEARCH_S = 20.0
MEASURED = ("training", "network", "crossdc_pipeline")  # the files of the document, as measured_NAME.csv
TARGET = Path(__file__).parent.parent / "docs" / "accuracy.md"
HEAD = """# Accuracy

Predictions against published measurements, in percent. `make accuracy DATA=FOLDER` writes this from a folder with
measured_training.csv, measured_network.csv and measured_crossdc_pipeline.csv; `make accuracy` prints the tables whose
rows are in the repository, of networks and of runs across sites. One fit of all software, never per row. Training runs
of your own, in the same columns: `isthmus accuracy training ROWS.csv`.
"""
LEFT_OUT_NOTE = """What to expect of runs of a kind that nobody measured: every family is predicted by constants fitted
to the others, and its 10 to 90 % interval has the spread that the others showed. Facts about software that move a prior
(`benchmarks/fit/shifts.py`) stay.
"""
PIPELINE_NOTE = """Two sites, 8 pipeline ranks, delays emulated on one cluster. One stage profile for all rows, from
the rows without delay. "CrossUD", "CrossUDSub" and "CrossWave" are compared with our schedules of the same layout and
memory, so a negative bias there is a faster schedule, predicted, not measured. Assumed, and unfavourable to us: with
layer-wise recomputation a micro-batch still holds half of its activations. The static schedules 1F1B, ZBH1 and ZBV are
predicted in their own order, made without knowing the delays, with blocking sends
([frameworks](frameworks.md)). Rows of the other three are {quarter.mean_abs_pct:.1f} % off in the mean where a message
takes a quarter of a forward, and {two.mean_abs_pct:.0f} % where it takes two (bias {two.bias_pct:.0f} %, worst
{two.worst_pct:.0f} %). Thin links were emulated by kernels that spin on both GPUs (arXiv 2507.00217, on its engine),
beside what these schedules compute meanwhile: a likely cause, no part of a real link, and not modelled. "Ours" in the
table of cells is the schedule that `isthmus schedule` finds in {search_s:g} s; predicted, not measured.
"""  # of rows by what a message takes in forwards: a quarter, two
NO_ROWS = ErrorSummary(rows=0)


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def table_of(report: ValidationReport) -> str:
    """One line per family and the total."""
    head = "| family | rows | mean abs % | median abs % | bias % | worst % |\n|---|---:|---:|---:|---:|---:|\n"
    lines = [_line(name, one) for name, one in [*report.families.items(), ("**total**", report.total)]]
    skipped = "".join(f"\nSkipped {count}: {reason}." for reason, count in report.total.skipped.items())
    return head + "\n".join(lines) + "\n" + skipped


def _line(name: str, one: ErrorSummary) -> str:
    figures = (one.mean_abs_pct, one.median_abs_pct, one.bias_pct, one.worst_pct)
    return f"| {name} | {one.rows} | " + " | ".join(f"{value:.2f}" for value in figures) + " |"


def document(folder: Path) -> str:
    """All tables for the files that the folder has."""
    parts = [HEAD]
    training, network, pipeline = (_file_of(folder, name) for name in MEASURED)
    if training.exists():
        parts.append(f"## Training\n\n{accuracy_tables(rows_of(training))}")
        parts.append(
            f"## Training, each family left out of the fit\n\n{LEFT_OUT_NOTE}\n{left_out_table(rows_of(training))}"
        )
    if network.exists():
        parts.append(f"## Network\n\n{table_of(validate_network(rows_of(network)))}")
    if pipeline.exists():
        parts.append(f"## Pipeline schedules across sites\n\n{_pipeline(rows_of(pipeline))}")
    parts.append(f"## Runs across sites that nobody fitted\n\n{cross_site.table(cross_site.published())}")
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _file_of(folder: Path, name: str) -> Path:
    return folder / f"measured_{name}.csv"


def _pipeline(rows: Sequence[dict[str, str]]) -> str:
    report = validate_pipeline(rows, schedule=_searched)
    ranking = (
        f"Pairs of schedules of one cell that differ by more than 5 %: {report.pairs_right} of {report.pairs} ranked "
        f"as measured ({100 * report.ranking_share:.1f} %). Cells where our predicted schedule beats the best "
        f"published row at the same memory: {report.cells_won} of {len(report.cells)}."
    )
    return f"{_pipeline_note(report)}\n{table_of(report.errors)}\n{ranking}\n\n{_cells(report)}"


def _pipeline_note(report: PipelineReport) -> str:
    """What the tables of pipelines mean, with the errors of rows by their messages."""
    quarter, two = (report.by_message.get(name, NO_ROWS) for name in ("0.25", "2"))
    return PIPELINE_NOTE.format(quarter=quarter, two=two, search_s=SEARCH_S)


def _searched(problem: PipelineProblem) -> PipelineSchedule:
    """Our own schedule, with the time limit of the table."""
    options = problem.options.model_copy(update={"time_limit_s": SEARCH_S})
    return solve_pipeline(problem.model_copy(update={"options": options}))


def _cells(report: PipelineReport) -> str:
    """Ours, predicted, against the best published row of every cell, measured."""
    head = (
        "| latency s | transfer s | micro-batches | memory | recompute | best published | measured s | ours | "
        "predicted s |\n|---:|---:|---:|---|---|---|---:|---|---:|\n"
    )
    return head + "\n".join(
        f"| {cell.row.latency_s:.4f} | {cell.row.transfer_s:.4f} | {cell.row.num_microbatches} | {cell.row.budget} | "
        f"{cell.row.recompute} | {cell.best_published} | {cell.measured_s:.3f} | {cell.ours} | {cell.predicted_s:.3f} |"
        for cell in report.cells
    )


def main() -> int:
    """Print the tables, and write the pages where the folder has the rows of all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("tests/published/data"))
    arguments = parser.parse_args()
    if not any(arguments.folder.glob("measured_*.csv")):
        sys.stderr.write(f"{arguments.folder} holds no measured_training.csv, measured_network.csv or similar\n")
        return 2
    text = document(arguments.folder)
    sys.stdout.write(text)
    files = [_file_of(arguments.folder, name) for name in MEASURED]
    missing = ", ".join(file.name for file in files if not file.exists())
    if missing:
        sys.stderr.write(f"{TARGET.name} is left as it is: {arguments.folder} lacks {missing}\n")
        return 0
    TARGET.write_text(text, encoding="utf-8")
    accuracy_page.DATA.write_text(accuracy_page.page_data(text), encoding="utf-8")
    accuracy_runs.DATA.write_text(accuracy_runs.runs_data(rows_of(files[0])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
