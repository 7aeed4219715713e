"""The time axis of a drawing: whatever the times, its words stay inside the drawing and apart from each other."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from app.exporters.report.svg import TICK_WIDTH, Scale, level_axis, time_axis

TICK_HEIGHT = 11.5  # px, of the letters of a tick in the style sheet
TEXT = re.compile(r'<text x="([\d.]+)" y="[\d.]+" class="tick" text-anchor="(\w+)">([^<]*)</text>')


@example(low=10.838798922468602, span=0.001)
@given(low=st.floats(0, 100), span=st.floats(1e-3, 1e5))
def test_no_word_of_a_time_axis_sticks_out_or_meets_another(low: float, span: float) -> None:
    found = TEXT.findall("".join(time_axis(Scale(low, low + span, 132.0, 912.0), 90.0, 10.0)))
    assert len(found) >= 2
    taken = 100.0
    for x, anchor, text in found:
        wide = TICK_WIDTH * len(text)
        left = float(x) - (wide if anchor == "end" else wide / 2)
        assert taken <= left
        taken = left + wide
    assert taken <= 912.1


@given(high=st.floats(1e-6, 1e7))
def test_no_time_is_told_in_powers_of_ten(high: float) -> None:
    for _, _, text in TEXT.findall("".join(time_axis(Scale(0.0, high, 132.0, 912.0), 90.0, 10.0))):
        assert re.fullmatch(r"[\d,.]+ s", text), text


def test_the_lowest_level_stands_above_the_times_below_it() -> None:
    """Where it is at the lower end, as a bound near 0 has it, the two first words would meet."""
    level = "".join(level_axis(Scale(0.0, 1.5, 224.0, 14.0), 78.0, 912.0, "{:g} s".format))
    times = "".join(time_axis(Scale(0.0, 15.0, 78.0, 912.0), 224.0, 14.0))
    lowest = max(float(y) for y in re.findall(r'<text x="72" y="([\d.]+)"', level))
    assert lowest + 3 <= min(float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)"', times)) - TICK_HEIGHT
