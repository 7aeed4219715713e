"""A schedule becomes a case: times scaled alike, messages in the planned order of their link, refusals by name."""

from __future__ import annotations

import pytest

from app.exporters.replay_case import MAX_RANKS, ReplayCase, computing_s, mean_operation_s, replay_case
from app.faults import Refused
from models.schedule import PipelineProblem, PipelineSchedule
from tests.torch.cases import problem, schedule

DELAY = 2.0


def asked(name: str = "zb_h1") -> tuple[PipelineProblem, PipelineSchedule]:
    """A problem and the schedule of the named generator."""
    one = problem(name, DELAY)
    return one, schedule(name, one)


def case(name: str = "zb_h1", operation_s: float = 0.01) -> ReplayCase:
    """The case of that schedule."""
    return replay_case(name, *asked(name), operation_s)


def test_an_operation_takes_the_asked_time_on_average() -> None:
    _, found = asked()
    one = case(operation_s=0.01)
    assert one.scale == pytest.approx(0.01 / mean_operation_s(found))
    assert one.predicted_s == pytest.approx(computing_s(found) * one.scale)
    (pipeline,) = one.pipelines
    times = (*pipeline.forward_s, *pipeline.input_grad_s, *pipeline.weight_grad_s)
    assert sum(times) / len(times) == pytest.approx(0.01)


def test_the_link_carries_every_crossing_message_once_and_each_way() -> None:
    one = case()
    assert [{message.operation for message in order} for order in one.pipelines[0].channels] == [
        {f"1F{microbatch}" for microbatch in range(8)},
        {f"2B{microbatch}" for microbatch in range(8)},
    ]
    assert one.pipelines[0].free_messages == ()
    messages = [message for order in one.pipelines[0].channels for message in order]
    assert all(message.lag_s == pytest.approx(DELAY * one.scale) for message in messages)


def test_a_hop_without_a_link_delays_but_occupies_nothing() -> None:
    one, found = asked()
    hops = tuple(hop.model_copy(update={"transfer_s": 0.0}) for hop in one.hops)
    freed = replay_case("free", one.model_copy(update={"hops": hops}), found)
    assert freed.pipelines[0].channels == ()
    assert len(freed.pipelines[0].free_messages) == 16


def test_two_chunks_lie_on_the_rank_that_the_layout_says() -> None:
    one = case("zbv")
    assert (one.num_stages, one.num_ranks) == (8, 4)
    assert one.rank_of_stage == (0, 1, 2, 3, 3, 2, 1, 0)


@pytest.mark.parametrize(
    ("operations", "what"),
    [
        (("0F0", "nonsense"), "nonsense"),
        (("0F0", "0F99"), "the problem has 4 stages, 8 micro-batches"),
        (("0F0", "3F0"), "3F0 is on rank 0"),
        ((), "has no operations"),
    ],
)
def test_a_schedule_of_another_problem_is_refused(operations: tuple[str, ...], what: str) -> None:
    one, found = asked()
    times = tuple(map(float, range(len(operations))))
    first = found.ranks[0].model_copy(update={"operations": operations, "start_s": times, "end_s": times})
    with pytest.raises(Refused, match=what):
        replay_case("wrong", one, found.model_copy(update={"ranks": (first, *found.ranks[1:])}))


def test_ranks_without_a_problem_for_each_are_refused() -> None:
    one, found = asked()
    with pytest.raises(Refused, match="3 ranks, the problem 4"):
        replay_case("short", one, found.model_copy(update={"ranks": found.ranks[:3]}))


def test_more_ranks_than_a_machine_can_run_are_refused() -> None:
    one, found = asked()
    many = MAX_RANKS + 1
    with pytest.raises(Refused, match=f"{many} pipeline ranks need as many processes"):
        replay_case(
            "many",
            one.model_copy(update={"ranks": one.ranks[:1] * many}),
            found.model_copy(update={"ranks": found.ranks[:1] * many}),
        )


def test_a_schedule_that_takes_no_time_cannot_be_measured() -> None:
    one, found = asked()
    still = tuple(row.model_copy(update={"end_s": row.start_s}) for row in found.ranks)
    with pytest.raises(Refused, match="take no time"):
        replay_case("still", one, found.model_copy(update={"ranks": still}))
