"""HTML and SVG that cannot be broken out of: plain text is escaped wherever it is put, markup is made here alone.

Names in a plan come from users: control characters and those that turn the direction of the text around are shown by
their code, never passed on.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from app.words import visible

_VOID = frozenset({"br", "col", "hr", "input", "link", "meta"})
Attribute = str | float | bool | None


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | Markup


def escaped(text: str) -> Markup:
    """Text made safe for an element or an attribute; markup stays as it is.

    >>> escaped("</script> 'a' & " + chr(0x202E) + "b")
    '&lt;/script&gt; &#x27;a&#x27; &amp; [U+202E]b'
    """
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(visible(text), quote=True))


def pixels(value: float) -> str:
    """A length in an SVG: a tenth is finer than any screen.

    >>> pixels(3.0), pixels(2.345), pixels(-0.01)
    ('3', '2.3', '0')
    """
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element. `class_` is the attribute class, `view_box` would be view-box; None leaves an attribute out.

    >>> tag("p", "a < b", tag("br"), class_="x", hidden=True, title=None)
    '<p class="x" hidden>a &lt; b<br></p>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.removesuffix("_").replace("_", "-")
        words.append(label if value is True else f'{label}="{_value(value)}"')
    start = f"<{' '.join(words)}>"
    return Markup(start) if name in _VOID else Markup(f"{start}{joined(children)}</{name}>")


def _value(value: str | float) -> str:
    return escaped(value) if isinstance(value, str) else pixels(value)


def joined(parts: Iterable[Child]) -> Markup:
    """Parts side by side, each escaped unless it is markup."""
    return Markup("".join(escaped(part) for part in parts))
