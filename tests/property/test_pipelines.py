"""What holds for every pipeline: kernels equal their references, bounds never exceed optima, the judge acquits ours."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.first_schedules import quick_schedule
from models.schedule import Operation, PipelineProblem, Sends
from solver.pipeline.bounds import lower_bound
from solver.pipeline.generators.list_scheduler import greedy_order, with_messages
from solver.pipeline.generators.list_scheduler_choice import Policy
from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.judge import check_schedule
from solver.pipeline.problem import shape_of
from solver.pipeline.simulate import replay, replay_shape
from solver.pipeline.solve import solve_pipeline
from tests.pipelines import problems
from tests.property.pipeline_reference import Op, reference_greedy, reference_replay

QUICK = settings(max_examples=40, deadline=None)
BOTH: tuple[Sends, ...] = ("asynchronous", "blocking")


def op_of(text: str) -> Op:
    if text.endswith("SYNC"):
        return "SYNC", int(text.removesuffix("SYNC")), 0
    stage, kind, microbatch = Operation.parse(text)
    return kind, stage, microbatch


@QUICK
@given(problems(sends=BOTH), st.sampled_from(["greedy", "cross_greedy", "gpipe", "cross_look_ahead"]))
def test_the_compiled_replay_equals_the_plain_one(problem: PipelineProblem, name: str) -> None:
    shape = shape_of(problem)
    order = GENERATORS[name](shape)
    assert order is not None
    ranks = [[op_of(shape.text(int(operation))) for operation in one] for one in order.rank_ops]
    channels = {
        (shape.link_names[at // 2], "ud"[at % 2]): [op_of(shape.text(int(message))) for message in one]
        for at, one in enumerate(order.channel_ops)
    }
    shared = [op for queue in channels.values() for op in queue if op[0] == "SYNC"]
    if len(set(shared)) < len(shared) and any(len(queue) > 1 for queue in channels.values()):
        return  # an exchange takes two directions at one instant, which the reference does not know
    start = reference_replay(problem, ranks, channels)
    result = replay(problem, order)
    for operation, begin in enumerate(result.start):
        assert begin == pytest.approx(start[op_of(shape.text(operation))], abs=1e-9)


@QUICK
@given(problems())
def test_the_compiled_greedy_equals_the_plain_one(problem: PipelineProblem) -> None:
    """Compared where the reference applies: one stage per rank, B and W apart, times above zero, links unshared."""
    stages = tuple(stage.model_copy(update={"weight_grad_s": stage.weight_grad_s + 0.125}) for stage in problem.stages)
    hops = tuple(hop.model_copy(update={"transfer_s": 0.0}) for hop in problem.hops)
    if problem.num_stages != len(problem.ranks) or problem.backward == "fused":
        return
    plain = problem.model_copy(update={"stages": stages, "hops": hops})
    shape = shape_of(plain)
    order = greedy_order(shape, Policy())
    assert [[op_of(shape.text(int(op))) for op in one] for one in order.rank_ops] == reference_greedy(plain)


@QUICK
@given(problems(sends=BOTH))
def test_the_judge_acquits_the_portfolio_and_no_value_is_below_the_bound(problem: PipelineProblem) -> None:
    schedule = quick_schedule(problem)
    assert check_schedule(problem, schedule) == []
    assert lower_bound(problem) <= schedule.objective_value_s * (1 + 1e-9)


@QUICK
@given(problems(), st.sampled_from(["one_f_one_b", "greedy", "cross_greedy", "gpipe", "interleaved", "zbv"]))
def test_blocking_sends_are_never_faster_and_no_order_comes_to_wait_for_itself(
    problem: PipelineProblem, name: str
) -> None:
    free, blocking = (
        problem.model_copy(update={"sends": sends, "objective": "makespan"}) for sends in ("asynchronous", "blocking")
    )
    order = GENERATORS[name](shape_of(blocking))
    if order is None:
        return
    assert replay(free, order).makespan_s <= replay(blocking, order).makespan_s * (1 + 1e-12)
    assert lower_bound(blocking) == lower_bound(free)


@settings(max_examples=12, deadline=None)
@given(problems(max_ranks=2, max_microbatches=3, sends=BOTH), st.sampled_from(["makespan", "span"]))
def test_the_search_ends_at_an_optimum_that_no_generator_and_no_bound_contradicts(
    problem: PipelineProblem, objective: str
) -> None:
    problem = PipelineProblem.model_validate(
        problem.model_dump() | {"objective": objective, "options": {"time_limit_s": 5, "relative_gap": 0}}
    )
    best = solve_pipeline(problem)
    assert check_schedule(problem, best) == []
    assert lower_bound(problem) <= best.objective_value_s * (1 + 1e-9)
    assert best.objective_value_s <= quick_schedule(problem).objective_value_s * (1 + 1e-9)


def interleavings(m: int) -> list[list[int]]:
    """Every order of m F, m B and m W of a rank, as kinds."""
    places = range(3 * m)
    orders = []
    for forwards in combinations(places, m):
        rest = [place for place in places if place not in forwards]
        for backwards in combinations(rest, m):
            orders.append([0 if at in forwards else 1 if at in backwards else 2 for at in places])
    return orders


@settings(max_examples=4, deadline=None)
@given(st.lists(st.integers(1, 8), min_size=6, max_size=6), st.integers(0, 8), st.sampled_from([None, 1.0, 1.5]))
def test_the_search_finds_the_optimum_of_brute_force(times: list[int], delay: int, budget: float | None) -> None:
    stages = [
        {
            "forward_s": a,
            "input_grad_s": b,
            "weight_grad_s": c,
            "activation_bytes": 1,
            "weight_grad_context_bytes": 0.5,
        }
        for a, b, c in (times[:3], times[3:])
    ]
    problem = PipelineProblem.model_validate(
        {
            "num_microbatches": 2,
            "ranks": [{"activation_budget_bytes": budget}] * 2,
            "stages": stages,
            "hops": [{"from_stage": 0, "to_stage": 1, "latency_s": delay}],
            "options": {"relative_gap": 0},
        }
    )
    shape = shape_of(problem)
    best = np.inf
    for kinds in product(interleavings(2), repeat=2):
        ranks = []
        for rank, one in enumerate(kinds):
            counts = [0, 0, 0]
            operations = []
            for kind in one:
                operations.append(shape.operation_id(kind, rank, counts[kind]))
                counts[kind] += 1
            ranks.append(np.array(operations))
        order = with_messages(shape, ranks)
        if order is not None:
            run = replay_shape(shape, order)
            if (run.peak_memory_bytes <= shape.budget_r).all():
                best = min(best, run.makespan_s)
    schedule = solve_pipeline(problem)
    assert schedule.objective_value_s == pytest.approx(best)
    assert schedule.status == "optimal"
