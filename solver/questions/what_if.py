"""What would changes be worth? Each planned beside the same base, its gain an interval that both sides' bounds prove.

In this order: the base; its plan as it stands in every changed world, or one like it; one bound of all that there may
be more of, and of each world that is neither more nor less; bounds of worlds with less; then searches, first where a
plan is missing or a better one could decide. How worlds are compared is in `side_by_side`, what holds from one to
another in `compared_worlds`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from models.errors import InvalidRequest
from models.outcome import Infeasible
from models.question_parts import Gain
from models.questions import WhatIf, WhatIfAnswer
from models.request import PlanRequest
from solver.questions.compared_worlds import ComparedWorlds
from solver.questions.searches import RunHooks, SearchRuns, changed
from solver.questions.side_by_side import ROUNDING, SEARCHED_FROM_S, SharedGoal, Side, SideComparison, gain_of

BASE, LARGEST = "", " "  # no variant is called so
NOT_DECIDED = "not decided yet"
MOST_COMPARED = 40  # variants of which each is compared with each: a comparison takes about a millisecond


@dataclass
class _Asked:
    """One question under way."""

    compared: SideComparison
    requests: dict[str, PlanRequest]
    relations: ComparedWorlds
    largest: PlanRequest | None
    found: Callable[[WhatIfAnswer], None]

    def publish(self) -> None:
        """Tell what is known by now."""
        self.compared.base = self.side(BASE)
        self.found(self.answer())

    def answer(self) -> WhatIfAnswer:
        """The answer as far as it is known."""
        return WhatIfAnswer(
            **self.compared.base_figures(),
            gains=tuple(self.gain(name) for name in self.requests),
            complete=all(name in self.compared.sides or self.relations.is_equal(BASE, name) for name in self.requests),
        )

    def gain(self, name: str) -> Gain:
        """What a variant gains over the base."""
        if self.relations.is_equal(BASE, name) and self.compared.base.outcome is not None:
            return self.compared.nothing(name)
        return gain_of(name, self.compared.base, self.side(name), self.relations.of(BASE, name))

    def side(self, name: str) -> Side:
        """What is known of a world."""
        sides = {BASE: self.compared.base, **self.compared.sides}
        if len(self.requests) > MOST_COMPARED and name != BASE:
            sides = {other: sides[other] for other in (name, BASE, LARGEST) if other in sides}
        return self.relations.with_others(name, sides)

    def carry_over(self) -> None:
        """The base's plan as it stands in every world; then, where that is none, a plan like it."""
        ends_s, compared = self.compared.searches.hooks.ends_s, self.compared
        for name, request in self._in_time():
            if not self.relations.is_equal(BASE, name):
                compared.add(name, compared.carried(request, ends_s, as_it_stands=True))
                self.publish()
        for name, request in self._in_time():
            side = self.side(name)
            if side.value is None and not isinstance(side.outcome, Infeasible):
                compared.add(name, compared.near(request, ends_s))
                self.publish()

    def bound(self) -> None:
        """Bounds of all configurations: of all that there may be more of at once, which holds for each world with more;
        then of worlds that are neither more nor less; then of those with less in which the base's plan is slower.
        """
        compared, hooks = self.compared, self.compared.searches.hooks
        if self.largest is not None and compared.base.value is not None and not hooks.stopped():
            compared.add(LARGEST, Side(bound=compared.bound_of(self.largest, hooks.ends_s)))
            self.publish()
        for name, request in self._in_time(self._unbounded()):
            side = self.side(name)
            needed = self._is_slower(side) if self.relations.of(BASE, name) == "less" else side.bound is None
            if side.value is not None and needed:
                compared.add(name, compared.bounded(request, side, hooks.ends_s))
                self.publish()

    def _unbounded(self) -> list[str]:
        """In the order in which bounds are worth most."""
        place = {None: 0, "more": 1, "less": 2}

        def rank(name: str) -> tuple[int, float]:
            return place[self.relations.of(BASE, name)], -(self.side(name).value or 0.0)

        return sorted(self.requests, key=rank)

    def _is_slower(self, side: Side) -> bool:
        """Only where the best plan known takes longer than the base's may the bound be above it."""
        base = self.compared.base.value
        return base is None or side.value is None or side.value > base * (1.0 + ROUNDING)

    def search(self) -> None:
        """Searches for as long as there is time for whole ones, and in any case where there is no plan."""
        hooks = self.compared.searches.hooks
        for name, share_s in hooks.shares(sorted(self.requests, key=self._patience)):
            side = self.side(name)
            if side.value is not None and hooks.left_s < SEARCHED_FROM_S:
                return
            if side.is_closed(self.requests[name]) or self.gain(name).verdict == "changes nothing":
                continue
            self.compared.plan_world(name, self.requests[name], min(max(share_s, SEARCHED_FROM_S), hooks.left_s))
            self.publish()

    def _patience(self, name: str) -> int:
        """How long a world can wait: without a plan not at all, undecided where that may change not long."""
        side, direction = self.side(name), self.relations.of(BASE, name)
        if side.value is None:
            return 0
        if self.gain(name).verdict != NOT_DECIDED:
            return 3
        base = self.compared.base
        settled = direction == "less" and not self._is_slower(side)
        if direction == "more" and base.bound is not None and side.bound is not None:
            settled = side.bound >= base.bound * (1.0 - ROUNDING)
        return 2 if settled else 1

    def _in_time(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, PlanRequest]]:
        for name in self.requests if names is None else names:
            if self.compared.searches.hooks.stopped():
                return
            yield name, self.requests[name]


def what_if(question: WhatIf, found: Callable[[WhatIfAnswer], None], hooks: RunHooks) -> WhatIfAnswer:
    """What each variant gains over the base."""
    searches = SearchRuns.of(question, hooks)
    requests = {one.name: changed(searches.base, one.changes, f"/variants/{number}/changes")
                for number, one in enumerate(question.variants)}  # fmt: skip
    measure = SharedGoal.of([searches.base, *requests.values()])
    compared = SideComparison(searches, measure)
    relations = ComparedWorlds({BASE: searches.base, **requests})
    largest = _largest(question, searches.base, relations)
    if largest is not None:
        relations = ComparedWorlds({**relations.requests, LARGEST: largest})
    asked = _Asked(compared, requests, relations, largest, found)
    compared.plan_base(question.options.time_limit_s, asked.publish)
    asked.carry_over()
    if measure.kind == "iteration_time":
        asked.bound()
    asked.search()
    return asked.answer()


def _largest(question: WhatIf, base: PlanRequest, relations: ComparedWorlds) -> PlanRequest | None:
    """The base with all changes of variants with more at once; None where they cannot be made together."""
    more = [one for one in question.variants if relations.of(BASE, one.name) == "more"]
    if len(more) > MOST_COMPARED:
        return None
    most = [one for one in more if not any(relations.of(one.name, other.name) == "more" for other in more)]
    try:
        return changed(base, [change for one in most for change in one.changes]) if most else None
    except (InvalidRequest, ValidationError):
        return None
