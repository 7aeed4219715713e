"""The frame around every drawing: heading, drawing with a text in its place, caption, and the same as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.exporters.report.markup import Child, Markup, joined, tag

WIDTH = 920.0  # of every drawing, in its own units; the page scales it


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
    swatches = ((tag("rect", width=12, height=12, class_=name), words) for name, words in entries)
    items = (tag("li", tag("svg", one, viewBox="0 0 12 12", aria_hidden="true"), words) for one, words in swatches)
    return tag("ul", *items, class_="legend")


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[Child]]) -> Markup:
    """A table that scrolls by itself when the page is narrow; the first cell of a row is its heading.

    A heading after `#` is that of numbers, which are set flush right.
    """
    kinds = ["n" if one.startswith("#") else None for one in headings]
    heads = [tag("th", one.removeprefix("#"), scope="col", class_=kind)
             for one, kind in zip(headings, kinds, strict=True)]  # fmt: skip
    body = (tag("tr", *_cells(kinds, row)) for row in rows)
    whole = tag("table", tag("caption", caption), tag("thead", tag("tr", *heads)), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cells(kinds: Sequence[str | None], row: Sequence[Child]) -> Iterable[Markup]:
    for index, (kind, cell) in enumerate(zip(kinds, row, strict=True)):
        inside = cell if isinstance(cell, Markup) else tag("bdi", cell)
        yield tag("td", inside, class_=kind) if index else tag("th", inside, scope="row", class_=kind)


def folded(summary: str, *children: Child, printed: bool = True) -> Markup:
    """Something that opens on demand; in print it is open unless it would fill pages."""
    return tag("details", tag("summary", summary), *children, class_=None if printed else "long")
