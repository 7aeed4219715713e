"""Quantities and configurations as a person reads them.

Each shown number carries the exact one of the plan beside it, in a `data` element.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from app.exporters.report.markup import Markup, tag, visible

if TYPE_CHECKING:
    from models.plan import Plan

_SIZES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
NOT_STATED = "not stated"
# Names of the parts of an iteration, in the order they are shown, with their fields of `TimeBreakdown`.
TIME_PARTS = (
    ("compute", "compute_s"),
    ("tensor parallel", "tensor_parallel_s"),
    ("context parallel", "context_parallel_s"),
    ("expert parallel", "expert_parallel_s"),
    ("bubble", "bubble_s"),
    ("pipeline transfers", "pipeline_s"),
    ("gradient exchange", "data_parallel_s"),
    ("optimizer", "optimizer_s"),
    ("step overhead", "overhead_s"),
)


def rounded(value: float, digits: int = 4) -> str:
    """So many significant digits, never in powers of ten.

    >>> rounded(5.13241), rounded(12345.6), rounded(0.0), rounded(0.012)
    ('5.132', '12,346', '0', '0.012')
    """
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.12f}".rstrip("0")


def seconds(value: float) -> str:
    """A time in s, ms or µs.

    >>> seconds(5.1324), seconds(0.1548), seconds(2.4e-5), seconds(0.0)
    ('5.132 s', '154.8 ms', '24 µs', '0 s')
    """
    if value == 0 or abs(value) >= 0.99995:
        return f"{rounded(value)} s"
    if abs(value) >= 1e-3:
        return f"{rounded(value * 1e3)} ms"
    return f"{rounded(value * 1e6, 3)} µs"


def runnable_in_words(plan: Plan) -> Iterator[str]:
    """One line per framework: how long it takes for the plan, or why it does not run it, and the best found for it."""
    for one in plan.runnable_by:
        why = "; ".join(one.reasons)
        made = "as planned" if one.as_planned else f"otherwise than planned ({why})"
        time = "" if one.iteration_s is None else f"{seconds(one.iteration_s)} "
        best = "" if one.best is None or one.best.configuration == plan.configuration else (
            f"; best found for it: {seconds(one.best.iteration_s)}")  # fmt: skip
        none = "; nothing that was found runs there" if not one.runs and one.best is None else ""
        yield f"on {one.framework}: {f'{time}{made}' if one.runs else f'no ({why})'}{best}{none}"


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


def number(value: float, text: str, field: str | None = None) -> Markup:
    """What is shown, with the exact value of the plan beside it and, for headline figures, the name of its field."""
    return tag("data", text, value=repr(value), data_field=field)


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


def shortened(text: str, limit: int) -> str:
    """At most so many characters; the end goes.

    >>> shortened("us-central1-a", 8)
    'us-cent…'
    """
    shown = visible(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
