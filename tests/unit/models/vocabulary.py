"""Every model of the vocabulary and every numeric leaf of its schemas, found by walking: no list to keep up to date."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any

import models
from models.base import Frozen

NUMERIC = ("number", "integer")


def all_models() -> list[type[Frozen]]:
    """Every value class of `models`, sorted by name."""
    for module in pkgutil.walk_packages(models.__path__, prefix="models."):
        importlib.import_module(module.name)
    found: set[type[Frozen]] = set()
    _collect(Frozen, found)
    return sorted(
        (model for model in found if model.__module__.startswith("models.")), key=lambda model: model.__name__
    )


def request_models() -> list[type[Frozen]]:
    """What a client may send: every model that a request is made of."""
    modules = ("models.cluster", "models.workload", "models.request")
    return [model for model in all_models() if model.__module__ in modules]


def _collect(model: type[Frozen], found: set[type[Frozen]]) -> None:
    for child in model.__subclasses__():
        found.add(child)
        _collect(child, found)


def fields() -> list[tuple[type[Frozen], str]]:
    """Every (model, field name)."""
    return [(model, name) for model in all_models() for name in model.model_fields]


@cache
def _schema(model: type[Frozen]) -> dict[str, Any]:
    return model.model_json_schema()


def property_schema(model: type[Frozen], name: str) -> dict[str, Any]:
    """JSON schema of one field, as the OpenAPI page shows it."""
    schema: dict[str, Any] = _schema(model)["properties"][name]
    return schema


def leaves(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Numeric sub-schemas of one property, through unions, arrays and tuples. References are other models' business."""
    if schema.get("type") in NUMERIC:
        yield schema
    for branch in schema.get("anyOf", []) + schema.get("oneOf", []) + schema.get("prefixItems", []):
        yield from leaves(branch | ({"unit": schema["unit"]} if "unit" in schema else {}))
    if isinstance(schema.get("items"), dict):
        yield from leaves(schema["items"] | ({"unit": schema["unit"]} if "unit" in schema else {}))
