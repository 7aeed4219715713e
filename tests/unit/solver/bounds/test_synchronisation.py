"""Exchanges of the chunks of a rank share its cards: the bound of that against the orders of all generators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.pipeline_cases import random_loop_case, random_v_case
from models.plan import Configuration, Degrees
from models.schedule import PipelineProblem
from solver.bounds.synchronisation import rank_exchanges_s
from solver.evaluation.scheduling import portfolio_timing
from solver.transport.exchange import ExchangeCost
from solver.transport.exchange_times import run_exchanges


def _configuration(problem: PipelineProblem) -> Configuration:
    """What has the ranks and the micro-batches of the pipeline, which has two chunks on every rank."""
    degrees = Degrees(tp=1, cp=1, pp=len(problem.ranks), dp=1, vpp=2)
    return Configuration.model_construct(
        degrees=degrees, family=problem.layout, num_microbatches=problem.num_microbatches
    )


@pytest.mark.parametrize("case", [random_loop_case, random_v_case])
def test_no_order_ends_its_exchanges_before_the_bound(case: Callable[[int, int, int, float], PipelineProblem]) -> None:
    random, tight = np.random.default_rng(7), []
    for number in range(40):
        problem = case(4, 8, number, 1.0).without_exchanges()
        mean_s = float(np.mean([stage.forward_s for stage in problem.stages]))
        exchange_s, overlap_s = random.uniform(0.0, 30.0 * mean_s, (2, len(problem.stages))) * [[1.0], [0.1]]
        names = ("forward_s", "input_grad_s", "weight_grad_s")
        work_s = [np.array([getattr(stage, name) for stage in problem.stages]) for name in names]
        bound_s = rank_exchanges_s(_configuration(problem), work_s, exchange_s, overlap_s)
        timing = portfolio_timing(problem, None)
        assert timing is not None
        costs = tuple(ExchangeCost(*map(float, both), 0.0, {}) for both in zip(overlap_s, exchange_s, strict=True))
        ends = run_exchanges(costs, timing.last_weight_gradients_s.tolist(), problem.placement)
        end_s = max(one.end_s for one in ends)
        assert bound_s <= end_s * (1.0 + 1e-9)
        tight.append(bound_s / end_s)
    assert max(tight) > 0.8
