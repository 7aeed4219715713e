"""Whatever one value of a good request becomes, the answer is a request or a validation error that can be shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from models.request import PlanRequest
from solver.lint import lint
from tests.unit.models.bad_requests import good_request

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
Path = tuple[str | int, ...]


def _paths(value: Any, above: Path = ()) -> Iterator[Path]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*above, key)
        yield from _paths(child, (*above, key))


PATHS = sorted(_paths(good_request()), key=str)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(path=st.sampled_from(PATHS), value=JSON_VALUES)
def test_a_mutated_request_is_a_request_or_a_validation_error(path: Path, value: Any) -> None:
    document = good_request()
    at: Any = document
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    request = _read(json.dumps(document))
    if request is None:
        return
    assert PlanRequest.model_validate_json(request.model_dump_json()) == request
    for reason in lint(request):
        assert reason.detail
        assert reason.remedies


def _read(text: str) -> PlanRequest | None:
    """The request, or None where it is refused as a validation error; anything else is a defect and passes through."""
    try:
        return PlanRequest.model_validate_json(text)
    except ValidationError:
        return None
