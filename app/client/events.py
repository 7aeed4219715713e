"""One event of the stream of a plan, as a client gets it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx2

from models.outcome import Progress


@dataclass(frozen=True)
class PlanEvent:
    """What happened to a plan: `kind` is state, progress, incumbent (a better plan) or, at last, done."""

    number: int
    kind: str
    data: Mapping[str, Any]

    @classmethod
    def of(cls, one: httpx2.ServerSentEvent) -> Self:
        """The event that a line of the stream tells; ValueError where it tells none."""
        data = json.loads(one.data)
        if not isinstance(data, dict):
            raise ValueError("the data of an event are no object")
        return cls(int(one.id), one.event, data)

    @property
    def progress(self) -> Progress | None:
        """How far the search is; None in events of other kinds."""
        return Progress.model_validate(dict(self.data), extra="ignore") if self.kind == "progress" else None
