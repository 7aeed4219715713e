"""Bounds that no plan is sought for take counted time, so that they end where a question's time does."""

from __future__ import annotations

import numpy as np
import pytest

from models.catalogue import named_entry
from models.request import PlanRequest
from solver.questions.row_bounds import PRICED, SCREENED, RowBounds, least_bound_s
from tests.counted import work_clock

FAR_S = 1e9  # no bound is as high: only the time ends them
OVERRUN_S = 0.5  # one portion of rows on two GPU classes, or one pipeline


def bound_after(limit_s: float) -> tuple[float, float]:
    """The bound after so many counted seconds, and how many were counted in the end."""
    request = PlanRequest.model_validate(named_entry("examples", "llama-405b-two-buildings"))
    clock = work_clock()
    return least_bound_s(request, FAR_S, lambda: clock() >= limit_s, clock), clock()


@pytest.fixture(scope="module")
def found() -> list[tuple[float, float]]:
    return [bound_after(limit_s) for limit_s in (2.0, 2.5)]


def test_a_bound_ends_with_its_counted_time(found: list[tuple[float, float]]) -> None:
    for (_, spent_s), limit_s in zip(found, (2.0, 2.5), strict=True):
        assert limit_s <= spent_s <= limit_s + OVERRUN_S


def test_more_time_never_lowers_a_bound(found: list[tuple[float, float]]) -> None:
    (short_s, _), (long_s, _) = found
    assert 0.0 < short_s <= long_s < FAR_S


def test_pricing_rows_takes_their_counted_time_and_so_does_refining_one() -> None:
    request = PlanRequest.model_validate(named_entry("examples", "llama-8b-single-building"))
    clock = work_clock()
    rows = RowBounds(request, clock)
    spent_s = [clock()]
    wanted = np.ones(len(rows), dtype=np.bool_)
    rows.price(wanted, FAR_S, lambda: clock() >= spent_s[0] + 0.1)
    spent_s.append(clock())
    assert SCREENED in rows.state
    one = np.arange(len(rows)) == int(np.argmin(np.where(rows.state == PRICED, rows.seconds, np.inf)))
    rows.refine(one, FAR_S, lambda: False)
    spent_s.append(clock())
    assert 0.0 < spent_s[0] < spent_s[1] < spent_s[2]
