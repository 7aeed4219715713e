"""The objective value bounds every end."""

from ortools.sat.python import cp_model

from solver.pipeline.cpsat.variables import Instance, Vars


def add_value(model: cp_model.CpModel, instance: Instance, v: Vars) -> None:
    """makespan >= every last end; span >= last end - first start on every rank; exchanges follow the last W."""
    shape = instance.shape
    last_kind, last = shape.num_kinds - 1, shape.num_microbatches - 1
    for s in range(shape.num_stages):
        end = v.start_ksj[last_kind, s, last] + instance.duration(last_kind, s)
        if s in v.exchange_s:
            model.add(v.exchange_s[s] >= end)
            end = v.exchange_s[s] + int(shape.sync_s[s])
        if instance.objective == "makespan":
            model.add(v.value >= end)
            continue
        for first in range(shape.num_stages):
            if shape.rank_of_s[first] == shape.rank_of_s[s]:
                model.add(v.value >= end - v.start_ksj[0, first, 0])
