"""Activation memory within the budget of every rank, at every instant.

With one stage on the rank the rule is precedence: F[i] waits for the B and W that free its room. With several stages
it is a cumulative over the intervals that hold memory. Precedence is what makes proofs quick (decision 0101).
"""

from math import floor

import numpy as np
from ortools.sat.python import cp_model

from solver.pipeline.cpsat.memory_rule import choices_of, is_alone, waits_of
from solver.pipeline.cpsat.variables import Instance, Vars

UNITS = 2**20  # memory is scaled so that the budget is this many units: needs down, or fits are refuted


def add_memory(model: cp_model.CpModel, instance: Instance, v: Vars) -> None:
    """Budgets of all ranks, by precedence where one stage lies on the rank and the context is no larger."""
    shape = instance.shape
    for rank in range(shape.num_ranks):
        stages = np.flatnonzero(shape.rank_of_s == rank).tolist()
        if not np.isfinite(shape.budget_r[rank]):
            continue
        if is_alone(shape, stages[0]):
            _add_precedence(model, instance, v, stages[0])
        else:
            _add_slots(model, instance, v, stages)
            _add_cumulative(model, instance, v, rank, stages)


def _add_precedence(model: cp_model.CpModel, instance: Instance, v: Vars, stage: int) -> None:
    """The waits and choices of `memory_rule`; a choice is the order of B[x] and F[i] on the rank."""
    for i, kind, j in waits_of(instance.shape, stage):
        _wait(model, instance, v, (0, stage, i), (kind, stage, j))
    for choice, needed in choices_of(instance.shape, stage):
        _add_choice(model, instance, v, choice, needed)


def _wait(
    model: cp_model.CpModel, instance: Instance, v: Vars, late: tuple[int, int, int], early: tuple[int, int, int]
) -> None:
    model.add(v.start_ksj[late] >= v.start_ksj[early] + instance.duration(early[0], early[1]))


def _add_choice(model: cp_model.CpModel, instance: Instance, v: Vars, at: tuple[int, int, int], needed: int) -> None:
    stage, i, x = at
    forward, backward, weight = v.start_ksj[0, stage, i], v.start_ksj[1, stage, x], v.start_ksj[2, stage, needed - 1]
    done = v.done_six[at]
    model.add(forward >= backward + instance.duration(1, stage)).only_enforce_if(done)
    model.add(backward >= forward + instance.duration(0, stage)).only_enforce_if(~done)
    model.add(forward >= weight + instance.duration(2, stage)).only_enforce_if(~done)


def _add_slots(model: cp_model.CpModel, instance: Instance, v: Vars, stages: list[int]) -> None:
    """Redundant: a stage alone cannot exceed the budget either."""
    shape = instance.shape
    for stage in stages:
        for kind, held in ((1, shape.activation_s[stage]), (2, min(shape.context_s[stage], shape.activation_s[stage]))):
            if held <= 0 or kind >= shape.num_kinds:
                continue
            slots = floor(shape.budget_r[shape.rank_of_s[stage]] / held * (1 + 1e-9))
            for j in range(slots, shape.num_microbatches):
                _wait(model, instance, v, (0, stage, j), (kind, stage, j - slots))


def _add_cumulative(model: cp_model.CpModel, instance: Instance, v: Vars, rank: int, stages: list[int]) -> None:
    """Sum of what is held <= budget: activation from F to the end of B, context from there to the end of W."""
    shape = instance.shape
    budget = float(shape.budget_r[rank])
    intervals, demands = [], []
    for s in stages:
        for j in range(shape.num_microbatches):
            ends = [v.start_ksj[k, s, j] + instance.duration(k, s) for k in range(shape.num_kinds)]
            parts = [(v.start_ksj[0, s, j], ends[1], shape.activation_s[s])]
            if shape.num_kinds == 3:
                parts.append((ends[1], ends[2], shape.context_s[s]))
            for number, (begin, end, held) in enumerate(parts):
                if held > 0:
                    size = model.new_int_var(0, instance.last_end, f"hold{number}_{s}_{j}_size")
                    intervals.append(model.new_interval_var(begin, size, end, f"hold{number}_{s}_{j}"))
                    demands.append(_units(float(held), budget))
    model.add_cumulative(intervals, demands, UNITS)


def _units(held: float, budget: float) -> int:
    """Memory in units of budget / 2^20, down: needs that fill the budget must fit, and orders found are replayed."""
    return floor(held / budget * UNITS) if budget > 0 else UNITS + 1
