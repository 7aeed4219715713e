"""Micro-batches in order within each stage and kind, which loses nothing (docs/bounds.md)."""

from ortools.sat.python import cp_model

from solver.pipeline.cpsat.variables import Instance, Vars


def add_microbatch_order(model: cp_model.CpModel, instance: Instance, v: Vars) -> None:
    """start[k,s,j+1] >= end[k,s,j], and the same for the messages of one hop and direction."""
    shape = instance.shape
    for (k, s, j), start in v.start_ksj.items():
        if j > 0:
            model.add(start >= v.start_ksj[k, s, j - 1] + instance.duration(k, s))
    for (k, s, j), message in v.message_ksj.items():
        if j > 0:
            hop = s if k == 0 else s - 1
            model.add(message >= v.message_ksj[k, s, j - 1] + int(shape.transfer_s[hop]))
