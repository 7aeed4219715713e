"""Late starts for the span: never worse, judged, and as late as can be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.first_schedules import quick_schedule
from models.schedule import PipelineProblem
from solver.pipeline.assemble import assemble
from solver.pipeline.bounds import lower_bound
from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.judge import check_schedule
from solver.pipeline.local_search.late_starts import replayed
from solver.pipeline.problem import shape_of
from solver.pipeline.quantise import quantise
from solver.pipeline.simulate import replay_shape
from solver.pipeline.solve import solve_pipeline
from tests.pipelines import budget, cut, pipeline, problems


@given(problems(max_ranks=4, max_microbatches=5))
@settings(max_examples=80, deadline=None)
def test_late_starts_never_worsen_the_span_and_are_acquitted(problem: PipelineProblem) -> None:
    """Last ends of ranks and the makespan stay, and the judge has nothing to object."""
    problem = problem.model_copy(update={"objective": "span"})
    shape = shape_of(problem)
    for name in ("greedy", "gpipe"):
        order = GENERATORS[name](shape)
        assert order is not None
        early, late = replay_shape(shape, order), replayed(shape, order, "span")
        assert late.span_s <= early.span_s * (1 + 1e-12)
        assert late.makespan_s <= early.makespan_s * (1 + 1e-12)
        assert (late.start >= early.start - 1e-9 - (early.makespan_s - late.makespan_s)).all()
        if (early.peak_memory_bytes <= shape.budget_r).all():
            schedule = assemble(problem, order, generator=name, lower_bound_s=lower_bound(problem), seconds=0.0)
            assert check_schedule(problem, schedule) == []
            assert schedule.objective_value_s == pytest.approx(replayed(shape, order, "span").span_s)
            assert lower_bound(problem) <= schedule.objective_value_s * (1 + 1e-9)


def test_an_exchange_rounded_to_no_ticks_has_its_turn() -> None:
    """A microsecond on a link, of ticks of a second: the last end of its rank is when it is due."""
    exchange = {"gradient_sync_s": 1e-6, "gradient_sync_link": "A-B"}
    stages = [stage.model_dump() | exchange for stage in pipeline(2).stages]
    shape = shape_of(pipeline(2, 2, stages=stages, objective="span"))
    ticks, order = quantise(shape, 1.0).shape, GENERATORS["greedy"](shape)
    assert order is not None
    assert replayed(ticks, order, "span").span_s == pytest.approx(replayed(shape, order, "span").span_s, abs=1e-5)


def test_a_rank_that_runs_ahead_starts_later() -> None:
    """Rank 0 has room for three micro-batches: F0 at 0 can wait until rank 1 is what everybody waits for."""
    problem = pipeline(2, 1, hops=[cut(0, 5.0)], objective="span")
    shape = shape_of(problem)
    order = GENERATORS["gpipe"](shape)
    assert order is not None
    assert replayed(shape, order, "span").span_s == pytest.approx(1 + 5 + 1 + 1 + 5 + 1 + 1)
    late = replayed(shape, order, "makespan")
    assert late.start.min() == 0.0


def test_what_leaves_early_waits_for_what_it_meets() -> None:
    """No rank starts earlier than in the replay, and the span of 1F1B over a cut is no longer."""
    problem = pipeline(4, 4, backward="fused", hops=[cut(1, 3.0)], objective="span")
    early = replay_shape(shape_of(problem), GENERATORS["one_f_one_b"](shape_of(problem)) or pytest.fail("applies"))
    late = quick_schedule(problem, ("one_f_one_b",))
    firsts = np.array([rank.start_s[0] for rank in late.ranks])
    shaped = early.start.reshape(2, 4, 4)
    assert late.objective_value_s <= early.span_s
    assert (firsts >= shaped.min(axis=(0, 2)) - 1e-9).all()


def test_the_search_for_the_span_is_no_worse_than_any_generator() -> None:
    problem = pipeline(4, 6, ranks=budget(4, 5), hops=[cut(1, 2.5, 0.5)], objective="span")
    problem = problem.model_copy(update={"options": problem.options.model_copy(update={"time_limit_s": 2.0})})
    solved = solve_pipeline(problem)
    assert solved.objective_value_s <= quick_schedule(problem).objective_value_s
    assert check_schedule(problem, solved) == []
