"""Reads what a command is given: a file, standard input or the name of an example."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from app.csv_text import rows_of
from app.faults import Fault, Refused, refuse_plan, refuse_request, refused, retold
from app.terminal.screen import escape

if TYPE_CHECKING:
    from rich.console import Console

    from app.client.blocking import Client
    from models.outcome import Outcome
    from models.plan import Plan
    from models.request import PlanRequest

MAX_BYTES = 256 * 1024 * 1024
# What a service calls its plans: the pattern of `plan_id`.
PLAN_ID = re.compile(r"[A-Za-z0-9_]{1,40}")

TAGS = ("name", "labels", "webhook")  # fields of a submission to a service that are none of its request

Read = TypeVar("Read")
Wanted = Literal["file", "request", "plan"]


def read_source(source: str, wanted: Wanted = "file") -> bytes:
    """The bytes of a file, of standard input (`-`) or of an example request by name; `wanted` for who named none."""
    from models.catalogue import entry_names, named_entry

    if source == "-":
        return sys.stdin.buffer.read(MAX_BYTES)
    path = Path(source)
    if not path.exists() and source in entry_names("examples"):
        return json.dumps(named_entry("examples", source)).encode()
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _unreadable(source, f"has more than {MAX_BYTES:,} bytes", "Give a smaller file.")
        return path.read_bytes()
    except OSError as error:
        remedies = {
            "file": "Give a file, or - for standard input.",
            "plan": "Give a file that isthmus plan --out wrote, or - for standard input; a plan's id needs --server.",
            "request": "Give a file, - for standard input, or the name of an example: "
            f"{', '.join(entry_names('examples'))}.",
        }
        raise _unreadable(source, error.strerror or str(error), remedies[wanted]) from None


def read_document(source: str, reader: Callable[[bytes], Read], wanted: Wanted = "file") -> Read:
    """What a reader makes of a source; what it refuses names the source, for commands that take several."""
    data, name = read_source(source, wanted), "standard input" if source == "-" else source

    def named(fault: Fault) -> Fault:
        return replace(fault, where=fault.where or (f"{name} ({fault.pointer})" if fault.pointer else name))

    with retold(named):
        return reader(data)


def read_request(data: bytes) -> PlanRequest:
    """A plan request from its JSON text, as a service takes it: a name and labels say nothing of the plan."""
    from app.documents import parse_json, read_model
    from models.request import PlanRequest

    document = parse_json(data)
    refuse_plan(document)
    return read_model(PlanRequest, without_tags(document))


def without_tags(document: Any) -> Any:
    """A request without what only a service keeps beside it: name and labels, which are checked; a webhook is refused.

    Whatever else it holds stays, and is refused by its reader.
    """
    if not isinstance(document, dict) or document.keys().isdisjoint(TAGS):
        return document
    from app.api.tags import Tagged  # imports the web framework
    from app.documents import read_model

    tags = read_model(Tagged, {name: document[name] for name in TAGS if name in document})
    if tags.webhook is not None:
        raise refused("invalid-request", "a webhook is told by a service, and none is asked", "/webhook", "null",
                      "Leave it out, or plan on a service with --server URL.")  # fmt: skip
    return {name: value for name, value in document.items() if name not in TAGS}


def keeper(source: str, client: Client | None) -> Client | None:
    """The client whose service keeps what is named: not standard input, no file of that name, and nothing like one."""
    is_file = source == "-" or Path(source).exists() or PLAN_ID.fullmatch(source) is None
    return None if is_file else client


def read_outcome(data: bytes) -> Outcome | Plan:
    """A bare plan, or an outcome, alone or inside an answer of the service."""
    from app.documents import parse_json, read_model
    from models.outcome import Infeasible, NotFound, Planned
    from models.plan import Plan

    document = parse_json(data)
    if isinstance(document, dict) and isinstance(document.get("outcome"), dict):
        document = document["outcome"]
    refuse_request(document)
    status = document.get("status") if isinstance(document, dict) else None
    if status == "infeasible":
        return read_model(Infeasible, document)
    if status == "not_found":
        return read_model(NotFound, document)
    return read_model(Planned, document) if status == "planned" else read_model(Plan, document)


def read_rows(source: str) -> list[dict[str, str]]:
    """The rows of a CSV file with a header, every cell as text."""
    try:
        rows = list(rows_of(read_source(source).decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not UTF-8"
        raise _unreadable(source, what, "Save the table as CSV in UTF-8.") from None
    except csv.Error as error:
        remedy = "Give a header, and one cell per column in every row."
        raise _unreadable(source, f"is not CSV: {error}", remedy) from None
    if not rows:
        raise _unreadable(source, "has no rows", "Give a CSV file with a header and rows.")
    return rows


def hosts_text(hosts: list[str] | None) -> str | None:
    """The text of hosts that were given as files, `POOL=HOSTS` words and hostlists; None where none were."""
    if not hosts:
        return None
    texts = (read_source(one) if one == "-" or Path(one).is_file() else one.encode() for one in hosts)
    return "\n".join(text.decode("utf-8-sig", errors="replace") for text in texts)


def _unreadable(source: str, what: str, remedy: str) -> Refused:
    return refused("invalid-request", f"{source}: {what}", remedy=remedy, where=source)


def print_faults(console: Console, refusal: Refused) -> None:
    """Every fault with its pointer, what is allowed and what to do."""
    for fault in refusal.faults:
        values = fault.to_dict()
        console.print(f"[bold red]{values['code']}[/] at [bold]{escape(str(values['where']))}[/]")
        console.print(f"  what:    {escape(fault.what)}")
        if fault.allowed:
            console.print(f"  allowed: {escape(fault.allowed)}")
        console.print(f"  to do:   {escape(fault.remedy)}")
