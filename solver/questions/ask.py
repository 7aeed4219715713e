"""The answer to any question, published again and again while it grows."""

import time
from collections.abc import Callable
from typing import Any

from models.questions import Question, Reply
from solver.clock import Clock
from solver.questions.curves import curves
from solver.questions.frontier import frontier
from solver.questions.least import least
from solver.questions.robust import robust
from solver.questions.searches import RunHooks
from solver.questions.what_if import what_if
from solver.questions.what_now import what_if_lost, what_now
from solver.questions.why_not import why_not
from solver.questions.worth import worth

ANSWERS: dict[str, Callable[..., Any]] = {
    "why_not": why_not,
    "what_if": what_if,
    "what_now": what_now,
    "what_if_lost": what_if_lost,
    "robust": robust,
    "worth": worth,
    "curves": curves,
    "least": least,
    "frontier": frontier,
}
"""What answers each kind, by its tag."""


def ask(
    question: Question,
    *,
    found: Callable[[Reply], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    clock: Clock = time.monotonic,
) -> Reply:
    """The answer to a question within its time limit; stopped, it is what is known by then.

    `found` is given the answer as far as it is known, again and again. Raises InvalidRequest for changes that do not
    fit, and for values that cannot be compared.
    """
    reply: Reply = ANSWERS[question.ask](question, found, RunHooks.of(question, cancelled, clock))
    return reply
