"""Predicts iteration time and memory of measured runs.

Where a source leaves a choice unstated, the fastest that fits in memory is taken, as a tuned run would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.stack import StackProfile
from solver.arrays import FloatArray
from solver.calibration.rows import Run, RunConfiguration
from solver.calibration.stacked import stacked, structure
from solver.cost.columns import RECOMPUTE_CODES, SHARDING_CODES, Columns, columns_from
from solver.cost.estimate import RankLayers, iteration_estimate, rank_layers
from solver.cost.job import Job
from solver.cost.layer import Setting
from solver.cost.memory import Schedule

MEMORY_SHARE = 0.95  # of HBM: what a run may use before an unstated choice counts as too large
MICRO_BATCHES = (1, 2, 4, 8, 16)  # sequences, tried where a source leaves them unstated
CHUNKS = (1, 2, 3, 4, 5, 6, 8, 10, 12)  # per rank, likewise


@dataclass(frozen=True)
class RunPrediction:
    """What the model says of one run, and the knobs it assumed."""

    iteration_s: float
    peak_bytes: float
    knobs: dict[str, int]


def schedule_of(knobs: RunConfiguration) -> Schedule:
    """The schedule whose bubble applies."""
    if knobs.schedule.startswith("zb-2p"):
        return "zb_h2"
    if knobs.schedule.startswith("zb"):
        return "zb_h1"
    return "dualpipe" if "dualpipe" in knobs.schedule else "1f1b"


def candidates(run: Run) -> list[dict[str, int]]:
    """Every configuration that agrees with what the source states, first those that recompute least.

    Where recomputation is not stated, each comes twice: without and with it (see `chosen`).
    """
    knobs, workload = run.knobs, run.workload
    per_replica = max(workload.global_batch_sequences / knobs.dp, 1)
    sizes = [knobs.micro_batch] if knobs.micro_batch else [b for b in MICRO_BATCHES if per_replica % b == 0] or [1]
    modes = [knobs.recompute] if knobs.recompute else ["none", "full"]
    shared = {name: getattr(knobs, name) for name in ("tp", "cp", "ep", "pp", "dp")}
    return [
        {
            **shared,
            "vpp": vpp,
            "micro_batch": size,
            "num_microbatches": math.ceil(per_replica / size),
            "sharding": SHARDING_CODES.index(knobs.sharding),
            "shard_group": knobs.shard_group or knobs.dp,
            "recompute": RECOMPUTE_CODES.index(mode),
        }
        for mode in modes
        for size in sizes
        for vpp in _chunk_counts(run)
    ]


def _chunk_counts(run: Run) -> list[int]:
    layers = math.ceil(run.workload.architecture.num_layers / run.knobs.pp)
    if run.knobs.one_layer_per_chunk:
        return [layers]
    if run.knobs.vpp is not None:
        return [run.knobs.vpp]
    return [count for count in CHUNKS if layers % count == 0]


def layers_of(runs: Sequence[Run], job: Job, columns: Columns) -> RankLayers:
    """How the layers of each row's run are split: as stated, else evenly."""
    even = rank_layers(job.num_layers, columns)
    first, inner, last = even.first.copy(), even.inner.copy(), even.last.copy()
    for row, run in enumerate(runs):
        if stated := run.knobs.stage_layers:
            first[row], last[row] = stated[0], stated[-1]
            inner[row] = max(stated[1:-1], default=stated[0])
    return RankLayers(first, inner, last)


def predict(runs: Sequence[Run]) -> list[RunPrediction]:
    """One prediction per run, in order. Runs whose jobs share their structure are evaluated together."""
    groups: dict[object, list[tuple[int, Run]]] = {}
    stacks: list[StackProfile] = []
    for index, run in enumerate(runs):
        if run.stack not in stacks:
            stacks.append(run.stack)
        key = (structure(run.job), run.gpu, run.fabric, stacks.index(run.stack), schedule_of(run.knobs))
        groups.setdefault(key, []).append((index, run))
    found: dict[int, RunPrediction] = {}
    for members in groups.values():
        found.update(_predict_group(members))
    return [found[index] for index in range(len(runs))]


def _predict_group(members: list[tuple[int, Run]]) -> dict[int, RunPrediction]:
    rows: list[dict[str, int]] = []
    owners: list[int] = []
    jobs: list[Job] = []
    for index, one in members:
        options = candidates(one)
        rows += options
        owners += [index] * len(options)
        jobs += [one.job] * len(options)
    run, job, columns = members[0][1], stacked(jobs), columns_from(rows)
    of = dict(members)
    layers = layers_of([of[index] for index in owners], job, columns)
    at = Setting.of(job, run.gpu, run.fabric, run.stack, columns)
    estimate = iteration_estimate(at, schedule=schedule_of(run.knobs), layers=layers)
    owner = np.array(owners)
    found = {}
    for index, one in members:
        mine = np.flatnonzero(owner == index)
        pick = chosen(one, estimate.iteration_s[mine], estimate.peak_bytes[mine])
        found[index] = RunPrediction(pick.iteration_s, pick.peak_bytes, rows[mine[pick.blend[0][0]]])
    return found


@dataclass(frozen=True)
class Choice:
    """What a run is taken to have run: rows of its candidates with their shares of the time."""

    iteration_s: float
    peak_bytes: float
    blend: tuple[tuple[int, float], ...]


def chosen(run: Run, seconds: FloatArray, peak: FloatArray) -> Choice:
    """The fastest candidate that fits, or the smallest where none does.

    Where recomputation is not stated, as few layers are recomputed as memory needs: between none (first half of the
    candidates) and all (second half).
    """
    limit = MEMORY_SHARE * run.gpu.memory_bytes
    half = 0
    share = np.zeros(len(seconds))
    if run.knobs.recompute is None:
        half = len(seconds) // 2
        saved = np.maximum(peak[:half] - peak[half:], 1.0)
        share = np.clip((peak[:half] - limit) / saved, 0.0, 1.0)
        seconds = seconds[:half] + share * (seconds[half:] - seconds[:half])
        peak = peak[:half] - share * saved
    fits = peak <= limit * (1.0 + 1e-9)
    best = int(np.argmin(np.where(fits, seconds, np.inf))) if fits.any() else int(np.argmin(peak))
    blend: tuple[tuple[int, float], ...] = ((best, 1.0),)
    if half:
        blend = ((best, 1.0 - float(share[best])), (best + half, float(share[best])))
    return Choice(float(seconds[best]), float(peak[best]), blend)
