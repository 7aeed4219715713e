"""The time axis of a drawing: whatever the times, its words stay inside the drawing and apart from each other."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from app.exporters.report.svg import TICK_WIDTH, Scale, time_axis

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
