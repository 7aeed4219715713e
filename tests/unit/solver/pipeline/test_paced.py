"""Even intervals: chunked layouts with little memory, where list scheduling alone fills it with the wrong chunks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.first_schedules import quick_schedule
from benchmarks.pipeline_cases import random_loop_case
from models.schedule import Layout, PipelineHop, PipelineProblem, PipelineRank, PipelineStage, layout_placement
from solver.evaluation.scheduling import CHUNKED
from solver.pipeline.bounds import lower_bound
from solver.pipeline.generators.paced import PACES, by_memory_s, paced, releases
from solver.pipeline.judge import check_schedule
from solver.pipeline.problem import shape_of
from tests.pipelines import budget, pipeline

BEFORE = tuple(name for name in CHUNKED if name != "paced")


def scarce(number: int, layout: Layout) -> PipelineProblem:
    """Ranks of two speeds, 2 to 8 chunks in a loop, delays, and memory for one to three micro-batches."""
    random = np.random.default_rng([number, len(layout)])
    num_ranks = int(random.integers(2, 7))
    chunks = int(random.integers(2, 9)) if layout == "loop" else 2
    slower = random.uniform(1.0, 1.5, num_ranks)
    place = layout_placement(layout, num_ranks * chunks, num_ranks)
    times = [float(slower[rank] * random.uniform(0.95, 1.05)) for rank in place]
    stages = tuple(
        PipelineStage(forward_s=time, input_grad_s=1.1 * time, weight_grad_s=0.8 * time, activation_bytes=1.0)
        for time in times
    )
    latency_s = float(random.uniform(0.0, 4.0))
    hops = [PipelineHop(from_stage=at, to_stage=at + 1, latency_s=latency_s) for at in range(0, len(place) - 1, 2)]
    return PipelineProblem(
        num_microbatches=int(random.integers(num_ranks, 4 * num_ranks)),
        ranks=(PipelineRank(activation_budget_bytes=float(random.uniform(1.0, 3.0) * chunks)),) * num_ranks,
        layout=layout,
        stages=stages,
        hops=tuple(hops),
        backward="fused" if number % 3 == 0 else "split_allowed",
    )


@pytest.mark.parametrize("layout", ["loop", "v"])
def test_loops_with_little_memory_come_nearer_to_their_bounds(layout: Layout) -> None:
    """Never worse than what was there, acquitted by the judge, and two fifths of the gap less on average."""
    before, after = [], []
    for number in range(30):
        problem = scarce(number, layout)
        found = quick_schedule(problem, CHUNKED)
        assert check_schedule(problem, found) == []
        before.append(quick_schedule(problem, BEFORE).objective_value_s / lower_bound(problem))
        after.append(found.objective_value_s / lower_bound(problem))
        assert after[-1] <= before[-1]
    assert np.mean(after) - 1 < 0.6 * (np.mean(before) - 1)


def test_eight_chunks_with_memory_for_ten_are_soon_ordered_well() -> None:
    """4 ranks, 16 micro-batches: the memory of rank 0 alone takes 16 * 28.8; the others take 1.7 times as long."""
    stage = PipelineStage(forward_s=1, input_grad_s=1, weight_grad_s=1, activation_bytes=1.0)
    problem = PipelineProblem(
        num_microbatches=16,
        ranks=(PipelineRank(activation_budget_bytes=10.0),) * 4,
        layout="loop",
        stages=(stage,) * 32,
    )
    assert by_memory_s(shape_of(problem)) == pytest.approx(28.8)
    found = quick_schedule(problem, ("paced",))
    assert check_schedule(problem, found) == []
    assert found.objective_value_s < 0.7 * quick_schedule(problem, BEFORE).objective_value_s


@pytest.mark.parametrize("sends", ["asynchronous", "blocking"])
def test_whatever_is_made_keeps_memory_and_names_every_operation(sends: str) -> None:
    made = 0
    for number in range(20):
        problem = scarce(number, "loop").model_copy(update={"sends": sends})
        order = paced(shape_of(problem))
        if order is not None:
            made += 1
            assert sorted(np.concatenate(order.rank_ops).tolist()) == list(range(problem.num_operations))
    assert made >= 15


def test_ample_memory_and_single_chunks_are_left_to_others() -> None:
    loop = random_loop_case(4, 8, 0, 1.0)
    ample = loop.model_copy(update={"ranks": (PipelineRank(),) * 4})
    assert by_memory_s(shape_of(ample)) == 0.0
    assert paced(shape_of(ample)) is None
    assert paced(shape_of(pipeline(4, 8, ranks=budget(4, 1.0)))) is None


def test_ranks_without_memory_hold_nothing() -> None:
    """Stages that keep nothing ask for no interval, whatever the budget, and no rank divides by zero."""
    stages = [{"forward_s": 1, "input_grad_s": 1, "weight_grad_s": 1}] * 8
    problem = pipeline(4, 8, layout="loop", stages=stages, ranks=budget(4, 0.0))
    assert by_memory_s(shape_of(problem)) == 0.0
    assert paced(shape_of(problem)) is None


def test_with_half_the_memory_of_interleaving_groups_reach_the_bound() -> None:
    """12 ranks with 4 chunks: interleaved 1F1B holds 59 chunks; one by one takes 3 to 8 % more."""
    stage = PipelineStage(forward_s=1, input_grad_s=1, weight_grad_s=1, activation_bytes=1.0)
    for num_microbatches in (12, 30):
        problem = PipelineProblem(
            num_microbatches=num_microbatches,
            ranks=(PipelineRank(activation_budget_bytes=30.0),) * 12,
            layout="loop",
            stages=(stage,) * 48,
        )
        found = quick_schedule(problem, ("paced",))
        assert check_schedule(problem, found) == []
        assert found.objective_value_s < 1.001 * lower_bound(problem)


def test_groups_are_equal_and_no_larger_than_asked_for() -> None:
    """Memory for three micro-batches with both of their chunks, of ten."""
    stages = [{"forward_s": 1, "input_grad_s": 1, "weight_grad_s": 1, "activation_bytes": 1}] * 8
    shape = shape_of(pipeline(4, 10, layout="loop", stages=stages, ranks=budget(4, 6.0)))
    for pace in PACES:
        steps = np.diff(releases(shape, pace))
        assert np.all(steps > 0)
        if pace.inside == pace.between:  # an even pace has no groups
            assert steps == pytest.approx(pace.inside)
            continue
        begins = np.flatnonzero(~np.isclose(steps, pace.inside)) + 1
        sizes = np.diff([0, *begins, 10])
        assert sizes.max() - sizes.min() <= 1
        assert sizes.max() <= round(3 * pace.group)
