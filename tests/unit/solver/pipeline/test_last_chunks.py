"""Late chunks first: their exchanges run beside the backwards of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.pipeline_cases import random_loop_case, random_v_case
from models.schedule import PipelineProblem
from models.statements import CARDS_LINK
from solver.pipeline.generators.last_chunks import last_chunks_first
from solver.pipeline.portfolio import candidates
from solver.pipeline.problem import shape_of


def exchanging(problem: PipelineProblem, times: float) -> PipelineProblem:
    """The problem with memory for all, and exchanges of the chunks of a rank one after another, of so many forwards."""
    first_s = problem.stages[0].forward_s
    held = 4.0 * problem.num_microbatches * max(stage.activation_bytes for stage in problem.stages)
    ranks = tuple(rank.model_copy(update={"activation_budget_bytes": held}) for rank in problem.ranks)
    stages = tuple(
        stage.model_copy(update={"gradient_sync_s": times * first_s, "gradient_sync_link": f"{CARDS_LINK} {rank}"})
        for stage, rank in zip(problem.stages, problem.placement, strict=True)
    )
    return problem.model_copy(update={"stages": stages, "ranks": ranks})


@pytest.mark.parametrize("case", [random_loop_case, random_v_case])
def test_slow_exchanges_hide_better_than_under_depth_first(
    case: Callable[[int, int, int, float], PipelineProblem],
) -> None:
    sooner = 0
    for number in range(12):
        shape = shape_of(exchanging(case(4, 32, number, 1.0), 24.0))
        ends = {
            name: min((one.value_s for one in candidates(shape, "makespan", (name,))), default=float("inf"))
            for name in ("last_chunks_first", "greedy_depth_first")
        }
        sooner += ends["last_chunks_first"] < ends["greedy_depth_first"]
    assert sooner >= 8


def test_one_chunk_per_rank_is_left_to_others() -> None:
    problem = random_loop_case(4, 8, 0, 1.0)
    one_way = problem.model_copy(update={"layout": "one_way", "stages": problem.stages[:4], "hops": problem.hops[:3]})
    assert last_chunks_first(shape_of(one_way)) is None
