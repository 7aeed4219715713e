"""How far predictions lie from families of runs that no constant was fitted to, and how their intervals do.

    python -m benchmarks.leave_one_out ROWS.csv

Each family is predicted by a fit of all others; the spread between families in its intervals is that of all others too.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.fit.deck import Deck
from benchmarks.fit.hierarchy import Hierarchy
from benchmarks.left_out import left_out_runs, readable, report_of
from benchmarks.training_tables import training_table
from solver.calibration.priors import PRIORS

Rows = Sequence[Mapping[str, str]]


def table(rows: Rows) -> str:
    """One line per family that was left out, and the totals over rows and over families."""
    plan = Hierarchy(Deck(readable(rows), tuple(PRIORS)))
    report = report_of(left_out_runs(plan, plan.fit()))
    means = [one.mean_abs_pct for one in report.families.values()]
    medians = [one.median_abs_pct for one in report.families.values()]
    over = f"Families alike: {sum(means) / len(means):.2f} % mean, {sum(medians) / len(medians):.2f} % mean of medians."
    return f"{training_table(report)}\n\n{over}\n"


def main(arguments: Sequence[str]) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Leave one family of measured runs out of the fit at a time.")
    parser.add_argument("rows", type=Path, help="CSV with the columns of measured training data")
    options = parser.parse_args(arguments)
    with options.rows.open(encoding="utf-8", newline="") as handle:
        sys.stdout.write(table(list(csv.DictReader(handle))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
