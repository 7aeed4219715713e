"""Arguments and options that commands share, each spelled and explained one way, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from app.terminal.screen import Screen

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


@dataclass(frozen=True)
class Service:
    """The service that --server or ISTHMUS_SERVER names."""

    server: str | None
    key_file: Path | None

    def address(self) -> str:
        """Where it is; empty where none is named, or this machine is meant."""
        from app.settings import Remote

        return (Remote.from_environment().server or "") if self.server is None else self.server

    def key(self) -> str | None:
        """The API key for it."""
        from app.settings import Remote
        from app.terminal.remote import key_of

        return key_of(self.key_file, Remote.from_environment().api_key)

    def client(self) -> AbstractContextManager[Client | None]:
        """A client of it; None: the work is done here."""
        address = self.address()
        return self.client_of(address) if address else nullcontext()

    def client_of(self, address: str) -> Client:
        """A client of an address; Refused for what is none."""
        from app.client.blocking import Client
        from app.faults import refused

        try:
            return Client(address, api_key=self.key())
        except ValueError as error:
            what, _, remedy = str(error).partition(": ")
            raise refused("invalid-parameter", what, allowed="http://HOST:PORT or https://HOST:PORT",
                          remedy=remedy.capitalize() + ".", where="--server") from None  # fmt: skip


# What a parameter of a command stands for, by its name: options of one kind, made into one value.
SHARED: dict[str, tuple[type, dict[str, tuple[Any, object]]]] = {
    "service": (Service, {"server": (Server, None), "key_file": (KeyFile, None)}),
    "screen": (Screen, {"as_json": (Json, False), "quiet": (Quiet, False)}),
}


def shared(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose `service` and `screen` come from the options that they stand for, which its help lists last."""
    own = get_type_hints(command, include_extras=True)
    made = {name: parts for name, parts in SHARED.items() if name in own}

    @wraps(command)
    def run(**given: Any) -> None:
        values = {name: kind(**{one: given.pop(one) for one in options}) for name, (kind, options) in made.items()}
        command(**given, **values)

    kept = [
        one.replace(annotation=own[name]) for name, one in signature(command).parameters.items() if name not in made
    ]
    more = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for _, options in made.values()
        for name, (kind, default) in options.items()
    ]
    run.__signature__ = Signature([*kept, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*kept, *more)}
    return run
