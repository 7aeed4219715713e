"""What a report of many buildings says: alike remarks folded, names that differ, error bars of memory."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from app.exporters.report.formatting import fitted, told_apart
from app.exporters.report.memory_bars import memory_bars, spread_of
from app.exporters.report.page import report_html
from models.diagnostic import Diagnostic
from tests.build_report import build_report_plan, build_report_request

NAMES = st.lists(st.text("ab-01", min_size=1, max_size=12), min_size=1, max_size=8, unique=True)


def _warned(number: int) -> str:
    told = tuple(
        Diagnostic(rule="made-up", severity="warning", pointer=f"/cluster/links/{at}", detail=f"link 'l{at}' is long")
        for at in range(number)
    )
    plan = build_report_plan().model_copy(update={"warnings": told})
    return report_html(plan, build_report_request())


def test_remarks_that_differ_by_names_alone_are_folded_and_none_is_lost() -> None:
    assert "more like this" not in _warned(2)
    text = _warned(24)
    assert "23 more like this" in text
    assert len(set(re.findall(r"/cluster/links/\d+", text.split("<h3>Warnings</h3>")[1]))) >= 24


@given(names=NAMES, limit=st.integers(5, 12))
def test_a_short_name_is_short_and_a_name_that_fits_stays(names: list[str], limit: int) -> None:
    found = told_apart(names, limit)
    assert found.keys() == set(names)
    assert all(len(short) <= limit for short in found.values())
    assert all(found[name] == name for name in names if len(name) <= limit)


@given(text=st.text(min_size=1, max_size=60), width=st.floats(20, 400))
def test_what_is_fitted_is_the_text_or_its_beginning(text: str, width: float) -> None:
    shown = fitted(text, width, 12.0)
    assert fitted(shown, width, 12.0) == shown
    assert len(shown) * 0.3 * 12.0 <= max(width, 12.0)


def test_every_rank_has_the_error_bar_of_the_fullest() -> None:
    plan = build_report_plan()
    spread = spread_of(plan)
    drawn = memory_bars(plan.memory, (0.9, 1.2))
    assert drawn.count('class="whisker"') == len(plan.memory)
    assert memory_bars(plan.memory, spread).count("whisker") == (len(plan.memory) if spread else 0)
