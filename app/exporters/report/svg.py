"""Shapes and scales of the drawings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from app.exporters.report.markup import Markup, pixels, tag
from app.words import rounded

TICK_WIDTH = 7.4  # of a character of a tick at most, in DejaVu Sans of 11.5 px
TICK_ROOM = 32.0  # left of a scale, for half of its first tick


@dataclass(frozen=True)
class Scale:
    """A straight scale from a range of values to a range of positions."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Position of a value.

        >>> Scale(0.0, 10.0, 100.0, 200.0)(2.5)
        125.0
        """
        width = self.high - self.low
        share = (value - self.low) / width if width else 0.0
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round values between two, about so many.

    >>> ticks(0.0, 5.13)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    >>> ticks(0.3, 0.3)
    [0.3]
    """
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(one for one in (1, 2, 2.5, 5, 10) if one * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 12) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def rect(x: float, y: float, width: float, height: float, **attributes: str | float | None) -> Markup:
    """A rectangle; one without width or height is left away."""
    if width <= 0 or height <= 0:
        return Markup("")
    return tag("rect", x=x, y=y, width=width, height=height, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "rule") -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def words(x: float, y: float, text: str, class_: str = "", anchor: str = "start") -> Markup:
    """Text whose baseline lies at y."""
    end = None if anchor == "start" else anchor
    return tag("text", text, x=x, y=y, class_=class_ or None, text_anchor=end)


def boxes(shapes: Iterable[tuple[float, float, float, float]], class_: str) -> Markup:
    """Many rectangles (x, y, width, height) of one colour as one path."""
    data = "".join(f"M{pixels(x)} {pixels(y)}h{pixels(w)}v{pixels(h)}h-{pixels(w)}z" for x, y, w, h in shapes)
    return tag("path", d=data, class_=class_) if data else Markup("")


def steps(points: Iterable[tuple[float, float]], last_x: float) -> str:
    """Path data of a curve that keeps each value until the next point.

    >>> steps([(0.0, 9.0), (5.0, 4.0)], 8.0)
    'M0 9H5V4H8'
    """
    path = ""
    for x, y in points:
        path += f"H{pixels(x)}V{pixels(y)}" if path else f"M{pixels(x)} {pixels(y)}"
    return path + f"H{pixels(last_x)}" if path else ""


def level_axis(level: Scale, left: float, right: float, text_of: Callable[[float], str]) -> Iterator[Markup]:
    """Values of a vertical scale left of a drawing, with rules across it; the lowest stays above what is below."""
    for value in ticks(level.low, level.high, 5):
        yield line(left, level(value), right, level(value), "grid")
        yield words(left - 6, min(level(value) + 4, level.start - 2), text_of(value), "tick", "end")


def time_axis(scale: Scale, y: float, top: float) -> Iterator[Markup]:
    """Seconds on a horizontal scale below a drawing, with rules up to its top."""
    for value in ticks(scale.low, scale.high, 8):
        x = scale(value)
        yield line(x, top, x, y, "grid")
        text = f"{rounded(value, 6)} s"
        half = 0.5 * TICK_WIDTH * len(text)
        if x + half > scale.end:
            yield words(scale.end, y + 13, text, "tick", "end")
        else:
            yield words(max(x, scale.start - TICK_ROOM + half), y + 13, text, "tick", "middle")
