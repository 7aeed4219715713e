"""Searches whose seconds are counted work, so that what they find is the same however busy the machine is.

`plan` and `ask` stand in `Solvers` where a service or the command line shall search so.
"""

from __future__ import annotations

from typing import Any

from models.outcome import Outcome
from models.questions import Question, Reply
from models.request import PlanRequest
from solver import planner
from solver.clock import WorkClock
from solver.questions import ask as questions

COUNTED = {"plan": "tests.counted:plan", "ask": "tests.counted:ask"}  # fields of `Solvers`
BUSY_S = 600.0  # of the wall clock over its limit, before a search is taken to hang


def work_clock() -> WorkClock:
    """A clock of work alone, without a cap."""
    return WorkClock(lambda: 0.0, float("inf"))


def plan(request: PlanRequest, **others: Any) -> Outcome:
    """The plan of a request after so many counted seconds, by this process alone; a given clock is not read."""
    return planner.plan(request, **{**others, "clock": work_clock(), "worker_pool": None})


def ask(question: Question, **others: Any) -> Reply:
    """The answer to a question after so many counted seconds; a given clock is not read."""
    return questions.ask(question, **{**others, "clock": work_clock()})
