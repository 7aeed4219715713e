"""Worlds of a question beside each other: which have nothing but more than which, so that bounds and plans hold there.

What bounds a world bounds each that has nothing but less, and a plan of that one is a plan of the world. It is claimed
only where no configuration of the smaller one is its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from models.outcome import Infeasible
from models.request import PlanRequest
from solver.configurations.framework import within_framework
from solver.context import Context
from solver.memo import Memo
from solver.questions.more import Direction, StatedWorld
from solver.questions.own_rows import has_every_row
from solver.questions.side_by_side import Side

Relation = Literal["more", "less", "same"] | None
MIRRORED: dict[Relation, Relation] = {"more": "less", "less": "more", "same": "same", None: None}


@dataclass
class ComparedWorlds:
    """Requests by name, and what one has more or less of than another."""

    requests: Mapping[str, PlanRequest]
    _known: dict[tuple[str, str], Relation] = field(default_factory=dict)
    _contexts: Memo = field(default_factory=Memo)

    @cached_property
    def _worlds(self) -> dict[str, StatedWorld]:
        return {name: StatedWorld(request) for name, request in self.requests.items()}

    def _context(self, name: str) -> Context:
        """A world as a search has it."""
        return self._contexts.once(name, lambda: Context.of(within_framework(self.requests[name])))

    def of(self, name: str, other: str) -> Direction:
        """What the other world has: nothing but more, nothing but less, or neither is known."""
        found = self._between(name, other)
        return None if found == "same" else found

    def is_equal(self, name: str, other: str) -> bool:
        """Whether two worlds differ in nothing that a plan depends on."""
        return self._between(name, other) == "same"

    def _between(self, name: str, other: str) -> Relation:
        if (name, other) not in self._known:
            self._known[name, other] = found = self._compared(name, other)
            self._known[other, name] = MIRRORED[found]
        return self._known[name, other]

    def _compared(self, name: str, other: str) -> Relation:
        one, two = self._worlds[name], self._worlds[other]
        if one.is_equal_to(two):
            return "same"
        found = one.direction_to(two)
        small, large = (name, other) if found == "more" else (other, name)
        if found is None or not self._context(small).pools:
            return None
        return found if has_every_row(self._context(small), self._context(large)) else None

    def with_others(self, name: str, sides: Mapping[str, Side]) -> Side:
        """What is known of a world, also from those with more and with less."""
        found = sides.get(name, Side())
        for other, side in sides.items():
            relation = None if other == name else self._between(name, other)
            if relation in ("more", "same") and side.bound is not None:
                found = replace(found, bound=max(found.bound or 0.0, side.bound))
            if relation in ("more", "same") and isinstance(side.outcome, Infeasible) and found.value is None:
                found = replace(found, outcome=side.outcome)
            better = side.value is not None and (found.value is None or side.value < found.value)
            if relation in ("less", "same") and better:
                found = replace(found, outcome=side.outcome, value=side.value)
        if found.value is None or found.bound is None:
            return found
        return replace(found, bound=min(found.bound, found.value))
