"""Tables of a command on the screen."""

from __future__ import annotations

from rich.table import Table


def table(title: str, *headings: str) -> Table:
    """An empty table; a heading after `>` is that of figures, which stand at the right and are never broken."""
    found = Table(title=title, title_justify="left")
    for heading in headings:
        if heading.startswith(">"):
            found.add_column(heading[1:], justify="right", no_wrap=True)
        else:
            found.add_column(heading, overflow="fold")
    return found


def number(value: float | None, digits: int = 4) -> str:
    """So many digits of a figure; nothing for none."""
    return "" if value is None else f"{value:.{digits}g}"
