"""Time and bytes of one pipeline stage per micro-batch and GPU. The sum over the layers of a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import numpy as np

from models.workload import LayerProfile
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.cost import activations
from solver.cost.collectives import exposed_s
from solver.cost.columns import RECOMPUTE_CODES, Columns
from solver.cost.compute import Times
from solver.cost.data_parallel import layer_traffic
from solver.cost.job import Job, LayerShape
from solver.cost.layer import LayerCost, Setting, embedding_times, layer_cost, logits_times

PartKind = Literal["dense", "moe", "embedding", "logits"]
PART_KINDS: tuple[PartKind, ...] = get_args(PartKind)
Counts = IntArray | FloatArray | int | float
# What a measured profile says of a layer; its times contain the layer's communication.
MEASURED = ("forward_s", "input_grad_s", "weight_grad_s", "activation_bytes", "weight_grad_context_bytes")


@dataclass(frozen=True)
class StageCost:
    """Per micro-batch and GPU. The three times include exposed communication; the `*_parallel_s` say how much of it.

    `activation_bytes` are held from the forward to the end of the input gradient, `weight_grad_context_bytes` from
    there to the weight gradient. `boundary_bytes` is the message of the whole stage group to the next stage.
    """

    forward_s: FloatArray
    input_grad_s: FloatArray
    weight_grad_s: FloatArray
    tensor_parallel_s: FloatArray
    context_parallel_s: FloatArray
    expert_parallel_s: FloatArray
    data_parallel_s: FloatArray
    activation_bytes: FloatArray
    weight_grad_context_bytes: FloatArray
    boundary_bytes: FloatArray
    parameters: FloatArray
    expert_parameters: FloatArray

    @property
    def total_s(self) -> FloatArray:
        """Forward and both halves of the backward."""
        return self.forward_s + self.input_grad_s + self.weight_grad_s

    def take(self, rows: IntArray | slice) -> StageCost:
        """The stages of these rows."""
        return StageCost(**{one.name: getattr(self, one.name)[rows] for one in fields(StageCost)})


def stage_cost(
    at: Setting, counts: Mapping[PartKind, Counts], layer_profiles: Sequence[LayerProfile] = ()
) -> StageCost:
    """A stage with so many layers of each kind, embeddings and logits; the counts broadcast over the rows of `at`.

    A measured profile replaces times and bytes of its layer kind on the rows whose GPU type, micro-batch, degrees and
    recomputation it matches; its times already contain the in-layer communication.
    """
    parts = {kind: part_cost(at, kind, layer_profiles) for kind in PART_KINDS if np.any(np.asarray(counts[kind]) > 0)}
    return stage_of(parts, counts, len(at.columns))


def part_cost(at: Setting, kind: PartKind, layer_profiles: Sequence[LayerProfile] = ()) -> StageCost:
    """One layer of a kind, the embedding or the logits, as a stage of its own."""
    if kind == "dense":
        part = _layer(at, at.job.dense)
    elif kind == "moe":
        part = _layer(at, at.job.moe)
    elif kind == "embedding":
        part = _end_part(at, embedding_times(at), at.job.embedding_parameters, activations.embedding_bytes(at))
    else:
        part = _logits_part(at)
    for profile in layer_profiles:
        if profile.layer_kind == kind and profile.gpu == at.gpu.name:
            part = _replace(part, _matching(profile, at.columns), profile)
    return part


def stage_of(parts: Mapping[PartKind, StageCost], counts: Mapping[PartKind, Counts], length: int) -> StageCost:
    """A stage with so many of each part; counts broadcast over the rows."""
    total = StageCost(**{field.name: np.zeros(length) for field in fields(StageCost)})
    for kind, part in parts.items():
        total = _add(total, part, np.asarray(counts[kind], dtype=np.float64))
    return total


def _add(total: StageCost, one: StageCost, count: FloatArray) -> StageCost:
    summed = {f.name: getattr(total, f.name) + count * getattr(one, f.name) for f in fields(StageCost)}
    summed["boundary_bytes"] = np.maximum(total.boundary_bytes, one.boundary_bytes)
    return StageCost(**summed)


def local_parameters(at: Setting, shape: LayerShape) -> tuple[FloatArray, FloatArray]:
    """Parameters of one layer on one GPU: dense (norms and routers are copied on every rank) and of its experts."""
    split = shape.split_parameters
    dense = split / at.tp + (shape.dense_parameters - split)
    expert = at.job.num_experts * shape.expert_parameters / (at.columns.ep * at.tp)
    return dense, expert if shape.expert_gemms else np.zeros_like(dense)


def _layer(at: Setting, shape: LayerShape) -> StageCost:
    return _part(at, layer_cost(at, shape), local_parameters(at, shape), activations.layer_bytes(at, shape))


def _part(
    at: Setting, cost: LayerCost, parameters: tuple[FloatArray, FloatArray], held: tuple[FloatArray, FloatArray]
) -> StageCost:
    """With these parameters, dense and of experts, and these bytes held until input and until weight gradient."""
    gathering = _sharded_exposure(at, cost.times, *parameters)
    times = cost.times + gathering
    return StageCost(
        forward_s=times.forward_s,
        input_grad_s=times.input_grad_s,
        weight_grad_s=times.weight_grad_s,
        tensor_parallel_s=cost.tensor_parallel.total_s,
        context_parallel_s=cost.context_parallel.total_s,
        expert_parallel_s=cost.expert_parallel.total_s,
        data_parallel_s=gathering.total_s,
        activation_bytes=held[0],
        weight_grad_context_bytes=held[1],
        boundary_bytes=boundary_bytes(at.job, at.columns),
        parameters=parameters[0],
        expert_parameters=parameters[1],
    )


def _sharded_exposure(at: Setting, times: Times, dense: FloatArray, expert: FloatArray) -> Times:
    """Gathering and scattering of FSDP that the layer's own work does not hide."""
    traffic = layer_traffic(dense, expert, at.columns, at.fabric, at.stack, job=at.job)
    overlap = at.stack.data_parallel_overlap.value
    forward = exposed_s(traffic.gather_s, times.forward_s, overlap)
    backward = exposed_s(traffic.gather_s + traffic.reduce_s, times.input_grad_s + times.weight_grad_s, overlap)
    return Times(forward, backward, np.zeros_like(forward))


def boundary_bytes(job: Job, columns: Columns) -> FloatArray:
    """Hidden states of one micro-batch for the whole stage group: 2 b s h, or 4 b s h in 32 bits."""
    tokens = columns.micro_batch.astype(np.float64) * job.sequence_length
    return tokens * (job.hidden_size * job.value_bytes)


def _end_part(at: Setting, times: Times, parameters: float, held: FloatArray) -> StageCost:
    none, zero = Times.zero(at.tp), np.zeros_like(at.tp)
    return _part(at, LayerCost(times, none, none, none), (parameters / at.tp, zero), (held, zero))


def _logits_part(at: Setting) -> StageCost:
    """The output projection; a tied table still has a copy on the last stage of a pipeline."""
    own = at.job.logits_parameters
    untied = bool(np.any(np.asarray(own) > 0))
    parameters = own if untied else at.job.embedding_parameters
    part = _end_part(at, logits_times(at), parameters, np.zeros_like(at.tp))
    if untied:
        return part
    copied = np.where(at.columns.pp > 1, part.parameters, 0.0)
    return replace(part, parameters=copied)


def _matching(profile: LayerProfile, columns: Columns) -> BoolArray:
    same: BoolArray = (
        (columns.micro_batch == profile.micro_batch_sequences)
        & (columns.tp == profile.tp)
        & (columns.cp == profile.cp)
        & (columns.ep == profile.ep)
        & (columns.recompute == RECOMPUTE_CODES.index(profile.recompute))
    )
    return same


def _replace(part: StageCost, rows: BoolArray, profile: LayerProfile) -> StageCost:
    measured = dict.fromkeys(("tensor_parallel_s", "context_parallel_s", "expert_parallel_s", "data_parallel_s"), 0.0)
    measured |= {name: getattr(profile, name) for name in MEASURED}
    return replace(part, **{name: np.where(rows, value, getattr(part, name)) for name, value in measured.items()})
