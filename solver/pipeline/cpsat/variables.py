"""The variables of the pipeline model, created in one place with the tightest domains that are proven.

Index suffixes: k kind, s stage, j i x micro-batch; messages are keyed like the operation that produces them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from solver.pipeline.bounds import memory_waits
from solver.pipeline.bounds_kernel import heads, tails_after
from solver.pipeline.cpsat.memory_rule import Choice, choices_of, is_alone
from solver.pipeline.problem import PipelineShape
from solver.pipeline.quantise import TickShape
from solver.pipeline.simulate_kernel import columns_of

Key = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Instance:
    """What a model is built from: whole ticks, the value no schedule of interest exceeds, and a proven bound."""

    ticks: TickShape
    horizon: int
    bound: int
    objective: str

    @property
    def shape(self) -> PipelineShape:
        """The columns in ticks."""
        return self.ticks.shape

    @property
    def last_end(self) -> int:
        """Some schedule within the horizon, if there is one, has all ends by then.

        The span says how long each rank takes, not when. Between what ranks take there is time for what is on its way
        alone, no more than all messages of a channel and one latency: else all that follows can come that much earlier.
        """
        if self.objective != "span":
            return self.horizon
        shape = self.shape
        on_the_way = 2 * shape.num_microbatches * int(shape.transfer_s.sum()) + int(shape.latency_s.max(initial=0.0))
        return shape.num_ranks * self.horizon + (shape.num_ranks - 1) * on_the_way

    def duration(self, kind: int, stage: int) -> int:
        """Ticks of one operation."""
        return int(self.shape.duration_ks[kind, stage])

    def operations(self) -> list[Key]:
        """All operations."""
        shape = self.shape
        return [
            (k, s, j)
            for k in range(shape.num_kinds)
            for s in range(shape.num_stages)
            for j in range(shape.num_microbatches)
        ]


@dataclass(frozen=True, eq=False)
class Vars:
    """Starts of operations, messages and exchanges, intervals of operations, B[x] done before F[i], the objective."""

    start_ksj: Mapping[Key, cp_model.IntVar]
    interval_ksj: Mapping[Key, cp_model.IntervalVar]
    message_ksj: Mapping[Key, cp_model.IntVar]
    exchange_s: Mapping[int, cp_model.IntVar]
    done_six: Mapping[Choice, cp_model.IntVar]
    value: cp_model.IntVar


class EmptyDomain(Exception):
    """The horizon is below the proven bound: nothing can be found, so the bound is the horizon."""


def create(model: cp_model.CpModel, instance: Instance) -> Vars:
    """All variables; `EmptyDomain` when windows show that the horizon cannot be kept."""
    shape, last_end = instance.shape, instance.last_end
    columns, waits = columns_of(shape), memory_waits(shape)
    head = heads(columns, waits, 0)
    tail = tails_after(columns, waits, 0, shape.sync_s)
    latest = last_end - tail - shape.duration_ks[:, :, None]
    if (latest < head).any() or instance.bound > instance.horizon:
        raise EmptyDomain
    start: dict[Key, cp_model.IntVar] = {}
    interval: dict[Key, cp_model.IntervalVar] = {}
    for key in instance.operations():
        name = "{}{}{}".format("FBW"[key[0]], key[1], f"_{key[2]}")
        start[key] = model.new_int_var(int(head[key]), int(latest[key]), name)
        interval[key] = model.new_fixed_size_interval_var(start[key], instance.duration(key[0], key[1]), name)
    return Vars(
        start,
        interval,
        _messages(model, shape, last_end),
        {s: model.new_int_var(0, last_end, f"sync{s}") for s in exchanges(shape)},
        _choices(model, shape),
        model.new_int_var(instance.bound, instance.horizon, "value"),
    )


def exchanges(shape: PipelineShape) -> list[int]:
    """Stages whose gradient exchange takes time or a place on a link: rounded to no ticks it still has its turn."""
    return np.flatnonzero((shape.sync_s > 0) | (shape.sync_link_s >= 0)).tolist()


def _choices(model: cp_model.CpModel, shape: PipelineShape) -> dict[Choice, cp_model.IntVar]:
    alone = [s for s in range(shape.num_stages) if is_alone(shape, s)]
    return {
        choice: model.new_bool_var("done{}_{}_{}".format(*choice)) for s in alone for choice, _ in choices_of(shape, s)
    }


def _messages(model: cp_model.CpModel, shape: PipelineShape, last_end: int) -> dict[Key, cp_model.IntVar]:
    messages = {}
    for k, sender, _, _, channel in shape.messages():
        for j in range(shape.num_microbatches if channel >= 0 else 0):
            messages[k, sender, j] = model.new_int_var(0, last_end, f"msg{'FB'[k]}{sender}_{j}")
    return messages
