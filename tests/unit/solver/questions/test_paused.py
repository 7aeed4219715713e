"""A computer that pauses for longer than the share of a search costs no question its answer while time is left."""

from __future__ import annotations

from typing import Any

import pytest

from models.questions import AnyQuestion, WhyNot
from solver.questions import why_not
from solver.questions.ask import ask
from solver.questions.searches import SearchRuns
from tests.build_request import build_request
from tests.unit.solver.questions.paused import paused_clock
from tests.unit.solver.questions.test_stopped import QUESTIONS

FEW = {"tp": [4], "pp": [2], "vpp": [1], "micro_batch_sequences": [1], "sharding": ["zero1"], "recompute": ["none"]}
PAUSE_S, LIMIT_S = 1.9, 6.0  # the first search of any question has less time than the pause


def _request() -> dict[str, Any]:
    return build_request(constraints={"allowed": FEW}, options={"time_limit_s": 1.0, "workers": 1}).model_dump(
        mode="json"
    )


@pytest.mark.parametrize("reading", [4, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_question_has_a_plan_of_its_base(kind: str, reading: int) -> None:
    document = {"ask": kind, "request": _request(), **QUESTIONS[kind], "options": {"time_limit_s": LIMIT_S}}
    answer: Any = ask(AnyQuestion.model_validate(document).root, clock=paused_clock(reading, PAUSE_S))
    if kind == "robust":
        assert answer.figures[0].status == "planned"
    elif kind == "what_if_lost":
        assert answer.before_s is not None
    else:
        assert answer.outcome == "planned"


def test_a_plan_of_a_correction_that_fits_the_request_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request was not found to have a plan, and giving up a wish shows one that keeps all of them."""
    monkeypatch.setattr(SearchRuns, "base_outcome", lambda *_, **__: why_not.NOTHING_YET)
    request = {**_request(), "constraints": {"allowed": FEW, "max_gpus": 64, "memory_headroom_fraction": 0.05}}
    answer: Any = ask(WhyNot.model_validate({"request": request, "options": {"time_limit_s": 20.0}}))
    assert answer.outcome == "planned"
    assert not answer.relaxations
