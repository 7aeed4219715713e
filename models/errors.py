"""The errors a user can cause, as one small tree. Knows nothing of HTTP.

`app/faults.py` says them the same way in the API and on the command line; `app/api/problems.py` gives codes a status.

PlannerError
├── InvalidRequest      a request that parses but cannot mean anything (dangling id, cyclic tree, contradiction)
├── UnknownName         a catalogue name that does not exist
├── LimitExceeded       more than this service accepts (states the limit and the value)
└── TooFewRows, ContradictoryRows       measured runs that no profile can be fitted to (`solver/calibration/fit.py`)
"""

from __future__ import annotations


class PlannerError(Exception):
    """Something the user can fix: what happened, where (JSON Pointer), and what to do."""

    code = "planner-error"

    def __init__(self, message: str, *, pointer: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer
        self.remedy = remedy


class InvalidRequest(PlannerError):
    """The request contradicts itself or names something that does not exist in it."""

    code = "invalid-request"


class UnknownName(PlannerError):
    """A name that is not in the catalogue."""

    code = "unknown-name"


class LimitExceeded(PlannerError):
    """Larger than what this service accepts."""

    code = "limit-exceeded"
