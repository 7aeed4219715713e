"""Named GPU types, models, clusters and frameworks that ship with Isthmus, each number with its source."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Literal

Kind = Literal["gpus", "models", "clusters", "stacks", "frameworks", "examples", "shapes", "fabrics"]


@cache
def _entries(kind: Kind) -> dict[str, Any]:
    folder = resources.files(__name__) / kind
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return {f.name.removesuffix(".json"): json.loads(f.read_text(encoding="utf-8")) for f in files}


def entry_names(kind: Kind) -> tuple[str, ...]:
    """The names that `named_entry` accepts, sorted."""
    return tuple(_entries(kind))


def named_entry(kind: Kind, value: Any) -> Any:
    """The packaged document called `value`; anything that is not a string is returned untouched.

    Raises ValueError, naming what exists, for an unknown name.
    """
    if not isinstance(value, str):
        return value
    try:
        return _entries(kind)[value]
    except KeyError:
        known = ", ".join(entry_names(kind))
        raise ValueError(
            f"no {kind} entry is called {value!r}: use one of {known}, or give the whole object wherever it is meant"
        ) from None
