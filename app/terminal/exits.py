"""How a command ends. The exit codes are a promise to scripts: docs/howto/use-the-command-line.md lists them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command ends with."""

    PLANNED = 0
    DEFECT = 1
    BAD_INPUT = 2
    INFEASIBLE = 3
    NOTHING_FOUND = 4


EXIT_OF_STATUS = {"planned": ExitCode.PLANNED, "infeasible": ExitCode.INFEASIBLE, "not_found": ExitCode.NOTHING_FOUND}


class Failed(Exception):
    """A command could not do its work, and the input is not to blame; the message is for the user."""
