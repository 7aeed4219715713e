"""What a command that failed tells its user, on standard error, and what it ends with; imported when one has."""

from __future__ import annotations

import errno
import os
import sys

from rich.markup import escape

from app.client.errors import ServiceError, Unreachable
from app.faults import Fault, Refused, from_planner_error, refused
from app.settings import InvalidSetting
from app.terminal.exits import ExitCode, Failed
from app.terminal.inputs import print_faults
from app.terminal.screen import console
from models.errors import PlannerError

# SQLSTATE insufficient_privilege (PostgreSQL, appendix A). Since release 15 only owners create tables.
NOT_ALLOWED = "42501"
# Of a disk, or of what a user may have of it (errno(3)).
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def report(error: Exception) -> ExitCode | None:
    """Tell what happened and say how to end; None: nothing is known about such an error."""
    screen = console(stderr=True)
    found = _refused(error)
    if found is not None:
        print_faults(screen, found)
        is_ours = isinstance(error, ServiceError) and error.status >= 500
        return ExitCode.DEFECT if is_ours else ExitCode.BAD_INPUT
    if isinstance(error, InvalidSetting):
        screen.print(f"[bold red]bad setting[/]: {escape(str(error))}")
        return ExitCode.BAD_INPUT
    if isinstance(error, Failed | ServiceError):
        screen.print(f"[bold red]failed[/]: {escape(str(error))}")
        return ExitCode.DEFECT
    told = _about_the_database(error)
    if told is not None:
        screen.print(f"[bold red]database[/]: {escape(told)}")
        return ExitCode.DEFECT
    return None


def _refused(error: Exception) -> Refused | None:
    """The faults that an error states, whoever found them: this program or a service."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, PlannerError):
        return Refused((from_planner_error(error),))
    if isinstance(error, Unreachable):
        remedy = "Start one with `isthmus serve`, or name it with --server or ISTHMUS_SERVER."
        return refused("not-ready", str(error), remedy=remedy, where="--server")
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer fails again at the end otherwise
        what = f"{error.filename or 'standard output'} cannot be written: {error.strerror}"
        return refused("invalid-parameter", what, remedy="Make room, or write elsewhere.", where="output")
    if isinstance(error, ServiceError) and error.faults:
        return Refused([Fault(**fault.model_dump()) for fault in error.faults])
    return None


def _about_the_database(error: Exception) -> str | None:
    """What a user can do about an error of the database; None for any other error."""
    if "sqlalchemy" not in sys.modules:  # which takes long to import, and most commands need no database
        return None
    from app.storage.migrations import IncompatibleDatabase
    from app.storage.outages import outage_of

    if isinstance(error, IncompatibleDatabase):
        return str(error)
    first_line = str(error).partition("\n")[0]
    if getattr(getattr(error, "orig", None), "sqlstate", None) == NOT_ALLOWED:
        return f"{first_line}. Make its user the owner of the database, or grant what it lacks."
    outage = outage_of(error)
    return None if outage is None else f"{outage.what}: {first_line}. {outage.remedy}"
