"""Measured runs beside their predictions as the data of the desk's accuracy page, one row per run, by class.

The predictions are those of `solver.calibration.training`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from models.stack import generation_of
from solver.calibration.training import Compared, compare

DATA = Path(__file__).parent.parent / "app" / "web" / "static" / "desk" / "runs.json"
MAX_SOURCE = 110  # characters: the page is to stay small


def runs_data(rows: Sequence[Mapping[str, str]]) -> str:
    """The JSON that the page reads: every run that counts, a line each."""
    sources = {row.get("id", ""): row.get("source", "") for row in rows}
    lines = (json.dumps(_run(one, sources.get(one.run.id, "")), ensure_ascii=False) for one in compare(rows)[0])
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _run(one: Compared, source: str) -> dict[str, str | float]:
    run, degrees = one.run, one.run.knobs
    return {
        "generation": generation_of(run.gpu.name),
        "kind": "moe" if run.job.num_moe_layers else "dense",
        "precision": run.workload.precision,
        "family": run.family,
        "model": run.model,
        "gpus": f"{run.num_gpus:,} {run.gpu.name}",
        "degrees": f"tp {degrees.tp} pp {degrees.pp} dp {degrees.dp}",
        "measured_s": float(f"{run.measured_s:.4g}"),
        "predicted_s": float(f"{one.prediction.iteration_s:.4g}"),
        "source": source if len(source) <= MAX_SOURCE else source[: MAX_SOURCE - 1] + "…",
    }
