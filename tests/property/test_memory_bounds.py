"""Bounds by memory never exceed the optimum of an independent model, and no schedule breaks a wait for memory."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from models.schedule import PipelineProblem, PipelineRank
from solver.pipeline.bounds import makespan_bound, memory_waits, span_bound
from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.portfolio import policies
from solver.pipeline.problem import PipelineShape, shape_of
from solver.pipeline.simulate import replay_shape
from tests.pipelines import budget, cut, pipeline, problems

HORIZON = 1_000  # s, longer than any schedule here
MOST_WORK = 0.4  # deterministic seconds of CP-SAT; a schedule that is not proven best bounds the optimum, too


class Model:
    """A problem in whole seconds and bytes for CP-SAT: micro-batches in any order, memory as intervals of any length.

    Delays between stages take no channel and exchanges no link.
    """

    def __init__(self, shape: PipelineShape) -> None:
        self.shape, self.model = shape, cp_model.CpModel()
        self.duration = shape.duration_ks.astype(int).tolist()
        sizes = (shape.num_kinds, shape.num_stages, shape.num_microbatches)
        self.start = {key: self.model.new_int_var(0, HORIZON, "") for key in product(*map(range, sizes))}
        for (k, s, j), begin in self.start.items():
            if k == 0 and s > 0:
                self.model.add(begin >= self.end(0, s - 1, j) + int(shape.latency_s[s - 1]))
            elif k == 1 and s < shape.num_stages - 1:
                self.model.add(begin >= self.end(1, s + 1, j) + int(shape.latency_s[s]))
            elif k > 0:
                self.model.add(begin >= self.end(k - 1, s, j))
        for rank in range(shape.num_ranks):
            own = [key for key in self.start if shape.rank_of_s[key[1]] == rank]
            lengths = [self.duration[k][s] for k, s, _ in own]
            intervals = [
                self.model.new_fixed_size_interval_var(self.start[key], length, "")
                for key, length in zip(own, lengths, strict=True)
            ]
            self.model.add_no_overlap(intervals)
            if np.isfinite(shape.budget_r[rank]):
                holds = [self.hold(key) for key in own if key[0] < shape.num_kinds - 1]
                held = [int((shape.activation_s, shape.context_s)[k][s]) for k, s, _ in own if k < shape.num_kinds - 1]
                self.model.add_cumulative(holds, held, int(shape.budget_r[rank]))

    def end(self, kind: int, stage: int, microbatch: int) -> cp_model.LinearExpr:
        """End of an operation."""
        return self.start[kind, stage, microbatch] + self.duration[kind][stage]

    def hold(self, key: tuple[int, int, int]) -> cp_model.IntervalVar:
        """Memory from the start of an F, or from the end of a B, to the end of what follows on the stage."""
        kind, stage, microbatch = key
        begin = self.start[key] if kind == 0 else self.end(*key)
        length = self.model.new_int_var(0, HORIZON, "")
        return self.model.new_interval_var(begin, length, self.end(kind + 1, stage, microbatch), "")

    def least(self, objective: str) -> float:
        """The least makespan or span that is found."""
        value = self.model.new_int_var(0, HORIZON, "")
        for rank in range(self.shape.num_ranks):
            first = self.model.new_int_var(0, HORIZON if objective == "span" else 0, "")
            for key, begin in self.start.items():
                if self.shape.rank_of_s[key[1]] == rank:
                    exchange = int(self.shape.sync_s[key[1]]) if key[0] == self.shape.num_kinds - 1 else 0
                    self.model.add(first <= begin)
                    self.model.add(value >= self.end(*key) + exchange - first)
        self.model.minimize(value)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = MOST_WORK
        assert solver.solve(self.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        return solver.objective_value


@st.composite
def short_of_memory(draw: st.DrawFn) -> PipelineProblem:
    """Up to three stages on each of one or two ranks, in any places, with memory for two micro-batches or fewer."""
    num_ranks, chunks, microbatches = draw(st.sampled_from([(1, 2, 5), (1, 3, 4), (2, 1, 5), (2, 2, 3)]))
    placement = draw(st.permutations([rank for rank in range(num_ranks) for _ in range(chunks)]))
    fused = draw(st.booleans())
    equal = draw(st.booleans())
    stages = [
        {
            "forward_s": draw(st.integers(1, 3)),
            "input_grad_s": draw(st.integers(1, 3)),
            "weight_grad_s": draw(st.integers(0, 2)),
            "activation_bytes": 2 if equal else draw(st.integers(1, 3)),
            "weight_grad_context_bytes": draw(st.sampled_from([0, 1, 2, 3])),
            "gradient_sync_s": draw(st.sampled_from([0, 0, 3])),
        }
        for _ in placement
    ]
    ranks = []
    for rank in range(num_ranks):
        own = [stage for stage, place in zip(stages, placement, strict=True) if place == rank]
        held = [[stage["activation_bytes"], 0 if fused else stage["weight_grad_context_bytes"]] for stage in own]
        one = sum(map(max, held))
        most = draw(st.sampled_from([one, one + 1, one + 2, one + one // 2, 2 * one]))
        ranks.append({"activation_budget_bytes": most})
    return PipelineProblem.model_validate(
        {
            "num_microbatches": microbatches,
            "layout": "custom",
            "rank_of_stage": list(placement),
            "ranks": ranks,
            "stages": stages,
            "hops": [cut(at, draw(st.integers(0, 8))) for at in range(len(placement) - 1)],
            "backward": "fused" if fused else "split_allowed",
        }
    )


@settings(max_examples=25, deadline=None)
@given(short_of_memory(), st.sampled_from(["makespan", "makespan", "span"]))
def test_no_bound_exceeds_the_optimum_of_an_independent_model(problem: PipelineProblem, objective: str) -> None:
    shape = shape_of(problem)
    bound_s = makespan_bound(shape) if objective == "makespan" else span_bound(shape)
    assert bound_s <= Model(shape).least(objective)


@settings(max_examples=40, deadline=None)
@given(st.one_of(problems(max_microbatches=8), short_of_memory()), st.integers(0, 7))
def test_no_schedule_breaks_a_wait_for_memory(problem: PipelineProblem, number: int) -> None:
    shape, grid = shape_of(problem), policies(shape_of(problem))
    run = replay_shape(shape, greedy_order(shape, grid[number * len(grid) // 8]))
    if (run.peak_memory_bytes > shape.budget_r * (1 + 1e-9)).any():
        return
    sizes = (shape.num_kinds, shape.num_stages, shape.num_microbatches)
    start, end = np.sort(run.start.reshape(sizes)), np.sort(run.end.reshape(sizes))
    waits = memory_waits(shape)
    for stage in range(shape.num_stages):
        for at in range(waits.at[stage], waits.at[stage + 1]):
            freed, kind, distance = waits.stage[at], waits.kind[at], waits.distance[at]
            assert (start[0, stage, distance:] >= end[kind, freed, :-distance] - 1e-9).all()


def test_waits_between_the_stages_of_a_rank() -> None:
    """Three stages of one byte, memory for four: the third F waits for the first B of two before, for its own of one.

    F of stage 2 holds three bytes and one is free: no other may have done its F there, one may hold one byte.
    """
    shape = shape_of(pipeline(1, 8, layout="loop", stages=[stage_of(0.0)] * 3, ranks=budget(1, 4.0)))
    waits = memory_waits(shape)
    found = [
        sorted(zip(waits.stage[a:b].tolist(), waits.kind[a:b].tolist(), waits.distance[a:b].tolist(), strict=True))
        for a, b in zip(waits.at, waits.at[1:], strict=False)
    ]
    assert found == [[(0, 1, 4)], [(0, 1, 3), (1, 1, 2)], [(0, 1, 2), (1, 1, 1)]]


def stage_of(context_bytes: float) -> dict[str, float]:
    times = {"forward_s": 1.0, "input_grad_s": 1.0, "weight_grad_s": 1.0}
    return {**times, "activation_bytes": 1.0, "weight_grad_context_bytes": context_bytes}


def test_a_loop_short_of_memory_is_bounded_by_its_memory_over_time() -> None:
    """Four of three stages fit: longest path and busy rank give 47 s, without a limit 38 s, the optimum is 52 s."""
    hops = [cut(0, 4.0), cut(1, 4.0)]
    tight = pipeline(1, 4, layout="loop", stages=[stage_of(1.0)] * 3, ranks=budget(1, 4.0), hops=hops)
    assert makespan_bound(shape_of(tight)) == pytest.approx(50.0)
    assert Model(shape_of(tight)).least("makespan") == 52.0
    roomy = tight.model_copy(update={"ranks": (PipelineRank(activation_budget_bytes=12.0),)})
    assert makespan_bound(shape_of(roomy)) == pytest.approx(38.0)


@pytest.mark.parametrize(
    ("ranks", "chunks", "delay_s", "fit", "bound_s", "optimum_s"),
    [(2, 2, 1.0, 4.0, 35.0, 36.0), (2, 2, 4.0, 4.0, 77.0, 78.0), (1, 3, 4.0, 4.0, 65.0, 67.0)],
)
def test_bounds_of_loops_are_close_to_their_optima(
    ranks: int, chunks: int, delay_s: float, fit: float, bound_s: float, optimum_s: float
) -> None:
    """Six micro-batches, fused. `Model` proves these optima in 1 to 7 s each, so they stand here as numbers."""
    stages = [stage_of(0.0) | {"weight_grad_s": 0.0}] * (ranks * chunks)
    hops = [cut(at, delay_s) for at in range(len(stages) - 1)]
    changes = {"stages": stages, "hops": hops, "layout": "loop", "backward": "fused", "ranks": budget(ranks, fit)}
    assert makespan_bound(shape_of(pipeline(ranks, 6, **changes))) == pytest.approx(bound_s)
    assert bound_s <= optimum_s


def test_memory_counts_in_whole_activations() -> None:
    """4.9 of three equal stages are four of them, and no more where one is larger by half."""
    hops = [cut(0, 4.0), cut(1, 4.0)]
    bounds = []
    for most, first in ((4.0, 1.0), (4.9, 1.0), (4.9, 1.0 + 1e-3)):
        stages = [stage_of(1.0) | {"activation_bytes": first}, stage_of(1.0), stage_of(1.0)]
        problem = pipeline(1, 4, layout="loop", stages=stages, ranks=budget(1, most), hops=hops)
        bounds.append(makespan_bound(shape_of(problem)))
    assert bounds[0] == pytest.approx(bounds[1])
    assert bounds[2] < bounds[1] - 1
