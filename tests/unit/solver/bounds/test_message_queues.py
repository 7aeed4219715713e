"""Queues of messages, held against schedules of pipelines that cross at any one boundary."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from models.schedule import Layout, PipelineHop, PipelineProblem, PipelineRank, PipelineStage
from solver.arrays import FloatArray
from solver.bounds.connections import MessageLoss
from solver.bounds.crossing_messages import CrossingDelay, CrossingMessages
from solver.bounds.cuts import cuts
from solver.bounds.message_queues import MessageQueues
from solver.evaluation.scheduling import Timing, portfolio_timing
from solver.pipeline.problem import shape_of
from tests.build_job import context_of, job

HOP_S, CARDS_S, OVERLAP_S = 0.1, 3.0, 0.2
LAYOUTS: list[tuple[Layout, int, int]] = [
    ("one_way", 1, 3),
    ("v", 2, 3),
    ("v", 2, 4),
    ("loop", 2, 3),
    ("loop", 3, 2),
]
NAMES = {"one_way": ("zb_h1", "greedy", "one_f_one_b"), "v": ("greedy_depth_first", "interleaved", "last_chunks_first")}


def problem_of(pipeline: tuple[Layout, int, int], far: int | None, message_s: float, after_s: float) -> PipelineProblem:
    """A pipeline (layout, chunks, ranks) whose messages between one rank and the next take their queue for so long."""
    layout, vpp, pp = pipeline
    stage = PipelineStage(forward_s=1.0, input_grad_s=1.1, weight_grad_s=0.7, activation_bytes=1.0)
    problem = PipelineProblem(
        num_microbatches=6,
        ranks=(PipelineRank(activation_budget_bytes=1e3),) * pp,
        stages=(stage,) * (vpp * pp),
        layout=layout,
    )
    hops = []
    for number, (here, there) in enumerate(itertools.pairwise(problem.placement)):
        if here == there:
            continue
        crosses = far is not None and {here, there} == {far, far + 1}
        latency_s, transfer_s = (after_s, message_s) if crosses else (HOP_S, 0.0)
        link = "far" if crosses else None
        hops.append(
            PipelineHop(from_stage=number, to_stage=number + 1, latency_s=latency_s, transfer_s=transfer_s, link=link)
        )
    return problem.model_copy(update={"hops": tuple(hops)})


def timings(problem: PipelineProblem) -> Iterator[Timing]:
    """Schedules by several rules."""
    for name in NAMES["one_way" if problem.layout == "one_way" else "v"]:
        found = portfolio_timing(problem, (name,))
        if found is not None:
            yield found


def exchanged_s(problem: PipelineProblem, last_s: FloatArray) -> float:
    """End of the exchanges, those of a rank one after another in the best order."""
    ends = []
    for rank in range(len(problem.ranks)):
        own = [stage for stage, held in enumerate(problem.placement) if held == rank]
        ends.append(min(_in_order_s(last_s[list(order)]) for order in itertools.permutations(own)))
    return max(ends)


def _in_order_s(last_s: FloatArray) -> float:
    free_s = 0.0
    for ready_s in last_s - OVERLAP_S:
        free_s = max(free_s, ready_s) + CARDS_S
    return max(free_s, float(last_s.max()))


@pytest.mark.parametrize(("layout", "vpp", "pp"), LAYOUTS)
@pytest.mark.parametrize("message_s", [0.05, 1.0, 4.0])
def test_no_schedule_with_a_slow_boundary_ends_before_the_bound(
    layout: Layout, vpp: int, pp: int, message_s: float
) -> None:
    num_stages, after_s = vpp * pp, 0.3
    plain = shape_of(problem_of((layout, vpp, pp), None, 0.0, HOP_S))
    queued = MessageQueues(plain, np.full(num_stages, CARDS_S), np.full(num_stages, OVERLAP_S))
    bound_s, found = queued.least_s(message_s, after_s), []
    for far in range(pp - 1):
        problem = problem_of((layout, vpp, pp), far, message_s, after_s)
        found += [exchanged_s(problem, one.last_weight_gradients_s) for one in timings(problem)]
    assert bound_s <= min(found) * (1 + 1e-9)
    if message_s == 4.0:
        assert bound_s > 0.75 * min(found)


def test_slower_messages_are_waited_for() -> None:
    plain = shape_of(problem_of(("v", 2, 4), None, 0.0, HOP_S))
    queued = MessageQueues(plain, np.full(8, 10.0), np.zeros(8))
    ends = [queued.least_s(message_s, 0.0) for message_s in (1.0, 2.0)]
    assert ends[1] - ends[0] == pytest.approx(2 * 6 * 1.0)  # both chunks of all micro-batches
    twice = replace(queued, cards_s=2.0 * queued.cards_s)
    assert twice.least_s(1.0, 0.0) - ends[0] == pytest.approx(2 * 10.0)  # both exchanges of a rank wait


def test_queues_that_cannot_bound_a_row_alone_are_left_out() -> None:
    """The larger of a queue and what else bounds a row is the same, however few of the queues are worked out."""
    cut = next(iter(cuts(context_of(job(link={"planes": 8, "load_balancing": ["ecmp"]})))))
    assert cut.limits.shared is not None
    random, num_rows = np.random.default_rng(7), 400
    gpus, num_hops = random.integers(1, 33, num_rows), random.integers(1, 40, num_rows)
    size = random.uniform(1e6, 1e9, num_rows)
    ones, none = np.ones(num_rows, dtype=np.int64), MessageLoss(0.0, 0.0, 4096, False, 1, 1)
    alone_s = size / (gpus * cut.limits.message_bytes_per_s)
    messages = CrossingMessages(size, gpus, alone_s, 1e-3, none, 1e12, cut.limits.shared, ones)
    delay = CrossingDelay(ones, ones > 1, num_hops, messages=messages)
    found = delay.queued_s(8 * ones, np.zeros(num_rows))
    assert (found > 8 * alone_s + 1e-3).any()
    beyond_s = found * random.uniform(0.3, 1.5, num_rows)
    some = delay.queued_s(8 * ones, beyond_s)
    assert (some < found).any()
    np.testing.assert_array_equal(np.maximum(some, beyond_s), np.maximum(found, beyond_s))
