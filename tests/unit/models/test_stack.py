"""A software stack whose constants say nothing is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from models.stack import DIVISORS, SHARES_OF_A_WIRE, Constant, StackProfile

OVERLAPS = tuple(name for name in StackProfile.model_fields if name.endswith("_overlap"))


def constant(value: float) -> Constant:
    return Constant(value=value, origin="guessed")


@pytest.mark.parametrize("name", OVERLAPS)
def test_no_more_than_all_traffic_is_hidden(name: str) -> None:
    assert StackProfile.model_validate({"name": "any", name: constant(1.0)})
    with pytest.raises(ValidationError, match=f"{name} is 1.5"):
        StackProfile.model_validate({"name": "any", name: constant(1.5)})


@pytest.mark.parametrize("name", sorted(DIVISORS))
def test_no_work_is_divided_by_nothing(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} is 0"):
        StackProfile.model_validate({"name": "any", name: constant(0.0)})


@pytest.mark.parametrize("name", SHARES_OF_A_WIRE)
def test_nothing_reaches_more_than_the_whole_rate(name: str) -> None:
    assert getattr(StackProfile.model_validate({"name": "own", name: {"value": 1.0, "origin": "measured"}}), name)
    with pytest.raises(ValidationError, match="more than the whole rate"):
        StackProfile.model_validate({"name": "own", name: {"value": 1.01, "origin": "measured"}})


@pytest.mark.parametrize(
    ("name", "value"),
    [*((name, 1.5) for name in (*OVERLAPS, *SHARES_OF_A_WIRE)), *((name, 0.0) for name in sorted(DIVISORS))],
)
def test_constants_of_a_generation_have_the_same_limits(name: str, value: float) -> None:
    """A rate of 0 on one generation was divided by, and ended planning with an internal error."""
    own = {"generation": "hopper", "name": name, "value": value}
    with pytest.raises(ValidationError, match=rf"generations\[0\]: {name} on hopper is {value:g}"):
        StackProfile.model_validate({"name": "own", "generations": [own]})
    assert StackProfile.model_validate({"name": "own", "generations": [{**own, "value": 0.9}]})
