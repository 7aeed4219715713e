"""A known order as a hint: its replay in ticks gives every variable a value."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from solver.pipeline.cpsat.variables import Instance, Vars
from solver.pipeline.problem import PipelineOrder
from solver.pipeline.simulate import PipelineReplay, replay_shape


def tick_replay(instance: Instance, order: PipelineOrder) -> PipelineReplay:
    """The order's times in ticks."""
    return replay_shape(instance.shape, order)


def add_hint(model: cp_model.CpModel, instance: Instance, v: Vars, order: PipelineOrder) -> None:
    """A value for every variable, so that the search starts from this order; completeness is what makes it quick."""
    shape, run = instance.shape, tick_replay(instance, order)
    for (k, s, j), variable in v.start_ksj.items():
        model.add_hint(variable, int(run.start[shape.operation_id(k, s, j)]))
    for (k, s, j), variable in v.message_ksj.items():
        model.add_hint(variable, int(run.message_start[shape.operation_id(k, s, j)]))
    for s, variable in v.exchange_s.items():
        model.add_hint(variable, int(np.nan_to_num(run.message_start[shape.num_operations + s])))
    for (s, i, x), done in v.done_six.items():
        ended = run.end[shape.operation_id(1, s, x)] <= run.start[shape.operation_id(0, s, i)]
        model.add_hint(done, int(ended))
    model.add_hint(v.value, round(run.span_s if instance.objective == "span" else run.makespan_s))
