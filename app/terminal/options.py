"""The arguments and options that several commands share, so that each is spelled and explained one way, and the service
that two of them name.

Imports nothing heavy: every command's module imports this one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from app.client.blocking import Client


def _examples(incomplete: str) -> list[str]:
    from models.catalogue import entry_names

    return [name for name in entry_names("examples") if name.startswith(incomplete)]


Source = Annotated[
    str, typer.Argument(help="A file, - for standard input, or the name of an example.", autocompletion=_examples)
]
File = Annotated[str, typer.Argument(help="A file, or - for standard input.")]
PlanSource = Annotated[
    str, typer.Argument(metavar="PLAN", help="A file that isthmus plan --out wrote; or the id of a plan on --server.")
]
RequestFile = Annotated[str | None, typer.Option("--request", help="The request of the plan.")]
OutFile = Annotated[Path | None, typer.Option("--out", "-o", help="Write the result to this file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON to standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and the JSON of --json).")]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds to search; overrides the request.")]
Server = Annotated[
    str | None,
    typer.Option(help="URL of a running service that does the work; else ISTHMUS_SERVER; else this machine does."),
]
KeyFile = Annotated[
    Path | None, typer.Option(help="File with the API key of the service; else ISTHMUS_API_KEY.", show_default=False)
]
SaveSearch = Annotated[
    Path | None, typer.Option("--save-search", metavar="FILE", help="Keep the search in this file, for isthmus resume.")
]
Hosts = Annotated[
    list[str] | None, typer.Option("--hosts", help="A hosts file, POOL=node[001-128], or a hostlist; may be repeated.")
]


def service(server: str | None, key_file: Path | None) -> AbstractContextManager[Client | None]:
    """A client of the service that --server or ISTHMUS_SERVER names; None: the work is done here."""
    from app.settings import Remote

    named = Remote.from_environment()
    address = named.server if server is None else server
    if not address:
        return nullcontext()
    from app.terminal.remote import client_of

    return client_of(address, key_file, named.api_key)
