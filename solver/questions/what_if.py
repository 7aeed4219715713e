"""What would changes be worth? Each planned beside the same base, its gain an interval that both sides' bounds prove.

What is compared, and how, is in `side_by_side`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.questions import Variant, WhatIf, WhatIfAnswer
from models.request import PlanRequest
from solver.questions.more import direction
from solver.questions.searches import RunHooks, SearchRuns, changed
from solver.questions.side_by_side import SharedGoal, SideComparison


@dataclass
class _Asked:
    """One question under way."""

    compared: SideComparison
    requests: Sequence[tuple[Variant, PlanRequest]]

    def answer(self) -> WhatIfAnswer:
        """What is known."""
        return WhatIfAnswer(
            **self.compared.base_figures(),
            gains=tuple(
                self.compared.gain(one.name, direction(self.compared.searches.base, request))
                for one, request in self.requests
            ),
            complete=all(one.name in self.compared.sides for one, _ in self.requests),
        )


def what_if(question: WhatIf, found: Callable[[WhatIfAnswer], None], hooks: RunHooks) -> WhatIfAnswer:
    """What each variant gains over the base."""
    limit_s = question.options.time_limit_s
    searches = SearchRuns.of(question, hooks)
    requests = variants_of(question, searches.base)
    measure = SharedGoal.of([searches.base, *(request for _, request in requests)])
    compared = SideComparison(searches, measure)
    asked = _Asked(compared, requests)
    compared.plan_base(limit_s)
    found(asked.answer())
    for number, (variant, request) in enumerate(requests):
        if searches.hooks.stopped():
            break
        compared.plan_world(variant.name, request, searches.hooks.left_s / (len(requests) - number))
        found(asked.answer())
    return asked.answer()


def variants_of(question: WhatIf, base: PlanRequest) -> list[tuple[Variant, PlanRequest]]:
    """The variants with their requests; `base` has the question's own changes made, and its profile spelt out."""
    return [
        (variant, changed(base, variant.changes, f"/variants/{number}/changes"))
        for number, variant in enumerate(question.variants)
    ]
