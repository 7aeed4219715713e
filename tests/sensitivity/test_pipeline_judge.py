"""Corrupt a pipeline schedule in each way the judge knows: it must object by name, and only a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.first_schedules import quick_schedule
from models.schedule import PipelineProblem, PipelineSchedule
from solver.pipeline.judge import check_schedule
from tests.pipelines import budget, cut, pipeline

STAGE = {
    "forward_s": 1.0,
    "input_grad_s": 1.5,
    "weight_grad_s": 0.5,
    "activation_bytes": 1.0,
    "weight_grad_context_bytes": 0.5,
    "gradient_sync_s": 2.0,
    "gradient_sync_link": "A-B",
}
PROBLEM = pipeline(
    4, 6, ranks=budget(4, 4), stages=[STAGE] * 4, hops=[cut(0, 1.0, 0.5, "A-B"), cut(2, 2.0, 0.5, "A-B")]
)
Body = dict[str, Any]


def honest() -> Body:
    return quick_schedule(PROBLEM, ("one_f_one_b",)).model_dump(mode="json")


def shift(one: Body, at: int, by_s: float) -> None:
    one["start_s"][at] += by_s
    one["end_s"][at] += by_s


def drop_operation(body: Body) -> None:
    for column in ("operations", "start_s", "end_s"):
        body["ranks"][1][column].pop()


def repeat_operation(body: Body) -> None:
    for column in ("operations", "start_s", "end_s"):
        body["ranks"][1][column].append(body["ranks"][1][column][-1])


def foreign_operation(body: Body) -> None:
    body["ranks"][1]["operations"][0] = "9F0"


def fuse(body: Body) -> None:
    body["ranks"][1]["operations"] = [text.replace("B", "BW") for text in body["ranks"][1]["operations"]]


def swap_ranks(body: Body) -> None:
    body["ranks"][1], body["ranks"][2] = body["ranks"][2], body["ranks"][1]


def shorten(body: Body) -> None:
    body["ranks"][0]["end_s"][0] -= 0.25


def overlap(body: Body) -> None:
    shift(body["ranks"][0], 1, -0.5)


def too_early(body: Body) -> None:
    shift(body["ranks"][3], 0, -0.5)


def overlap_messages(body: Body) -> None:
    line = next(line for line in body["transfers"] if line["direction"] == "up")
    line["start_s"][1], line["end_s"][1] = line["start_s"][0] + 0.25, line["end_s"][0] + 0.25


def message_too_early(body: Body) -> None:
    line = next(line for line in body["transfers"] if line["direction"] == "up")
    shift(line, 0, -0.5)


def message_on_another_link(body: Body) -> None:
    """Stated among the messages of a link that the problem does not know."""
    next(line for line in body["transfers"] if line["direction"] == "up")["link"] = "B-C"


def exchange_on_another_link(body: Body) -> None:
    next(line for line in body["transfers"] if line["direction"] == "both")["link"] = "gradient exchange of stage 0"


def message_the_other_way(body: Body) -> None:
    """The first activation stated among the gradients."""
    up, down = (next(line for line in body["transfers"] if line["direction"] == way) for way in ("up", "down"))
    for column in ("transfers", "start_s", "end_s"):
        down[column].insert(0, up[column].pop(0))


def drop_message(body: Body) -> None:
    line = next(line for line in body["transfers"] if line["direction"] == "down")
    for column in ("transfers", "start_s", "end_s"):
        line[column].pop()


def exchange_too_early(body: Body) -> None:
    line = next(line for line in body["transfers"] if line["direction"] == "both")
    shift(line, 0, -30.0)


def claim(name: str, value: object) -> Callable[[Body], None]:
    return lambda body: body.update({name: value})


def hide_memory(body: Body) -> None:
    body["ranks"][0]["peak_memory_bytes"] = 1.0


def lose_rank(body: Body) -> None:
    body["ranks"].pop()


@pytest.mark.parametrize(
    ("corrupt", "rule"),
    [
        (drop_operation, "missing_operation"),
        (repeat_operation, "duplicate"),
        (foreign_operation, "unknown_operation"),
        (fuse, "fused"),
        (swap_ranks, "wrong_rank"),
        (shorten, "duration"),
        (overlap, "rank_exclusive"),
        (too_early, "precedence"),
        (overlap_messages, "link_exclusive"),
        (message_too_early, "precedence"),
        (message_on_another_link, "wrong_link"),
        (exchange_on_another_link, "wrong_link"),
        (message_the_other_way, "wrong_link"),
        (drop_message, "missing_transfer"),
        (exchange_too_early, "gradient_sync"),
        (hide_memory, "peak_memory"),
        (lose_rank, "completeness"),
        (claim("makespan_s", 1.0), "totals"),
        (claim("span_s", 1.0), "totals"),
        (claim("objective_value_s", 1.0), "totals"),
        (claim("lower_bound_s", 1e6), "totals"),
        (claim("gap", 0.9), "totals"),
        (claim("status", "optimal"), "totals"),
        (claim("objective", "span"), "totals"),
        (claim("text", "0F0"), "totals"),
    ],
)
def test_the_judge_objects_by_name(corrupt: Callable[[Body], None], rule: str) -> None:
    body = honest()
    corrupt(body)
    rules = {objection.rule for objection in check_schedule(PROBLEM, PipelineSchedule.model_validate(body))}
    assert rule in rules


def test_asynchronous_sends_are_no_blocking_ones() -> None:
    blocking = PROBLEM.model_copy(update={"sends": "blocking"})
    assert check_schedule(blocking, quick_schedule(blocking, ("one_f_one_b",))) == []
    objections = check_schedule(blocking, PipelineSchedule.model_validate(honest()))
    assert {objection.rule for objection in objections} == {"blocking_sends"}


def test_the_honest_schedule_is_acquitted() -> None:
    assert check_schedule(PROBLEM, PipelineSchedule.model_validate(honest())) == []


def test_memory_is_judged_at_every_instant() -> None:
    """GPipe holds all six activations: fine without a budget, an objection with four."""
    free = PipelineProblem.model_validate(PROBLEM.model_dump() | {"ranks": [{}] * 4})
    schedule = quick_schedule(free, ("gpipe",))
    assert check_schedule(free, schedule) == []
    objections = check_schedule(PROBLEM, schedule)
    assert {objection.rule for objection in objections} == {"memory"}
    assert objections[0].detail.startswith("holds 6 B")


@pytest.mark.parametrize("forward_s", [0.0, 1e-6])
def test_memory_is_judged_however_short_it_is_held(forward_s: float) -> None:
    """Both forwards, of no duration or of a microsecond, are on the rank before the first backward of 1,000 s ends."""
    stage = STAGE | {"forward_s": forward_s, "input_grad_s": forward_s, "weight_grad_s": 1e3, "gradient_sync_s": 0.0}
    free = pipeline(1, 2, stages=[stage])
    schedule = quick_schedule(free, ("gpipe",))
    assert check_schedule(free, schedule) == []
    tight = free.model_copy(update={"ranks": pipeline(1, 2, ranks=budget(1, 1.5)).ranks})
    objections = check_schedule(tight, schedule)
    assert {objection.rule for objection in objections} == {"memory"}


@pytest.mark.parametrize(
    ("names", "convicted"), [(("", ""), False), (("own", "other"), False), (("A-B", ""), True), (("own", "own"), True)]
)
def test_an_exchange_that_shares_no_link_has_any_name_of_its_own(names: tuple[str, str], convicted: bool) -> None:
    alone = PROBLEM.model_copy(
        update={"stages": tuple(one.model_copy(update={"gradient_sync_link": None}) for one in PROBLEM.stages)}
    )
    body = quick_schedule(alone, ("one_f_one_b",)).model_dump(mode="json")
    for line, name in zip([one for one in body["transfers"] if one["direction"] == "both"], names, strict=False):
        line["link"] = name or line["link"]
    both = [one for one in body["transfers"] if one["link"] == "own"]
    if len(both) == 2:  # one line for both
        for column in ("transfers", "start_s", "end_s"):
            both[0][column] += both[1][column]
        body["transfers"].remove(both[1])
    rules = {objection.rule for objection in check_schedule(alone, PipelineSchedule.model_validate(body))}
    assert rules == ({"wrong_link"} if convicted else set())
