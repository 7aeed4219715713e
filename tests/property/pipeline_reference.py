"""Plain references of the compiled kernels: a fixed-point replay and a step-by-step list scheduler, both in dicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from models.schedule import PipelineProblem

Op = tuple[str, int, int]


def reference_replay(
    problem: PipelineProblem, ranks: Sequence[Sequence[Op]], channels: dict[tuple[str, str], list[Op]]
) -> dict[Op, float]:
    """Earliest start of every operation: all waits repeated until nothing moves."""
    start = {op: 0.0 for one in ranks for op in one}
    message = {op: 0.0 for one in channels.values() for op in one}
    for _ in range(10_000):
        before = dict(start), dict(message)
        for one in ranks:
            _one_at_a_time(problem, start, message, one)
        for waiting in message:
            message[waiting] = max(message[waiting], ready_s(problem, start, waiting))
        for queue in channels.values():
            for early, late in pairwise(queue):
                message[late] = max(message[late], message[early] + taken_s(problem, early))
        for op in start:
            start[op] = max(start[op], arrival_s(problem, start, message, op))
        if (start, message) == before:
            return start
    raise AssertionError("the order waits for itself")


def _one_at_a_time(
    problem: PipelineProblem, start: dict[Op, float], message: dict[Op, float], order: Sequence[Op]
) -> None:
    """A rank waits for what it ran before; with blocking sends its F and B also for what it sent before."""
    for early, late in pairwise(order):
        start[late] = max(start[late], start[early] + duration_s(problem, early))
    sending = [op for op in order if op[0] != "W"] if problem.sends == "blocking" else []
    for early, late in pairwise(sending):
        start[late] = max(start[late], landing_s(problem, start, message, early))


def duration_s(problem: PipelineProblem, op: Op) -> float:
    stage = problem.stages[op[1]]
    times = {"F": stage.forward_s, "B": stage.input_grad_s, "W": stage.weight_grad_s}
    return times["B"] + times["W"] if op[0] == "BW" else times[op[0]]


def ready_s(problem: PipelineProblem, start: dict[Op, float], op: Op) -> float:
    if op[0] != "SYNC":
        return start[op] + duration_s(problem, op)
    kind = "BW" if problem.backward == "fused" else "W"
    own = [(kind, op[1], microbatch) for microbatch in range(problem.num_microbatches)]
    return max(start[last] + duration_s(problem, last) for last in own)


def taken_s(problem: PipelineProblem, op: Op) -> float:
    if op[0] == "SYNC":
        return problem.stages[op[1]].gradient_sync_s
    sender = op[1] if op[0] == "F" else op[1] - 1
    return next(hop.occupancy_s for hop in problem.hops if hop.from_stage == sender)


def landing_s(problem: PipelineProblem, start: dict[Op, float], message: dict[Op, float], op: Op) -> float:
    """When the message of an F or B has landed; its end where it sends none."""
    kind, stage, microbatch = op
    target = stage + 1 if kind == "F" else stage - 1
    if not 0 <= target < len(problem.stages):
        return ready_s(problem, start, op)
    return arrival_s(problem, start, message, (kind, target, microbatch))


def arrival_s(problem: PipelineProblem, start: dict[Op, float], message: dict[Op, float], op: Op) -> float:
    kind, stage, microbatch = op
    last = len(problem.stages) - 1
    if kind == "W":
        return ready_s(problem, start, ("B", stage, microbatch))
    if kind == "F" and stage == 0:
        return 0.0
    if kind != "F" and stage == last:
        return ready_s(problem, start, ("F", stage, microbatch))
    source: Op = (kind, stage - 1 if kind == "F" else stage + 1, microbatch)
    hop = next((hop for hop in problem.hops if hop.from_stage == min(stage, source[1])), None)
    if hop is None:
        return ready_s(problem, start, source)
    travels_s = hop.transfer_s if hop.staggered else hop.occupancy_s
    leaves = message[source] + travels_s if source in message else ready_s(problem, start, source)
    return leaves + hop.latency_s


def reference_greedy(problem: PipelineProblem) -> list[list[Op]]:
    """Backward first, then forward if it fits, then W: one-way layout, links never shared, budgets in activations."""
    p, m = len(problem.ranks), problem.num_microbatches
    orders: list[list[Op]] = [[] for _ in range(p)]
    arrived: dict[Op, float] = {("F", 0, j): 0.0 for j in range(m)}
    free, now = [0.0] * p, 0.0
    while any(len(order) < 3 * m for order in orders):
        for rank in range(p):
            while free[rank] <= now and (op := _pick(problem, orders[rank], arrived, rank, now)) is not None:
                orders[rank].append(op)
                free[rank] = now + duration_s(problem, op)
                _tell(problem, arrived, op, free[rank])
        later = [time for time in [*free, *arrived.values()] if time > now]
        now = min(later)
    return orders


def _pick(problem: PipelineProblem, order: list[Op], arrived: dict[Op, float], rank: int, now: float) -> Op | None:
    done = {kind: sum(op[0] == kind for op in order) for kind in "FBW"}
    stage = problem.stages[rank]
    budget = problem.ranks[rank].activation_budget_bytes
    held = max(stage.activation_bytes, stage.weight_grad_context_bytes)
    context = stage.weight_grad_context_bytes
    memory = (done["F"] - done["B"]) * held + (done["B"] - done["W"]) * context
    for kind in "BFW":
        op = (kind, rank, done[kind])
        fits = kind != "F" or budget is None or memory + held <= budget
        if arrived.get(op, math.inf) <= now and fits:
            return op
    return None


def _tell(problem: PipelineProblem, arrived: dict[Op, float], op: Op, end: float) -> None:
    kind, stage, microbatch = op
    hops = {hop.from_stage: hop.latency_s for hop in problem.hops}
    if kind == "F" and stage < len(problem.stages) - 1:
        arrived["F", stage + 1, microbatch] = end + hops.get(stage, 0.0)
    elif kind == "F":
        arrived["B", stage, microbatch] = end
    elif kind == "B":
        arrived["W", stage, microbatch] = end
        if stage > 0:
            arrived["B", stage - 1, microbatch] = end + hops.get(stage - 1, 0.0)
