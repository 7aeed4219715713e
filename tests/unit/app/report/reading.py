"""Reads a report as a program does: elements with their attributes and text.

An element that is not closed is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"br", "col", "hr", "input", "link", "meta"}


@dataclass
class Element:
    """One element of a page."""

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def every(self, name: str, **wanted: str) -> list[Element]:
        """All elements of that name below this one, with those attributes."""
        found = [one for child in self.children for one in child.every(name, **wanted)]
        keys = {key.replace("_", "-").removesuffix("-"): value for key, value in wanted.items()}
        if self.name == name and all(self.attributes.get(key) == value for key, value in keys.items()):
            found.insert(0, self)
        return found

    def walk(self) -> list[Element]:
        """This element and all below it."""
        return [self, *(one for child in self.children for one in child.walk())]

    @property
    def text(self) -> str:
        """Text of this element alone."""
        return "".join(self.texts)

    @property
    def whole_text(self) -> str:
        """Text of this element and all below it, parts in no promised order."""
        return self.text + "".join(child.whole_text for child in self.children)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {key: value or "" for key, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].texts.append(data)


def read(page: str) -> Element:
    """The whole page."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader.open) == 1, f"<{reader.open[-1].name}> is never closed"
    return reader.open[0]
