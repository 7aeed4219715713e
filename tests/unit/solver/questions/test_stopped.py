"""Whatever ends the process of a question, what was known by then was told: first that nothing is, then each plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from models.outcome import Outcome, Planned
from models.questions import AnyQuestion
from models.request import PlanRequest
from solver.planner import plan
from solver.questions import searches
from solver.questions.ask import ask
from tests.build_request import build_request

FAR = {"name": "far", "changes": [{"pointer": "/cluster/links/*/latency_s", "value": 0.05}]}
QUESTIONS: dict[str, dict[str, Any]] = {
    "why_not": {},
    "what_if": {"variants": [FAR]},
    "worth": {"of": ["links"]},
    "curves": {"over": ["latency"]},
    "least": {"target": {"iteration_s": 1.0}, "of": ["gpus"]},
    "frontier": {"against": ["gpus"]},
    "what_now": {"lost": ["east"]},
    "what_if_lost": {},
    "robust": {"scenarios": [FAR]},
}


class Killed(BaseException):
    """The process ends here."""


def _heard(kind: str, planned: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a question told before its first search killed the process."""
    monkeypatch.setattr(searches, "plan", planned)
    heard: list[Any] = []
    question = AnyQuestion.model_validate({"ask": kind, "request": build_request(), **QUESTIONS[kind]}).root
    with pytest.raises(Killed):
        ask(question, found=heard.append)
    return heard


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_question_that_is_killed_in_its_first_search_has_an_answer(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> Outcome:
        raise Killed

    heard = _heard(kind, killed, monkeypatch)
    assert [one.ask for one in heard[-1:]] == [kind]
    assert not heard[-1].complete


@pytest.mark.parametrize("kind", ["what_if", "worth", "curves", "frontier", "robust"])
def test_a_question_tells_the_first_plan_as_soon_as_there_is_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed_later(request: PlanRequest, *, incumbent: Callable[[Planned], None], **others: Any) -> Outcome:
        def die(found: Planned) -> None:
            incumbent(found)
            raise Killed

        return plan(request, incumbent=die, **others)

    last = _heard(kind, killed_later, monkeypatch)[-1]
    outcome = last.figures[0].status if kind == "robust" else last.outcome
    assert outcome == "planned"
