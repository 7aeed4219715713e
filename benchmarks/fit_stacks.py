"""Fits every software-stack profile to measured rows and writes the packaged JSON.

    python -m benchmarks.fit_stacks ROWS.csv [--only NAME,...] [--write]

Each row goes to the profile that its framework and GPU choose; a profile starts from its parent's fitted constants.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.stack_seeds import SEEDS, Seed
from models.catalogue import entry_names, named_entry
from models.stack import Constant, StackProfile
from solver.calibration.fit import fit_constants, with_constants
from solver.calibration.predict import predict
from solver.calibration.rows import Run, SkipRow, run_of, with_stack
from solver.cost.columns import FloatArray

INHERITED_TRUST = 0.5  # constants that a parent's rows fixed move half as freely as guessed ones
OUTPUT = Path(__file__).resolve().parent.parent / "models" / "catalogue" / "stacks"


def seeded(seed: Seed, fitted: Mapping[str, StackProfile]) -> StackProfile:
    """The profile a fit starts from: the parent's constants, then the seed's own."""
    base = fitted[seed.parent] if seed.parent else StackProfile(name=seed.name)
    inherited = {
        name: Constant(value=value.value, origin=value.origin, source=f"profile {seed.parent}: {value.source}"[:300])
        for name, value in base
        if isinstance(value, Constant) and value.origin == "fitted"
    }
    started = {
        name: Constant(value=value, origin="guessed", source=seed.start_source) for name, value in seed.start.items()
    }
    habits = base.habits.model_copy(update=seed.habits)
    update = {
        "name": seed.name,
        "description": seed.description,
        "frameworks": seed.frameworks,
        "gpus": seed.gpus,
        "released": seed.released,
        "is_fitted": bool(seed.free) and not seed.pool,
        "habits": habits,
        **inherited,
        **started,
        **seed.flags,
    }
    return StackProfile.model_validate(base.model_copy(update=update).model_dump())


def runs_by_stack(rows: Sequence[Mapping[str, str]], stacks: Sequence[StackProfile]) -> dict[str, list[Run]]:
    """Readable rows, by the profile they choose."""
    chosen: dict[str, list[Run]] = {stack.name: [] for stack in stacks}
    for row in rows:
        if "SUSPICIOUS" in row.get("notes", ""):
            continue
        try:
            run = run_of(row, stacks)
        except SkipRow:
            continue
        chosen[run.stack.name].append(run)
    return chosen


def fit_all(rows: Sequence[Mapping[str, str]], *, only: Sequence[str] = ()) -> dict[str, StackProfile]:
    """Every profile, parents first, fitted to the rows that choose it; without rows a profile keeps its start."""
    fitted: dict[str, StackProfile] = {}
    skeleton: dict[str, StackProfile] = {}
    for seed in SEEDS:
        skeleton[seed.name] = seeded(seed, skeleton)
    chosen = runs_by_stack(rows, tuple(skeleton.values()))
    for seed in SEEDS:
        chosen[seed.name] += [run for member in seed.pool for run in chosen[member]]
    for seed in SEEDS:
        wanted = not only or seed.name in only or any(member in only for member in seed.pool)
        if not wanted and seed.name in entry_names("stacks"):
            fitted[seed.name] = StackProfile.model_validate(named_entry("stacks", seed.name))
            continue
        stack = seeded(seed, fitted)
        runs = chosen[seed.name]
        fitted[seed.name] = _fit_one(stack, seed, runs) if runs and seed.free else stack
    return {seed.name: fitted[seed.name] for seed in SEEDS if not seed.pool}


def _fit_one(stack: StackProfile, seed: Seed, runs: Sequence[Run]) -> StackProfile:
    measured = np.array([run.measured_s for run in runs])

    def times(trial: StackProfile, indices: Sequence[int]) -> FloatArray:
        return np.array([one.iteration_s for one in predict(with_stack([runs[i] for i in indices], trial))])

    trust = INHERITED_TRUST if seed.parent else 1.0
    values = fit_constants(stack, seed.free, measured, times, rows=range(len(runs)), sigma_scale=trust)
    rounded = {name: float(f"{value:.4g}") for name, value in values.items()}
    families = ", ".join(f"{name} ({count})" for name, count in sorted(Counter(run.family for run in runs).items()))
    return with_constants(stack, rounded, source=f"least squares on measured iteration times: {families}"[:300])


def write(stacks: Mapping[str, StackProfile], folder: Path) -> None:
    """One JSON per profile."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, stack in stacks.items():
        text = json.dumps(stack.model_dump(mode="json"), indent=2)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Fit the packaged software-stack profiles.")
    parser.add_argument("rows", type=Path, help="CSV with the columns of measured training data")
    parser.add_argument("--only", default="", help="names of profiles to fit, comma separated; others stay as packaged")
    parser.add_argument("--write", action="store_true", help="write the packaged JSON")
    options = parser.parse_args(arguments)
    only = [name for name in options.only.split(",") if name]
    with options.rows.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    stacks = fit_all(rows, only=only)
    for stack in (one for name, one in stacks.items() if not only or name in only):
        constants = {n: v.value for n, v in stack if isinstance(v, Constant) and v.origin == "fitted"}
        sys.stdout.write(f"{stack.name}: {json.dumps(constants)}\n")
    if options.write:
        write({name: stack for name, stack in stacks.items() if not only or name in only}, OUTPUT)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
