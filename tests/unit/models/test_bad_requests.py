"""Every bad request is refused with the place of the fault and a word on what to do."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from models.request import PlanRequest
from solver.lint import lint
from tests.unit.models.bad_requests import BAD_REQUESTS, BadRequest, good_request

UNION_TAGS = {"gqa", "mla"}


def _cases(caught: str) -> list[BadRequest]:
    return [case for case in BAD_REQUESTS if case.caught == caught]


def _pointer(location: tuple[int | str, ...]) -> str:
    return "".join(f"/{part}" for part in location if part not in UNION_TAGS)


def test_the_table_has_thirty_cases_with_different_names() -> None:
    assert len({case.name for case in BAD_REQUESTS}) == len(BAD_REQUESTS) >= 30


def test_the_soil_of_the_table_is_a_good_request() -> None:
    request = PlanRequest.model_validate_json(json.dumps(good_request()))
    assert lint(request) == ()


@pytest.mark.parametrize("case", _cases("vocabulary"), ids=lambda case: case.name)
def test_the_vocabulary_refuses(case: BadRequest) -> None:
    with pytest.raises(ValidationError) as caught:
        PlanRequest.model_validate_json(case.text())
    answers = [(_pointer(error["loc"]), error["msg"]) for error in caught.value.errors(include_input=False)]
    assert any(pointer.startswith(case.pointer) and case.says in message for pointer, message in answers), answers
    assert len(answers) == 1, "one mistake, one answer"


@pytest.mark.parametrize("case", _cases("lint"), ids=lambda case: case.name)
def test_lint_refuses(case: BadRequest) -> None:
    reasons = lint(PlanRequest.model_validate_json(case.text()))
    assert reasons
    assert any(case.pointer in reason.pointer and case.says in " ".join(reason.remedies) for reason in reasons), reasons


@pytest.mark.parametrize("case", _cases("wire"), ids=lambda case: case.name)
def test_what_only_the_wire_refuses_is_large(case: BadRequest) -> None:
    assert len(case.text()) > 50_000_000
