"""Quantities as a person reads them, each with the exact number of the plan beside it, in a `data` element."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TypeVar

from app.exporters.report.markup import Markup, tag
from app.words import rounded, shortened, visible

_SIZES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
NOT_STATED = "not stated"
Number = TypeVar("Number", bound=float)


def size(value: float) -> str:
    """Bytes with a decimal prefix.

    >>> size(1.8266e12), size(12.0), size(0.0)
    ('1.83 TB', '12 B', '0 B')
    """
    for unit, name in _SIZES:
        if value >= unit:
            return f"{rounded(value / unit, 3)} {name}"
    return f"{value:.0f} B"


def rate(value: float) -> str:
    """Bytes per second with a decimal prefix.

    >>> rate(4.2e10)
    '42 GB/s'
    """
    return f"{size(value)}/s"


def percent(share: float) -> str:
    """A share in per cent.

    >>> percent(0.06087), percent(1.0), percent(0.0004), percent(1e-12)
    ('6.1 %', '100 %', '0.04 %', '0 %')
    """
    value = 100 * share
    if abs(value) >= 99.95:
        return f"{value:,.0f} %"
    if abs(value) >= 0.1:
        return f"{value:.1f} %"
    return "0 %" if abs(value) < 1e-6 else f"{rounded(value, 2)} %"


def odds(probability: float) -> str:
    """A probability, never told as certain.

    >>> odds(0.5), odds(0.99999), odds(0.0)
    ('50.0 %', 'more than 99.9 %', 'less than 0.1 %')
    """
    if 0.001 <= probability <= 0.999:
        return percent(probability)
    return "more than 99.9 %" if probability > 0.5 else "less than 0.1 %"


def count(value: int) -> str:
    """A number of things.

    >>> count(116736)
    '116,736'
    """
    return f"{value:,}"


def number(value: Number, text: str | Callable[[Number], str], field: str | None = None) -> Markup:
    """A text, or the value in a form, with the exact value beside it and, for headline figures, the field."""
    return tag("data", text if isinstance(text, str) else text(value), value=repr(value), data_field=field)


def plural(number_of: int, noun: str, many: str = "") -> str:
    """A number with its noun.

    >>> plural(1, "route"), plural(2000, "batch", "batches")
    ('1 route', '2,000 batches')
    """
    return f"{count(number_of)} {noun if number_of == 1 else many or noun + 's'}"


def ranges(values: Iterable[int]) -> str:
    """Whole numbers with runs folded.

    >>> ranges([0, 1, 2, 5, 7, 8]), ranges([])
    ('0–2, 5, 7–8', '')
    """
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and runs[-1][1] == value - 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)


def fitted(text: str, width: float, size: float) -> str:
    """The text, or as much of its beginning as a width holds in letters of a size, both in the units of a drawing.

    >>> fitted("building-east", 60.0, 12.0), fitted("iiiiiiiiiiiii", 60.0, 12.0)
    ('buildin…', 'iiiiiiiiiiiii')
    """
    shown, room = visible(text), width / size
    if sum(map(_em, shown)) <= room:
        return shown
    ends = accumulate(map(_em, shown), initial=_em("…"))
    return shown[: max(0, sum(1 for end in ends if end <= room) - 1)] + "…"


def _em(letter: str) -> float:
    """Width of a letter in its size, no less than in DejaVu Sans."""
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    return 0.37 if letter in "ijltfI.,:;'|!()[]-r " else 0.85 if letter in "mwMW@%" or letter.isupper() else 0.65


def told_apart(names: Sequence[str], limit: int) -> dict[str, str]:
    """Each name in at most so many characters; where the beginnings of two would be alike, their ends are kept.

    >>> told_apart(["east", "us-central1-a"], 8)
    {'east': 'east', 'us-central1-a': 'us-cent…'}
    >>> told_apart(["building-00", "building-01"], 6)
    {'building-00': '…ng-00', 'building-01': '…ng-01'}
    """
    begun = {name: shortened(name, limit) for name in names}
    if len(set(begun.values())) == len(begun):
        return begun
    return {name: end if len(end) <= limit else "…" + end[1 - limit :] for name in names for end in [visible(name)]}
