"""Every field explains itself: a description, an example that validates, and a unit where it is a quantity."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from models.base import Frozen
from models.stack import Constant
from tests.unit.models.vocabulary import all_models, fields, leaves, property_schema, request_models

UNIT_OF_SUFFIX = {  # the first suffix that fits decides
    "_flops_per_s": "FLOP/s",
    "_bytes_per_s": "B/s",
    "_tokens_per_s": "token/s",
    "_per_s": None,
    "_per_gpu": None,
    "_bytes": "B",
    "_s": "s",
    "_km": "km",
    "_fraction": "1",
    "_probability": "1",
    "_utilisation": "1",
}
IDS = [f"{model.__name__}.{name}" for model, name in fields()]


def test_the_walk_finds_the_vocabulary() -> None:
    names = {model.__name__ for model in all_models()}
    assert {"PlanRequest", "Cluster", "Workload", "Plan", "PipelineProblem", "Infeasible"} <= names


@pytest.mark.parametrize("model", all_models(), ids=lambda model: model.__name__)
def test_a_model_has_a_docstring(model: type[Frozen]) -> None:
    assert model.__doc__


@pytest.mark.parametrize(("model", "name"), fields(), ids=IDS)
def test_a_field_has_a_description_and_an_example(model: type[Frozen], name: str) -> None:
    field = model.model_fields[name]
    assert field.description
    assert field.description.endswith(".")
    assert field.examples, f"{model.__name__}.{name} has no example"


@pytest.mark.parametrize(("model", "name"), fields(), ids=IDS)
def test_a_quantity_has_the_unit_that_its_name_ends_with(model: type[Frozen], name: str) -> None:
    expected = next((unit for suffix, unit in UNIT_OF_SUFFIX.items() if name.endswith(suffix)), None)
    for leaf in leaves(property_schema(model, name)):
        unit = leaf.get("unit")
        if leaf["type"] == "number" and (model, name) != (Constant, "value"):  # a constant has the unit of its field
            assert unit, f"{model.__name__}.{name} is a number without a unit"
        if expected is not None:
            assert unit == expected, f"{model.__name__}.{name} has unit {unit}"


REQUEST_FIELDS = [(model, name) for model, name in fields() if model in request_models()]


@pytest.mark.parametrize(("model", "name"), REQUEST_FIELDS, ids=[f"{m.__name__}.{n}" for m, n in REQUEST_FIELDS])
def test_every_example_of_a_request_field_validates(model: type[Frozen], name: str) -> None:
    for example in model.model_fields[name].examples or []:
        assert _errors_of(model, name, example) == []


ANSWER_FIELDS = [(model, name) for model, name in fields() if model not in request_models()]


@pytest.mark.parametrize(("model", "name"), ANSWER_FIELDS, ids=[f"{m.__name__}.{n}" for m, n in ANSWER_FIELDS])
def test_an_example_of_an_answer_field_is_wrong_only_by_leaving_out(model: type[Frozen], name: str) -> None:
    for example in model.model_fields[name].examples or []:
        kinds = {error["type"] for error in _errors_of(model, name, example)}
        assert kinds <= {"missing", "union_tag_not_found", "too_short"}


@pytest.mark.parametrize("model", all_models(), ids=lambda model: model.__name__)
def test_a_model_refuses_unknown_fields_and_is_frozen(model: type[Frozen]) -> None:
    assert model.model_config["extra"] == "forbid"
    assert model.model_config["frozen"] is True
    assert model.model_config["allow_inf_nan"] is False
    with pytest.raises(ValidationError) as caught:
        model.model_validate({"no_such_field": 1})
    assert ("no_such_field",) in [error["loc"] for error in caught.value.errors() if error["type"] == "extra_forbidden"]


NUMBERS = [(model, name) for model, name in fields() if any(leaves(property_schema(model, name)))]


@pytest.mark.parametrize(("model", "name"), NUMBERS, ids=[f"{m.__name__}.{n}" for m, n in NUMBERS])
def test_nan_and_infinity_are_refused(model: type[Frozen], name: str) -> None:
    for value in (float("nan"), float("inf"), float("-inf")):
        assert _errors_of(model, name, value)


def _errors_of(model: type[Frozen], name: str, value: object) -> list[dict[str, Any]]:
    """Errors that `value` causes in field `name`, as it would arrive on the wire."""
    wire = json.loads(json.dumps(value))
    try:
        model.model_validate({name: wire})
    except ValidationError as error:
        return [dict(one) for one in error.errors() if one["loc"][:1] == (name,)]
    return []
