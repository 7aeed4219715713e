"""The horizon search over states on its own: proofs, limits, and what it leaves alone."""

from __future__ import annotations

from itertools import count

import pytest

from models.schedule import PipelineProblem
from solver.clock import WorkClock
from solver.pipeline.bounds import lower_bound
from solver.pipeline.exact.horizon_search import close_by_state_space
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.solve import start
from tests.pipelines import budget, cut, pipeline

HOPS = [cut(0, 2.3, 0.7, "A-B"), cut(2, 0.4, 1.1, "A-B"), cut(4, 1.9, 0.3, "A-B")]


def problem(workers: int = 1, memory: float = 7, **changes: object) -> PipelineProblem:
    stages = [
        {
            "forward_s": 1 + at / 10,
            "input_grad_s": 1.3 - at / 20,
            "weight_grad_s": 0.7,
            "activation_bytes": 1.0,
            "weight_grad_context_bytes": 0.5,
        }
        for at in range(6)
    ]
    options = {"workers": workers, "time_limit_s": 60.0, "relative_gap": 0.0}
    return pipeline(6, 8, stages=stages, hops=HOPS, ranks=budget(6, memory), options=options, **changes)


def started(case: PipelineProblem, search: PipelineSearch) -> PipelineSearch:
    search.bound_s = lower_bound(case)
    start(search)
    return search


@pytest.mark.parametrize("workers", [1, 2])
def test_three_cuts_on_one_link_are_proven(workers: int) -> None:
    case, ticks = problem(workers), count()
    search = started(case, PipelineSearch(case, lambda: next(ticks) * 1e-4))
    assert close_by_state_space(search, until_s=60.0)
    assert search.proven
    assert search.value_s == pytest.approx(57.3)


def test_counted_work_gives_the_same_answer_every_time() -> None:
    case = problem(2)
    found = []
    for _ in range(2):
        clock = WorkClock(lambda: 0.0, 1e9)
        search = started(case, PipelineSearch(case, clock))
        close_by_state_space(search, until_s=0.15)
        found.append((search.value_s, search.bound_s, clock()))
    assert found[0] == found[1]


def test_a_span_is_left_to_others() -> None:
    case = problem(objective="span")
    assert not close_by_state_space(started(case, PipelineSearch(case, lambda: 0.0)), until_s=60.0)


def test_no_time_no_questions() -> None:
    """The bound by propagation still counts."""
    case = problem(memory=4)
    search = started(case, PipelineSearch(case, lambda: 0.0))
    close_by_state_space(search, until_s=0.0)
    assert lower_bound(case) < search.bound_s <= search.value_s


def messages_apart(operation_s: float, message_s: float) -> PipelineProblem:
    """Three ranks whose operations take far less than their messages, which share a link."""
    stage = {"forward_s": operation_s, "input_grad_s": operation_s, "weight_grad_s": operation_s, "activation_bytes": 1}
    hops = [cut(0, 0.0, 2 * message_s, "A-B"), cut(1, 0.0, message_s, "A-B")]
    ranks = [*budget(1, 2), {}, {}]
    return pipeline(3, 4, stages=[stage] * 3, hops=hops, ranks=ranks)


@pytest.mark.parametrize("operation_s", [1e-4, 1e-8, 1e-12])
def test_messages_far_longer_than_operations_are_proven_as_what_they_take(operation_s: float) -> None:
    """Between them an independent dynamic program finds 15 messages; a tick of the operations is far too fine."""
    case, ticks = messages_apart(operation_s / 3, 10 / 7), count()
    search = started(case, PipelineSearch(case, lambda: next(ticks) * 1e-4))
    close_by_state_space(search, until_s=60.0)
    assert search.bound_s <= 150 / 7 + 30 * operation_s
    assert search.value_s == pytest.approx(150 / 7, rel=1e-3)
