"""The frame around every drawing: heading, drawing with a text in its place, caption, and the same as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.exporters.report.markup import Child, Markup, joined, tag

WIDTH = 920.0  # of every drawing, in its own units; the page scales it


@dataclass(frozen=True)
class Column:
    """A column of a table; numbers are set flush right."""

    heading: str
    numeric: bool = False


def columns(*headings: str) -> tuple[Column, ...]:
    """Columns from their headings; a leading `#` marks one of numbers."""
    return tuple(Column(one.removeprefix("#"), one.startswith("#")) for one in headings)


def section(name: str, heading: str, *children: Child) -> Markup:
    """A landmark of the page with its heading."""
    title = tag("h2", heading, id=f"{name}-heading")
    return tag("section", title, *children, id=name, aria_labelledby=f"{name}-heading")


def paragraph(*children: Child, class_: str | None = None) -> Markup:
    """A paragraph."""
    return tag("p", *children, class_=class_)


def drawing(name: str, *, height: float, title: str, description: str, parts: Iterable[Markup]) -> Markup:
    """An SVG that a screen reader announces by title and description."""
    heads = (tag("title", title, id=f"{name}-title"), tag("desc", description, id=f"{name}-desc"))
    return tag(
        "svg",
        *heads,
        *parts,
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
    )


def figure(picture: Markup, caption: Child = "", legend: Child = "", numbers: Child = "") -> Markup:
    """A drawing with its legend, caption and numbers; on a phone the drawing alone scrolls, so it stays legible."""
    words = tag("figcaption", caption) if caption else ""
    return joined((tag("figure", legend, tag("div", picture, class_="drawing"), words), numbers))


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """Colours and what they mean: pairs of class and words."""
    items = (tag("li", _swatch(name), words) for name, words in entries)
    return tag("ul", *items, class_="legend")


def _swatch(name: str) -> Markup:
    square = tag("rect", width=12, height=12, class_=name)
    return tag("svg", square, viewBox="0 0 12 12", aria_hidden="true")


def table(caption: str, heads: Sequence[Column], rows: Iterable[Sequence[Child]]) -> Markup:
    """A table that scrolls by itself when the page is narrow; the first cell of a row is its heading."""
    top = tag("tr", *(tag("th", one.heading, scope="col", class_="n" if one.numeric else None) for one in heads))
    body = (tag("tr", *_cells(heads, row)) for row in rows)
    whole = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cells(heads: Sequence[Column], row: Sequence[Child]) -> Iterable[Markup]:
    for index, (head, cell) in enumerate(zip(heads, row, strict=True)):
        kind = "n" if head.numeric else None
        inside = cell if isinstance(cell, Markup) else tag("bdi", cell)
        yield tag("td", inside, class_=kind) if index else tag("th", inside, scope="row", class_=kind)


def folded(summary: str, *children: Child, printed: bool = True) -> Markup:
    """Something that opens on demand; in print it is open unless it would fill pages."""
    return tag("details", tag("summary", summary), *children, class_=None if printed else "long")
