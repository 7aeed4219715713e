"""Fits the constants of all software at once and writes the packaged profiles.

    python -m benchmarks.fit_stacks ROWS.csv [--write]

The spreads in the profiles come from leaving one family of runs out at a time.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.fit.deck import Deck
from benchmarks.fit.hierarchy import Hierarchy
from benchmarks.fit.software import cells_to_package, packaged
from benchmarks.left_out import left_out_runs, readable, report_of, spreads
from benchmarks.training_tables import training_table
from models.stack import Constant, StackProfile
from solver.calibration.priors import PRIORS

OUTPUT = Path(__file__).resolve().parent.parent / "models" / "catalogue" / "stacks"


def fit_all(rows: Sequence[Mapping[str, str]]) -> list[StackProfile]:
    """Every packaged profile, fitted to the rows."""
    runs = readable(rows)
    plan = Hierarchy(Deck(runs, tuple(PRIORS)), cells_to_package())
    fit = plan.fit()
    left_out = left_out_runs(plan, fit)
    sys.stdout.write(training_table(report_of(left_out)) + "\n")
    return packaged(plan, fit, runs, spreads(left_out))


def write(stacks: Sequence[StackProfile], folder: Path) -> None:
    """One JSON per profile, and none beside."""
    for old in folder.glob("*.json"):
        old.unlink()
    for stack in stacks:
        fields = stack.model_dump(mode="json").items()
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in fields)
        (folder / f"{stack.name}.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Fit the packaged software-stack profiles.")
    parser.add_argument("rows", type=Path, help="CSV with the columns of measured training data")
    parser.add_argument("--write", action="store_true", help="write the packaged JSON")
    options = parser.parse_args(arguments)
    with options.rows.open(encoding="utf-8", newline="") as handle:
        stacks = fit_all(list(csv.DictReader(handle)))
    for stack in stacks:
        constants = {name: value.value for name, value in stack if isinstance(value, Constant)}
        sys.stdout.write(f"{stack.name}: {json.dumps(constants)}\n")
    if options.write:
        write(stacks, OUTPUT)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
