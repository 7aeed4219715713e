"""Closed-form iteration time and peak memory of a job inside one building, for whole columns of configurations.

An estimate: what counts is the replay of a real schedule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.cost.collectives import boundary_message_s, exposed_s
from solver.cost.columns import Columns
from solver.cost.data_parallel import step_traffic
from solver.cost.layer import Setting
from solver.cost.memory import Schedule, peak_activations, static_memory
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import PART_KINDS, Counts, PartKind, StageCost, part_cost, stage_of


@dataclass(frozen=True)
class Estimate:
    """Iteration time, and the memory of the fullest rank."""

    iteration_s: FloatArray
    peak_bytes: FloatArray


@dataclass(frozen=True)
class RankLayers:
    """Layers of three kinds of ranks when an uneven split spares the ends: first, inner and last."""

    first: FloatArray
    inner: FloatArray
    last: FloatArray


def rank_layers(num_layers: int, columns: Columns) -> RankLayers:
    """Ceil(L / (p v)) layers per chunk; slots left over are taken from the last and the first rank in turn.

    The ends also carry logits and embedding, so frameworks give them fewer layers (arXiv 2401.10241, 4.1).
    """
    chunks = columns.pp * columns.vpp
    inner = np.ceil(num_layers / chunks) * columns.vpp
    spare = inner * columns.pp - num_layers
    at_ends = np.minimum(spare, inner)
    last = np.where(columns.pp > 1, np.maximum(inner - np.ceil(at_ends / 2), 0.0), num_layers)
    first = np.where(columns.pp > 1, np.maximum(inner - np.floor(at_ends / 2), 0.0), num_layers)
    return RankLayers(first, np.where(columns.pp > 1, inner, num_layers), last)


def _chosen(index: IntArray, stages: Sequence[StageCost]) -> StageCost:
    """Row by row the stage of this index."""
    return StageCost(**{f.name: np.choose(index, [getattr(one, f.name) for one in stages]) for f in fields(StageCost)})


@dataclass(frozen=True)
class Pipeline:
    """The first, inner and last rank of a replica, all their chunks together, and the slowest of them.

    `message_s` is one boundary message; `exposed_message_s` what the slowest rank waits for messages per micro-batch.
    """

    first: StageCost
    inner: StageCost
    last: StageCost
    slowest: StageCost
    fill_s: FloatArray
    message_s: FloatArray
    exposed_message_s: FloatArray


def pipeline_of(at: Setting, *, layers: RankLayers | None = None) -> Pipeline:
    """Costs per micro-batch of the three kinds of ranks; `layers` where the split is known."""
    job, columns = at.job, at.columns
    layers = layers or rank_layers(job.num_layers, columns)
    moe_share = job.num_moe_layers / job.num_layers
    counted = {"dense": job.num_dense_layers, "moe": job.num_moe_layers}
    parts = {kind: part_cost(at, kind) for kind in PART_KINDS if np.any(counted.get(kind, 1))}
    alone = np.where(columns.pp == 1, 1.0, 0.0)
    stages = []
    for count, embedding, logits in (
        (layers.first, np.ones(len(columns)), alone),
        (layers.inner, alone, alone),
        (layers.last + job.num_mtp_layers, alone, np.full(len(columns), 1.0 + job.num_mtp_layers)),
    ):
        counts: dict[PartKind, Counts] = {
            "dense": count * (1.0 - moe_share),
            "moe": count * moe_share,
            "embedding": embedding,
            "logits": logits,
        }
        stages.append(stage_of(parts, counts, len(columns)))
    single = columns.pp == 1
    first, inner, last = stages
    message = boundary_message_s(first.boundary_bytes, columns.tp, columns.cp, at.fabric, at.stack)
    exposed = np.where(single, 0.0, message * columns.vpp * (1.0 - at.stack.pipeline_overlap.value))
    waits = (exposed, 2.0 * exposed, exposed)
    times = [first.total_s, inner.total_s, last.total_s]
    paced = np.stack([time + wait for time, wait in zip(times, waits, strict=True)])
    paced[0] = np.where(single, 0.0, paced[0])
    paced[1] = np.where(columns.pp > 2, paced[1], 0.0)
    slowest_index = np.argmax(paced, axis=0)
    slowest = _chosen(slowest_index, stages)
    fill = np.where(single, 0.0, times[0]) + times[2] + np.maximum(columns.pp - 2, 0) * times[1]
    return Pipeline(
        first, inner, last, slowest, fill, message, exposed_message_s=np.choose(slowest_index, np.stack(waits))
    )


def idle_s(pipe: Pipeline, columns: Columns, schedule: Schedule) -> FloatArray:
    """Time a replica's ranks wait for the pipeline to fill and drain.

    1F1B: all of F + B + W once per other rank, over v when interleaved (arXiv 2104.04473). ZB-H1 fills with W, so
    F + B - W remain; ZB-H2 also moves the optimizer: F + B - 2 W (arXiv 2401.10241, table 2). DualPipe:
    (p/2 - 1)(F + B - 3 W) beside what overlaps (arXiv 2412.19437, table 2).
    """
    if schedule == "1f1b":
        return (pipe.fill_s - pipe.slowest.total_s) / columns.vpp
    one = pipe.slowest
    hops = (columns.pp - 1).astype(np.float64)
    if schedule == "dualpipe":
        return np.maximum(columns.pp / 2.0 - 1.0, 0.0) * np.maximum(
            one.forward_s + one.input_grad_s - one.weight_grad_s, 0.0
        )
    filled = 1.0 if schedule == "zb_h1" else 2.0
    return hops * np.maximum(one.forward_s + one.input_grad_s - filled * one.weight_grad_s, 0.0)


def iteration_estimate(at: Setting, *, schedule: Schedule = "1f1b", layers: RankLayers | None = None) -> Estimate:
    """Iteration time of 1F1B or interleaved 1F1B: (m - 1) slowest + fill / v, messages, data parallel, optimizer.

    A pipeline fills and drains through every rank once (arXiv 2104.04473, 2.2); interleaving divides the idle part
    by v and multiplies the messages by v. `layers` says how they are split where that is known.
    """
    columns, pipe = at.columns, pipeline_of(at, layers=layers)
    m = columns.num_microbatches.astype(np.float64)
    work = m * pipe.slowest.total_s
    steady = m * pipe.exposed_message_s
    filling = 2.0 * (columns.pp - 1) * pipe.message_s
    ends = _exposed_data_parallel(at, pipe) + _slowest_update(at, pipe)
    return Estimate(
        iteration_s=work + idle_s(pipe, columns, schedule) + steady + filling + ends,
        peak_bytes=_peak_bytes(at, pipe, schedule),
    )


def _exposed_data_parallel(at: Setting, pipe: Pipeline) -> FloatArray:
    """Gradient reduction behind the last backward and parameter gathering behind the first forward."""
    exposed = np.zeros(len(at.columns))
    for stage in (pipe.first, pipe.last):
        traffic = step_traffic(stage.parameters, stage.expert_parameters, at.columns, at.fabric, at.stack, job=at.job)
        overlap = at.stack.data_parallel_overlap.value
        backward = (stage.input_grad_s + stage.weight_grad_s) / at.columns.vpp
        here = exposed_s(traffic.reduce_s, backward, overlap)
        here = here + exposed_s(traffic.gather_s, stage.forward_s / at.columns.vpp, overlap)
        exposed = np.maximum(exposed, here)
    return exposed


def _slowest_update(at: Setting, pipe: Pipeline) -> FloatArray:
    update = np.zeros(len(at.columns))
    for stage in (pipe.first, pipe.last):
        here = optimizer_s(
            stage.parameters, stage.expert_parameters, at.columns, gpu=at.gpu, stack=at.stack, job=at.job
        )
        update = np.maximum(update, here)
    return update


def _peak_bytes(at: Setting, pipe: Pipeline, schedule: Schedule) -> FloatArray:
    """Memory of the fullest of the first, the second and the last rank: later inner ranks hold less."""
    columns = at.columns
    peak = np.zeros(len(columns))
    inner_rank = np.where(columns.pp > 2, 1, columns.pp - 1)
    for stage, rank, has_logits in (
        (pipe.first, np.zeros_like(columns.pp), (columns.pp == 1).astype(np.float64)),
        (pipe.inner, inner_rank, (columns.pp == 1).astype(np.float64)),
        (pipe.last, columns.pp - 1, np.ones(len(columns))),
    ):
        static = static_memory(at, stage.parameters, stage.expert_parameters, has_logits=has_logits)
        held = peak_activations(columns, rank, schedule=schedule) * stage.activation_bytes
        here = static.total_bytes + held
        peak = np.maximum(peak, np.where((columns.pp > 2) | (stage is not pipe.inner), here, 0.0))
    return peak
