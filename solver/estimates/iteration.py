"""What usual schedules and crossings make of a configuration: orders the search, proves nothing.

A wrong guess costs time, never correctness.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import BY_GPU_TYPE, LOOP_FAMILY, Space
from solver.context import Context
from solver.cost.data_parallel import (
    crossing_bytes,
    group_parameters,
    hierarchical_crossing_bytes,
    reduced_across,
    step_traffic,
)
from solver.cost.memory import peak_activations
from solver.cost.stage import StageCost
from solver.estimates.crossing_patterns import CrossingPattern, crossing_patterns
from solver.estimates.params import ESTIMATES
from solver.placement.distances import EACH, TYPES


def guess_s(
    context: Context, space: Space, first: StageCost, whole: StageCost, *, bound_s: FloatArray, capacity: FloatArray
) -> FloatArray:
    """Bound and fill where the usual number of micro-batches in flight fits, well above the bound where it does not.

    The fill is that of interleaved 1F1B, (p - 1)(f + i) / v beyond the bound. What crosses buildings comes on top.
    """
    columns = space.columns
    fill = (columns.pp - 1) * (first.forward_s + first.input_grad_s) / columns.vpp
    crowding = ESTIMATES.crowding(peak_activations(columns, 0) * first.activation_bytes, capacity, columns.vpp)
    inside: FloatArray = crowding * (bound_s + fill)
    held = np.maximum(np.floor(capacity / np.maximum(first.activation_bytes, 1.0)), 1.0)
    return crossed_s(context, space, whole, inside_s=inside, held=held, local=True)


def crossed_s(
    context: Context,
    space: Space,
    whole: StageCost,
    *,
    inside_s: FloatArray,
    held: FloatArray | float = np.inf,
    local: bool = False,
) -> FloatArray:
    """Time under the best crossing pattern, where inside one place it would be `inside_s`.

    `held` micro-batches fit into memory at once. With `local` exchanges inside places count too, which costs more.
    """
    by_type = space.layer_split == BY_GPU_TYPE
    rows = np.flatnonzero(by_type | (space.columns.num_gpus > context.geography.largest_building_gpus))
    time_s = inside_s.copy()
    if len(rows):
        held = np.broadcast_to(held, len(space))
        job = _Job(context, space.take(rows), whole.take(rows), inside_s[rows], held[rows])
        time_s[rows] = _crossed_s(job, by_type[rows], local=local)
    return time_s


def _crossed_s(job: _Job, by_type: BoolArray, *, local: bool) -> FloatArray:
    context, columns = job.context, job.space.columns
    first, row_of = distinct_rows(columns.tp, columns.cp, columns.dp, columns.pp)
    best = np.full(len(columns), np.inf)
    for pattern in crossing_patterns(context, columns.take(first)):
        time_s = _under(pattern, row_of, job)
        if local:
            time_s = time_s + _private_s(job, pattern.replicas[row_of])
        each = pattern.kind.startswith(EACH)
        suits = True if each else by_type == pattern.kind.startswith(TYPES)
        best = np.where(pattern.possible[row_of] & suits, np.minimum(best, time_s), best)
    return np.where(np.isfinite(best), best, ESTIMATES.unlikely * job.inside_s)


@dataclass(frozen=True)
class _Job:
    """Configurations with what they cost inside one place."""

    context: Context
    space: Space
    whole: StageCost
    inside_s: FloatArray
    held: FloatArray

    @cached_property
    def sent_between_two_bytes(self) -> FloatArray:
        """What either of two places sends in the exchanges of all stages."""
        columns, whole = self.space.columns, self.whole
        parameters = group_parameters(whole.parameters, whole.expert_parameters, columns)
        return crossing_bytes(parameters, columns, 2, self.context.job)

    @cached_property
    def reduced_across(self) -> BoolArray:
        """Whether that is an all-reduce, which sends more over more places."""
        return reduced_across(self.space.columns)

    def sent_bytes(self, num_places: FloatArray) -> FloatArray:
        """What every one of so many places sends in them."""
        over_all = hierarchical_crossing_bytes(self.sent_between_two_bytes, num_places.astype(np.int64))
        return np.where(self.reduced_across, over_all, self.sent_between_two_bytes)


def _under(pattern: CrossingPattern, row_of: IntArray, job: _Job) -> FloatArray:
    """Messages pace the pipeline or hide behind its work; exchanges run as it drains and after.

    Those of a rank follow each other on its cards; links carry those of all ranks as far as they can.
    """
    columns, whole = job.space.columns, job.whole
    per_byte = np.where(
        job.space.family == LOOP_FAMILY, pattern.loop_s_per_byte[row_of], pattern.message_s_per_byte[row_of]
    )
    message_s = whole.boundary_bytes * per_byte
    delay_s = pattern.delay_s[row_of] + message_s
    if pattern.wait_s_per_byte.any():
        lost = whole.boundary_bytes * pattern.wait_s_per_byte[row_of]
        delay_s = delay_s + (1.0 - np.exp(-lost)) * pattern.longest_wait_s[row_of]
    passes = columns.num_microbatches * columns.vpp
    trips_s = columns.num_microbatches / job.held * (whole.forward_s + whole.input_grad_s + 2.0 * columns.vpp * delay_s)
    slower = np.where(job.space.layer_split == BY_GPU_TYPE, 1.0, pattern.slower[row_of])
    paced_s = ESTIMATES.joint_s(slower * job.inside_s, passes * message_s)
    pipe_s = np.maximum(paced_s, np.where(delay_s > 0, trips_s, 0.0)) + 2.0 * delay_s
    exchanging = pattern.exchanging[row_of]
    sent_bytes = job.sent_bytes(pattern.num_places[row_of])
    rank_s = sent_bytes / columns.pp * pattern.exchange_s_per_byte[row_of]
    rank_s = rank_s + columns.vpp * pattern.exchange_delay_s[row_of]
    links_s = exchanging * sent_bytes * pattern.links_s_per_byte[row_of]
    drain_s = whole.input_grad_s * (columns.pp - 1) / columns.pp
    crossed: FloatArray = pipe_s + np.maximum(rank_s / columns.vpp, np.maximum(rank_s, links_s) - drain_s)
    limit = job.context.request.constraints.max_cross_building_bytes_per_iteration
    if limit is not None:
        messages_bytes = np.where(per_byte > 0, passes * columns.dp * whole.boundary_bytes, 0.0)
        crossed = np.where(exchanging * sent_bytes + messages_bytes > limit, ESTIMATES.over_limit_s, crossed)
    return crossed


def _private_s(job: _Job, replicas: FloatArray) -> FloatArray:
    """The exchanges of a rank among so many replicas inside a place, one after another while its pipeline drains.

    Backwards of two chunks of a rank are as far from each other as one of all ranks takes.
    """
    columns, whole = job.space.columns, job.whole
    stages, gpu_class = columns.pp * columns.vpp, next(iter(job.context.gpu_classes.values()))
    traffic = step_traffic(
        whole.parameters / stages,
        whole.expert_parameters / stages,
        replace(columns, dp=replicas.astype(np.int64)),
        gpu_class.fabric,
        job.context.stack,
        job=job.context.job,
    )
    each_s = traffic.reduce_s + traffic.gather_s
    apart_s = (whole.input_grad_s + whole.weight_grad_s) / columns.vpp
    return each_s + (columns.vpp - 1) * np.maximum(each_s - apart_s, 0.0)
