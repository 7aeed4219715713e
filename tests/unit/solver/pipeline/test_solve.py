"""The whole solver of pipelines: published optima, limits, cancellation and progress."""

from __future__ import annotations

import time
from itertools import count

import pytest

from benchmarks.first_schedules import quick_schedule
from models.schedule import PipelineProblem, PipelineSchedule, ScheduleProgress
from solver.pipeline.generators.list_scheduler import one_by_one
from solver.pipeline.judge import check_schedule
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.solve import PUBLISH_SHARE, IncumbentPublisher, prove_and_search, search_pipeline, solve_pipeline
from tests.pipelines import budget, cut, pipeline


@pytest.mark.parametrize(("delay_s", "optimum_s"), [(0.0, 55.0), (2.0, 63.0), (8.0, 87.0)])
def test_two_buildings_reach_the_proven_optimum(delay_s: float, optimum_s: float) -> None:
    """p = 8, m = 16, F = I = W = 1, eight activations per rank, one cut in the middle."""
    problem = pipeline(8, 16, ranks=budget(8, 8), hops=[cut(3, delay_s)])
    schedule = solve_pipeline(problem)
    assert schedule.objective_value_s == pytest.approx(optimum_s)
    assert schedule.status == "optimal"
    assert schedule.lower_bound_s == pytest.approx(optimum_s)


def test_the_order_of_transfers_is_planned() -> None:
    """Two cuts on one link: the search is at least as good as any first come first served generator."""
    hops = [cut(0, 1.0, 1.0, "A-B"), cut(2, 1.0, 1.0, "A-B")]
    problem = pipeline(4, 6, ranks=budget(4, 4), hops=hops)
    assert solve_pipeline(problem).objective_value_s <= quick_schedule(problem).objective_value_s


def test_cancelled_at_once_still_answers() -> None:
    problem = pipeline(4, 8, ranks=budget(4, 4), hops=[cut(1, 3.0)])
    schedule = solve_pipeline(problem, cancelled=lambda: True)
    assert schedule.objective_value_s == quick_schedule(problem).objective_value_s


def test_time_is_the_clock_that_was_given() -> None:
    ticks = count()
    problem = pipeline(4, 8, ranks=budget(4, 4), hops=[cut(1, 3.0)])
    schedule = solve_pipeline(problem, clock=lambda: float(next(ticks) * 100))
    assert schedule.seconds >= 100


def test_progress_only_ever_gets_better() -> None:
    seen: list[ScheduleProgress] = []
    problem = pipeline(4, 8, ranks=budget(4, 4), hops=[cut(1, 3.0)])
    final = solve_pipeline(problem, progress=seen.append)
    values = [step.objective_value_s for step in seen]
    bounds = [step.lower_bound_s for step in seen]
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)
    assert values[-1] == final.objective_value_s


def test_span_of_zero_bubble_is_all_work() -> None:
    problem = PipelineProblem.model_validate(pipeline(4, 8).model_dump() | {"objective": "span"})
    assert solve_pipeline(problem).objective_value_s == pytest.approx(24.0)


@pytest.mark.parametrize("objective", ["makespan", pytest.param("span", marks=pytest.mark.slow)])
@pytest.mark.parametrize("backward", ["split_allowed", "fused"])
def test_operations_that_take_no_time_never_wait_in_a_circle(objective: str, backward: str) -> None:
    """Only delays take time, six for each way there and back. Rank 1 has room for two micro-batches until 4.

    Then the third passes stage 1 or stage 2 late: B of stage 2 ends at 7 at best, two hops more make 9.
    """
    stage = {"forward_s": 0, "input_grad_s": 0, "weight_grad_s": 0, "activation_bytes": 1}
    hops = [cut(at, 1.0, 0.0) for at in range(3)]
    problem = pipeline(
        2, 3, chunks=2, stages=[stage] * 4, hops=hops, ranks=budget(2, 4), objective=objective, backward=backward
    )
    options = problem.options.model_copy(update={"time_limit_s": 120.0})  # of a span the proof takes twenty
    schedule = solve_pipeline(problem.model_copy(update={"options": options}))
    assert schedule.status == "optimal"
    assert schedule.objective_value_s == pytest.approx(9.0)


def test_nothing_takes_no_time() -> None:
    stage = {"forward_s": 0, "input_grad_s": 0, "weight_grad_s": 0}
    schedule = solve_pipeline(pipeline(2, 3, stages=[stage] * 2, hops=[cut(0, 0.0)]))
    assert (schedule.status, schedule.objective_value_s) == ("optimal", 0.0)


def test_an_exchange_far_shorter_than_a_tick_keeps_its_turn_on_the_link() -> None:
    """Rounded down it takes no ticks, but it is still a message of the order."""
    stage = {"forward_s": 3.0, "input_grad_s": 5.0, "weight_grad_s": 2.0, "activation_bytes": 1}
    tiny = {**stage, "gradient_sync_s": 1e-7, "gradient_sync_link": "A-B"}
    stages = [tiny, stage, stage, stage]
    problem = pipeline(4, 6, stages=stages, hops=[cut(0, 2.0, 0.3, "A-B")], ranks=budget(4, 3))
    assert solve_pipeline(problem).gap < 0.2


def test_one_context_at_a_time_where_the_room_is_for_no_more() -> None:
    """Contexts larger than activations, two stages on a rank: what a rule reserves does not fit, the least does."""
    stages = [{"forward_s": 1, "input_grad_s": 1, "weight_grad_s": 1, "weight_grad_context_bytes": 3}] * 4
    problem = pipeline(2, 2, chunks=2, stages=stages, ranks=budget(2, 3))
    assert solve_pipeline(problem).objective_value_s > 0


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_the_largest_numbers_that_a_problem_may_state_are_answered(objective: str) -> None:
    """Every time and size at its limit: their sums in the answer, in progress and in the first schedule exceed it."""
    stage = {"forward_s": 1e7, "input_grad_s": 1e7, "weight_grad_s": 1e7, "activation_bytes": 1e18}
    hop = cut(0, 1e7, 1e7) | {"num_sharing_replicas": 1_000_000}
    problem = pipeline(2, 3, stages=[stage] * 2, hops=[hop], objective=objective, options={"time_limit_s": 1})
    seen: list[ScheduleProgress] = []
    handed: list[PipelineSchedule] = []
    schedule = solve_pipeline(problem, progress=seen.append, incumbent=handed.append)
    assert check_schedule(problem, schedule) == []
    assert seen[-1].objective_value_s == schedule.objective_value_s > 1e13
    assert PipelineSchedule.model_validate_json(schedule.model_dump_json()) == schedule


def test_questions_to_cp_sat_end_with_an_answer() -> None:
    """Fused V of two ranks: with dynamic precedences CP-SAT ends the process when it is asked about this one."""
    times = ((2, 1.25), (0.5, 4), (1, 4.5), (2, 5))
    stages = [{"forward_s": forward, "input_grad_s": back, "weight_grad_s": 0} for forward, back in times]
    hops = [cut(0, 0.5), cut(1, 0.0, 1.0)]
    problem = pipeline(2, 2, chunks=2, stages=stages, hops=hops, backward="fused", objective="span")
    search = PipelineSearch(problem, time.monotonic)
    search.offer(one_by_one(search.shape), "one by one")
    prove_and_search(search)
    assert search.proven
    assert search.value_s == pytest.approx(32.75)


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_questions_to_cp_sat_are_about_numbers_that_it_can_hold(objective: str) -> None:
    """Operations of 1e-12 s whose messages take minutes: a millionth of an operation would be far too fine a tick."""
    stage = dict.fromkeys(("forward_s", "input_grad_s", "weight_grad_s"), 1e-12 / 3) | {"activation_bytes": 1}
    hops = [cut(0, 0.0, 2000 / 7, "A-B"), cut(1, 0.0, 1000 / 7, "A-B")]
    problem = pipeline(3, 4, stages=[stage] * 3, hops=hops, ranks=[*budget(1, 2), {}, {}], objective=objective)
    search = PipelineSearch(problem, time.monotonic)
    search.offer(one_by_one(search.shape), "one by one")
    prove_and_search(search)
    assert search.proven
    assert search.value_s == pytest.approx(15_000 / 7)


def test_the_first_schedule_leaves_before_anybody_hears_of_it() -> None:
    problem = pipeline(4, 8, ranks=budget(4, 4), hops=[cut(1, 3.0)])
    handed: list[PipelineSchedule] = []
    num_handed: list[int] = []
    answer = solve_pipeline(problem, incumbent=handed.append, progress=lambda _: num_handed.append(len(handed)))
    assert num_handed[0] == 1, "it is out before anybody hears of it"
    assert [one.objective_value_s for one in handed] == sorted((one.objective_value_s for one in handed), reverse=True)
    assert all(not check_schedule(problem, one) for one in handed)
    assert handed[-1].objective_value_s >= answer.objective_value_s


def test_handing_out_takes_a_small_part_of_the_time() -> None:
    """A clock on which writing out takes a tenth of a second: no more than a part of a long search goes into it."""
    problem = pipeline(2, 4)
    now_s = [0.0]
    search = search_pipeline(problem, clock=lambda: now_s[0], cancelled=lambda: True)

    def slow(_: PipelineSchedule) -> None:
        now_s[0] += 0.1

    publish = IncumbentPublisher(slow)
    for _ in range(1_000):
        now_s[0] += 0.01
        search.bound_s = 0.5 * search.bound_s  # something new to say, and nothing proven
        publish(search)
    assert publish.spent_s == pytest.approx(PUBLISH_SHARE * now_s[0], rel=0.2)
