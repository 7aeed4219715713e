"""Closed forms and memory of the generators, from their papers. p ranks, m micro-batches, F = B = W = 1 per rank."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.first_schedules import quick_schedule
from models.schedule import PipelineProblem
from solver.pipeline.generators.one_f_one_b import with_warm_ups
from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.judge import check_schedule
from solver.pipeline.problem import shape_of
from solver.pipeline.simulate import PipelineReplay, replay_shape
from tests.pipelines import budget, cut, pipeline


def run(name: str, problem: PipelineProblem) -> PipelineReplay:
    shape = shape_of(problem)
    order = GENERATORS[name](shape)
    assert order is not None
    return replay_shape(shape, order)


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 32)])
def test_fused_1f1b_and_gpipe_take_m_plus_p_minus_1_rounds(p: int, m: int) -> None:
    for name, activations in (("one_f_one_b", p), ("gpipe", m)):
        result = run(name, pipeline(p, m, backward="fused"))
        assert result.makespan_s == pytest.approx((m + p - 1) * 3)
        assert result.peak_memory_bytes.max() == pytest.approx(activations)


@pytest.mark.parametrize("after", [1, 2, 4, 6])
@pytest.mark.parametrize("delay_s", [1.0, 4.0])
def test_one_cut_costs_1f1b_its_round_trip_every_second_micro_batch(after: int, delay_s: float) -> None:
    """T = (m + p - 1)(F + B) + 2 d ceil((m - p + cut + 1) / 2), m >= p; measured with F = I = W."""
    p, m = 8, 32
    result = run("one_f_one_b", pipeline(p, m, backward="fused", hops=[cut(after - 1, delay_s)]))
    rounds = -(-(m - p + after + 1) // 2)
    assert result.makespan_s == pytest.approx((m + p - 1) * 3 + 2 * delay_s * rounds)


def test_extra_warm_ups_leave_only_fill_and_drain() -> None:
    p, m, delay_s = 8, 32, 4.0
    result = run("eager_one_f_one_b", pipeline(p, m, backward="fused", hops=[cut(3, delay_s)]))
    assert result.makespan_s == pytest.approx((m + p - 1) * 3 + 2 * delay_s)


@pytest.mark.parametrize(
    ("p", "delays", "extra"), [(6, {1: 2.0, 3: 5.0}, 0), (6, {0: 1.5, 2: 4.0}, 2), (8, {5: 7.0}, 1)]
)
def test_the_period_of_1f1b_is_the_worst_loop_of_two_ranks(p: int, delays: dict[int, float], extra: int) -> None:
    """period = max(F + B, max over i < j of ((j - i + 1)(F + B) + 2 sum of delays) / (w_i - w_j + 1))."""
    hops = [cut(at, delay_s) for at, delay_s in delays.items()]
    counts = [p - 1 - rank + (extra if rank <= max(delays) else 0) for rank in range(p)]
    loops = [
        ((j - i + 1) * 3 + 2 * sum(delays.get(k, 0.0) for k in range(i, j))) / (counts[i] - counts[j] + 1)
        for i in range(p)
        for j in range(i + 1, p)
    ]
    makespans = []
    for m in (120, 240):
        shape = shape_of(pipeline(p, m, backward="fused", hops=hops))
        more = [extra if rank <= max(delays) else 0 for rank in range(p)]
        order = with_warm_ups(shape, np.array(more))
        assert order is not None
        makespans.append(replay_shape(shape, order).makespan_s)
    assert (makespans[1] - makespans[0]) / 120 == pytest.approx(max(3.0, *loops))


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 32)])
def test_zero_bubble_idles_as_its_paper_says(p: int, m: int) -> None:
    h1, h2 = run("zb_h1", pipeline(p, m)), run("zb_h2", pipeline(p, m))
    assert h1.makespan_s == pytest.approx(3 * m + (p - 1))
    assert h1.peak_memory_bytes.max() <= p
    assert h2.span_s == pytest.approx(3 * m)
    assert h2.peak_memory_bytes.max() <= 2 * p - 1


@pytest.mark.parametrize(("p", "m", "chunks"), [(4, 8, 2), (4, 8, 4), (8, 32, 2)])
def test_interleaving_divides_the_bubble_by_the_chunks(p: int, m: int, chunks: int) -> None:
    problem = pipeline(p, m, chunks=chunks, layout="loop", backward="fused")
    assert run("interleaved", problem).makespan_s == pytest.approx(3 * m + (p - 1) * 3 / chunks)


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 32), (16, 64)])
def test_v_schedules_hold_what_their_paper_says(p: int, m: int) -> None:
    problem = pipeline(p, m, chunks=2)
    for name, most in (("v_min", (p + 4) / 3), ("v_half", (p + 2) / 2), ("zbv", p), ("dual_pipe_v", p + 0.5)):
        assert run(name, problem).peak_memory_bytes.max() <= most + 1e-9


def test_v_schedules_keep_their_measured_makespan() -> None:
    """zero-bubble's own V-Min: 109.5 at (8, 32), V-Half 104.5; torch's DualPipeV: 99.5; ZBV 199.5 at (16, 64)."""
    for m, makespan_s in ((16, 56.5), (32, 104.5), (64, 200.5)):
        assert run("v_half", pipeline(8, m, chunks=2)).makespan_s == pytest.approx(makespan_s)
    assert run("v_min", pipeline(8, 32, chunks=2)).makespan_s == pytest.approx(109.5)
    assert run("dual_pipe_v", pipeline(8, 32, chunks=2)).makespan_s == pytest.approx(99.5)
    assert run("zbv", pipeline(16, 64, chunks=2)).makespan_s == pytest.approx(199.5)


@pytest.mark.parametrize(
    ("ranks", "microbatches", "makespan_s"), [(4, 4, 15.0), (4, 8, 25.5), (8, 16, 51.5), (8, 24, 75.5), (8, 32, 99.5)]
)
def test_zbv_runs_as_published(ranks: int, microbatches: int, makespan_s: float) -> None:
    """zero-bubble's own ZBV at F = B = W: 3 m + (p - 1) / 2 from m = 2 p on."""
    replayed = run("zbv", pipeline(ranks, microbatches, chunks=2))
    assert replayed.makespan_s == pytest.approx(makespan_s)
    assert replayed.peak_memory_bytes.max() <= ranks


@pytest.mark.parametrize("layout", ["one_way", "v", "loop"])
@pytest.mark.parametrize("backward", ["fused", "split_allowed"])
def test_every_generator_is_acquitted_wherever_it_applies(layout: str, backward: str) -> None:
    chunks = 1 if layout == "one_way" else 2
    hops = [cut(1, 2.0, 0.5, "a"), cut(2, 1.0, 0.25, "a")]
    problem = pipeline(4, 8, chunks=chunks, layout=layout, backward=backward, hops=hops)
    applied = 0
    for name in GENERATORS:
        if GENERATORS[name](shape_of(problem)) is not None:
            assert check_schedule(problem, quick_schedule(problem, (name,))) == []
            applied += 1
    assert applied >= 6


@pytest.mark.parametrize("name", ["interleaved", "breadth_first", "flexible_double"])
def test_a_loop_that_ends_on_the_way_is_none(name: str) -> None:
    """Stages 0, 1, 2 on ranks 0, 1, 0: in turn, but not the same number on both."""
    problem = pipeline(2, 2, layout="custom", rank_of_stage=[0, 1, 0], stages=pipeline(3).stages)
    assert GENERATORS[name](shape_of(problem)) is None
    schedule = quick_schedule(problem)
    assert check_schedule(problem, schedule) == []
    assert schedule.lower_bound_s <= schedule.objective_value_s


def test_an_unknown_generator_is_named() -> None:
    with pytest.raises(ValueError, match="unknown generator nonsense"):
        quick_schedule(pipeline(), ("nonsense",))


def test_a_generator_over_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="memory budgets"):
        quick_schedule(pipeline(4, 8, ranks=budget(4, 2)), ("gpipe",))
