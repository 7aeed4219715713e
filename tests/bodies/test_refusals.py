"""A body of any content is refused for less than a second of processor time and 200 MiB of memory, in few words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.api.problems import problem_body
from app.documents import parse_json, read_model
from app.faults import Refused
from tests.bodies.costs import MIB, Cost, cost_of
from tests.bodies.growing import Body, Door, everywhere, grown, largest

MOST_CPU_S = 1.0
MOST_BYTES = 200 * MIB
MOST_ANSWER_BYTES = 400_000


def refusal(body: Body) -> tuple[str, int]:
    """The code of the answer to a body and its length; a body that is a document of the door has no code."""
    try:
        read_model(body.door.model, parse_json(body.data))
    except Refused as refused:
        answer = problem_body(body.door.path, [fault.to_dict() for fault in refused.faults])
        return answer["code"], len(json.dumps(answer))
    return "", 0


def assert_cheap(body: Body, cost: Cost) -> None:
    """A limit that is passed tells which body did it."""
    assert cost.cpu_s < MOST_CPU_S, (body.how, cost)
    assert cost.peak_bytes < MOST_BYTES, (body.how, cost)
    assert cost.answer[1] < MOST_ANSWER_BYTES, (body.how, cost)


@pytest.mark.parametrize(("door", "how", "path"), list(everywhere()))
def test_the_largest_body_of_every_kind_is_answered_cheaply(door: Door, how: str, path: tuple[Any, ...]) -> None:
    body = largest(door, how, path)
    assert_cheap(body, cost_of(lambda: refusal(body)))


@pytest.mark.parametrize("seed", range(12))
def test_a_body_of_chance_is_answered_cheaply(seed: int) -> None:
    body = grown(seed)
    assert_cheap(body, cost_of(lambda: refusal(body)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 300))
def test_many_bodies_of_chance_are_answered_cheaply(seed: int) -> None:
    test_a_body_of_chance_is_answered_cheaply(seed)


def test_the_limits_convict() -> None:
    def wasteful() -> tuple[str, int]:
        return "", len([b"\1" * MIB for _ in range(300)]) * sum(range(60_000_000)) * 0

    body = grown(0)
    with pytest.raises(AssertionError, match="seed 0"):
        assert_cheap(body, cost_of(wasteful))
