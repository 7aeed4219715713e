"""`isthmus study`: sends a grid of requests to a running service, waits for it, and shows it as one table.

Owns the command's options and its table. The service makes the grid, judges it and plans it; nothing is planned here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit
from uuid import uuid4

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from app.faults import Refused
    from app.terminal.client import Client, ServiceError

POLL_S = 0.5
PATIENCE_S = 120.0  # with a service that is being restarted; what it has stored it goes on with
PASSING = frozenset((429, 503))
PLAIN_WIDTH = 120


def study(
    context: typer.Context,
    grid: Annotated[str, typer.Argument(metavar="GRID", help="A body of POST /v1/studies: a file, or - .")],
    *,
    server: Annotated[str | None, typer.Option(help="URL of the service; else host and port of the settings.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="File with the API key, where the service wants one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the whole study to this file, as JSON.")] = None,
) -> None:
    """Plan a grid of requests on a running service; Ctrl-C stops it and keeps what was found."""
    from app.documents import parse_json
    from app.settings import Settings
    from app.terminal.inputs import read_source
    from app.terminal.outputs import prepare, write
    from app.terminal.work import ExitCode

    settings = context.find_object(Settings) or Settings.from_environment()
    address = server or f"http://{settings.host}:{settings.port}"
    document = parse_json(read_source(grid))
    prepare(out)
    found = _answer(_client(address, key_file), address, document)
    _show(_console(stderr=False), found)
    write(out, json.dumps(found, indent=2).encode())
    is_planned = any(member["figures"] for member in found["members"])
    raise typer.Exit(ExitCode.PLANNED if is_planned else ExitCode.NOTHING_FOUND)


def _client(address: str, key_file: Path | None) -> Client:
    from app.terminal.client import Client
    from app.terminal.inputs import read_source

    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise _wrong_address(address) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise _wrong_address(address)
    encrypted = parts.scheme == "https"
    api_key = None if key_file is None else _key(read_source(str(key_file)), str(key_file))
    return Client(parts.hostname, port or (443 if encrypted else 80), api_key=api_key, encrypted=encrypted)


def _key(text: bytes, source: str) -> str:
    from app.faults import Fault, Refused

    key = text.strip()
    if not key or not key.isascii() or len(key.split()) != 1:
        raise Refused((Fault("invalid-parameter", f"{source} does not hold one API key", "", "one word in ASCII",
                             "Put there what `isthmus keys create` printed.", "--key-file"),))  # fmt: skip
    return key.decode()


def _wrong_address(address: str) -> Refused:
    from app.faults import Fault, Refused

    return Refused((Fault("invalid-parameter", f"{address!r} is no address of a service", "",
                          "http://HOST:PORT or https://HOST:PORT", "Correct it.", "--server"),))  # fmt: skip


def _answer(client: Client, address: str, document: Any) -> dict[str, Any]:
    """The study once it has ended."""
    from app.faults import Fault, Refused
    from app.terminal.client import ServiceError

    try:
        submitted = _submitted(client, document)
        return _followed(client, f"/v1/studies/{submitted['id']}", submitted)
    except ServiceError as error:
        raise _refusal(error) from None
    except (OSError, HTTPException, json.JSONDecodeError, UnicodeDecodeError) as error:
        what = f"no service answers at {address}: {error or type(error).__name__}"
        raise Refused((Fault("not-ready", what, "", "", "Start one with `isthmus serve`, or name it with --server.",
                             "--server"),)) from None  # fmt: skip


def _submitted(client: Client, document: Any) -> dict[str, Any]:
    """The study as it was taken; asked a second time where the answer was lost on its way, and still taken once."""
    key = uuid4().hex
    try:
        taken: dict[str, Any] = client.post("/v1/studies", document, key=key)
    except (ConnectionResetError, TimeoutError, HTTPException):
        taken = client.post("/v1/studies", document, key=key)
    return taken


def _followed(client: Client, path: str, submitted: Mapping[str, Any]) -> dict[str, Any]:
    console = _console(stderr=True)
    console.print(f"{submitted['id']}: {len(submitted['members'])} points", highlight=False)
    current, shown = dict(submitted), ""
    while current["state"] != "done":
        try:
            current = _looked_at(client, path)
            news = ", ".join(f"{number} {state}" for state, number in sorted(current["counts"].items()))
            if news != shown:
                console.print(f"  {news}", highlight=False)
                shown = news
            if current["state"] != "done":
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            console.print("  stopping what is left, keeping what was found", highlight=False)
            client.post(f"{path}:cancel", {})
    return current


def _looked_at(client: Client, path: str) -> dict[str, Any]:
    """The study as it is; a service that is away for a while has not lost it."""
    from app.terminal.client import ServiceError

    begun_s = time.monotonic()
    while True:
        try:
            found: dict[str, Any] = json.loads(client.get(path))
            return found
        except (OSError, HTTPException, ServiceError) as error:
            is_final = isinstance(error, ServiceError) and error.status not in PASSING
            if is_final or time.monotonic() - begun_s > PATIENCE_S:
                raise
            time.sleep(POLL_S)


def _refusal(error: ServiceError) -> Refused:
    """The faults that the service found, as it words them."""
    from app.faults import Fault, Refused
    from app.terminal.work import Failed

    try:
        listed = json.loads(error.body)["errors"]
        faults = [
            Fault(one["code"], one["what"], one["pointer"], one["allowed"], one["remedy"], one["where"])
            for one in listed
        ]
    except (ValueError, KeyError, TypeError):
        raise Failed(str(error)) from None
    return Refused(faults)


def _show(console: Console, found: Mapping[str, Any]) -> None:
    """The table, without the plans' names where it would be too wide, and below it why a point has no plan."""
    table = Table(title=escape(found["name"] or found["id"]), title_justify="left")
    for heading in ("", "time s", "bound s", "gap %", "GPUs"):
        table.add_column(heading, justify="right", no_wrap=True)
    is_wide = console.width >= PLAIN_WIDTH
    for heading in ("crossing", "state", *(("plan",) if is_wide else ())):
        table.add_column(heading, no_wrap=True)
    table.add_column("point", overflow="fold")
    for member in found["members"]:
        plan = (member["plan_id"] or "",) if is_wide else ()
        cells = (*_figures(member["figures"]), member["state"], *plan, changes_text(member["changes"]))
        table.add_row(str(member["index"]), *cells)
    console.print(table)
    for member in found["members"]:
        for fault in member["faults"]:
            console.print(f"{member['index']}: {escape(fault['what'])} ({escape(fault['where'])})", highlight=False)
        if member["figures"] is None and member["plan_id"]:
            console.print(f"{member['index']}: no plan; GET /v1/plans/{member['plan_id']} says why", highlight=False)


def changes_text(changes: Mapping[str, Any]) -> str:
    """What differs from the base, short: the last part of a pointer is enough to a reader of the table.

    >>> changes_text({"/workload/global_batch_sequences": 1024, "/constraints/max_gpus": 8192})
    'global_batch_sequences 1024, max_gpus 8192'
    >>> changes_text({"constraints": {"max_gpus": 1}})
    '{"constraints": {"max_gpus": 1}}'
    """
    if changes and all(name.startswith("/") for name in changes):
        return escape(", ".join(f"{name.rsplit('/', 1)[1]} {json.dumps(value)}" for name, value in changes.items()))
    return escape(json.dumps(changes))


def _figures(figures: Mapping[str, Any] | None) -> tuple[str, ...]:
    if figures is None:
        return ("",) * 5
    bound_s, gap = figures["lower_bound_s"], figures["relative_gap"]
    return (
        f"{figures['iteration_s']:.3f}",
        "" if bound_s is None else f"{bound_s:.3f}",
        "" if gap is None else f"{100 * gap:.1f}",
        f"{figures['num_gpus']:,}",
        escape(figures["crossing"]),
    )


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=PLAIN_WIDTH)
