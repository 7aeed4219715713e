"""How far predictions lie from families of runs that no profile was fitted to.

    python -m benchmarks.leave_one_out ROWS.csv [--families NAME,...]

For each family its rows are removed, every profile they had a part in is fitted again from its seed (a profile
without rows keeps its parent's constants), and the family is predicted.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.fit_stacks import fit_all
from solver.calibration.report import ErrorSummary
from solver.calibration.training import compare, packaged_stacks, validate_training

Rows = Sequence[Mapping[str, str]]


def held_out(rows: Rows, family: str) -> ErrorSummary:
    """Errors on `family` of profiles that never saw it."""
    inside = [row for row in rows if row["family"] == family]
    outside = [row for row in rows if row["family"] != family]
    affected = {one.run.stack.name for one in compare(inside, packaged_stacks())[0]}
    if not affected:
        return validate_training(inside).families[family]
    stacks = fit_all(outside, only=sorted(affected))
    return validate_training(inside, tuple(stacks.values())).families[family]


def main(arguments: Sequence[str]) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Leave one family of measured runs out of the fit at a time.")
    parser.add_argument("rows", type=Path, help="CSV with the columns of measured training data")
    parser.add_argument("--families", default="", help="only these, comma separated")
    options = parser.parse_args(arguments)
    with options.rows.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    families = [name for name in options.families.split(",") if name] or sorted({row["family"] for row in rows})
    sys.stdout.write("| family left out | rows | mean abs % | median abs % | bias % | worst % |\n")
    sys.stdout.write("|---|---:|---:|---:|---:|---:|\n")
    means: list[tuple[int, float]] = []
    for family in families:
        one = held_out(rows, family)
        figures = (one.mean_abs_pct, one.median_abs_pct, one.bias_pct, one.worst_pct)
        sys.stdout.write(f"| {family} | {one.rows} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |\n")
        sys.stdout.flush()
        means.append((one.rows, one.mean_abs_pct))
    counted = [(count, mean) for count, mean in means if count]
    if counted:
        by_row = sum(count * mean for count, mean in counted) / sum(count for count, _ in counted)
        by_family = sum(mean for _, mean in counted) / len(counted)
        sys.stdout.write(f"\nmean over rows {by_row:.2f} %, mean over families {by_family:.2f} %\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
