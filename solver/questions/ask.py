"""The one door to all questions: a question goes in, its answer as far as it is comes out again and again.

Owns which file answers which kind. Never answers itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from models.questions import Question, Reply, WhyNot
from solver.clock import Clock
from solver.questions.what_if import what_if
from solver.questions.why_not import why_not


def ask(
    question: Question,
    *,
    found: Callable[[Reply], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    clock: Clock = time.monotonic,
) -> Reply:
    """The answer to a question within its time limit; stopped, it is what is known by then."""
    if isinstance(question, WhyNot):
        return why_not(question, found=found, cancelled=cancelled, clock=clock)
    return what_if(question, found=found, cancelled=cancelled, clock=clock)
