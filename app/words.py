"""Times, names and the parts of a plan in plain words, for reports, answers and the terminal alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.plan import Plan
    from models.transport import TransportChoice

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)
# What a subtraction leaves of nothing: light comes a third of a millimetre far in that time.
NO_TIME_S = 1e-12


def balancing_and_reliability(choice: TransportChoice) -> tuple[str, str]:
    """How a transport balances flows and recovers losses, in words; dashes in a scale-up domain."""
    if choice.tier == "scale_up":
        return "–", "–"
    return choice.load_balancing.replace("_", " "), choice.reliability.replace("_", " ")


def when(at: float | None) -> str | None:
    """A time as documents write it.

    >>> when(0.0)
    '1970-01-01T00:00:00.000Z'
    """
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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

    >>> seconds(5.1324), seconds(0.1548), seconds(2.4e-5), seconds(8e-15)
    ('5.132 s', '154.8 ms', '24 µs', '0 s')
    """
    if abs(value) < NO_TIME_S:
        return "0 s"
    if abs(value) >= 0.99995:
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


def shortened(text: str, limit: int) -> str:
    """At most so many characters; the end goes.

    >>> shortened("us-central1-a", 8)
    'us-cent…'
    """
    shown = visible(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def visible(text: str) -> str:
    """Text whose control characters are spelt out.

    >>> visible("a" + chr(0))
    'a[U+0000]'
    """
    return _CONTROLS.sub(lambda match: f"[U+{ord(match.group()):04X}]", text)
