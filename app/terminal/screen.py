"""Where a command writes, and its tables: results to standard output, news to standard error; rich honours NO_COLOR."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 120  # of tables that go to a file or a pipe, which have no width of their own


class Screen:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet
        self.out = console(stderr=False, quiet=quiet or as_json)
        self.news = console(stderr=True, quiet=quiet)

    def show(self, document: Any, draw: Callable[[Console], None]) -> None:
        """A result: its JSON where that is asked for, and else as `draw` draws it for people."""
        if not self.as_json:
            draw(self.out)
        elif hasattr(document, "model_dump_json"):
            typer.echo(document.model_dump_json(indent=2))
        else:
            typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def console(*, stderr: bool, quiet: bool = False) -> Console:
    """A console of one of the streams."""
    from rich.console import Console  # only a command that runs draws anything

    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream is not None and stream.isatty()  # None: the shell has closed it
    width = None if is_terminal else PLAIN_WIDTH
    return Console(stderr=stderr, quiet=quiet, width=width, highlight=False)


def table(title: str, *headings: str, rows: Iterable[Sequence[str]] = ()) -> Table:
    """A table; a heading after `>` is that of figures, which stand at the right and are never broken."""
    from rich.table import Table

    found = Table(title=title, title_justify="left")
    for heading in headings:
        if heading.startswith(">"):
            found.add_column(heading[1:], justify="right", no_wrap=True)
        else:
            found.add_column(heading, overflow="fold")
    for row in rows:
        found.add_row(*row)
    return found


def escape(text: str) -> str:
    """Text of which nothing is markup."""
    from rich.markup import escape as escaped

    return escaped(text)


def number(value: float | None, digits: int = 4) -> str:
    """So many digits of a figure; nothing for none."""
    return "" if value is None else f"{value:.{digits}g}"
