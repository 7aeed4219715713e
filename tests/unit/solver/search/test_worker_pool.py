"""A search with others at work finds what it finds alone; who vanishes takes nothing along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from models.outcome import Planned, Progress
from solver.planner import plan
from solver.search import branch_and_bound
from solver.search.dispatcher import Defect
from solver.search.tasks import Compare, Errand, Explore, Polish, Sharpen
from solver.search.worker_pool import News
from tests.build_job import FIXED, job
from tests.unit.solver.search.toy_pool import ToyCrew

WIDE: dict[str, Any] = {**FIXED, "pp": [2, 4], "dp": [4, 8], "recompute": ["none", "full"]}
REQUEST = job(
    batch=16,
    allowed=WIDE,
    link={"latency_s": 0.005},
    constraints={"framework": {"name": "plain", "schedules": ["one_f_one_b", "gpipe"]}},
    options={"time_limit_s": 60.0, "workers": 3, "relative_gap": 0},
)


def ticking(step_s: float = 2e-3) -> Callable[[], float]:
    """A clock that goes on by the same step whenever somebody looks: what takes long is what looks often."""
    ticks: Iterator[int] = count()
    return lambda: step_s * next(ticks)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_and_bound, "ALONE_S", 0.0)


def planned(crew: ToyCrew | None, told: list[Progress] | None = None) -> Planned:
    outcome = plan(
        REQUEST, crew=crew, clock=crew.clock if crew else ticking(), progress=[].append if told is None else told.append
    )
    assert isinstance(outcome, Planned), outcome
    return outcome


def compared(found: Planned) -> list[tuple[str, float | None]]:
    return [(one.name, one.iteration_s) for one in found.plan.baselines]


@pytest.fixture(scope="module")
def alone() -> Planned:
    return planned(None)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_no_worse_than_alone(alone: Planned, size: int) -> None:
    crew = ToyCrew(size, ticking())
    found = planned(crew)
    assert found.plan.metrics.iteration_s <= alone.plan.metrics.iteration_s * 1.001
    assert found.plan.proof.num_explored >= alone.plan.proof.num_explored
    assert found.plan.proof.lower_bound_s >= alone.plan.proof.lower_bound_s * 0.999
    assert compared(found) == compared(alone)
    assert {type(one) for one in crew.given} >= {Explore, Compare, Polish}
    assert (crew.begun, crew.dismissed) == (1, 1)


def test_nothing_is_tried_twice() -> None:
    crew = ToyCrew(2, ticking())
    planned(crew)
    places = [one.index for one in crew.given if isinstance(one, Explore)]
    assert len(places) == len(set(places))
    sharpened = [each[0] for one in crew.given if isinstance(one, Sharpen) for each in one.configurations]
    assert len(sharpened) == len(set(sharpened))
    assert not set(sharpened) & set(places)


def test_what_is_lost_once_has_its_turn_again(alone: Planned) -> None:
    seen: set[object] = set()

    def first_time(errand: Errand) -> bool:
        is_new = errand.topic not in seen
        seen.add(errand.topic)
        return is_new

    told: list[Progress] = []
    found = planned(ToyCrew(2, ticking(), first_time), told)
    assert found.plan.metrics.iteration_s <= alone.plan.metrics.iteration_s * 1.001
    assert compared(found) == compared(alone)
    assert any("ended unexpectedly; the others go on" in one.message for one in told)


def test_what_brings_down_its_bearer_twice_is_left_alone_and_stays_in_the_bound(alone: Planned) -> None:
    crew = ToyCrew(2, ticking(), lambda errand: isinstance(errand, Explore))
    found = planned(crew)
    places = [one.index for one in crew.given if isinstance(one, Explore)]
    assert max(places.count(one) for one in places) == 2
    assert found.plan.proof.lower_bound_s <= alone.plan.metrics.iteration_s


def test_a_baseline_that_nobody_survives_says_so() -> None:
    found = planned(ToyCrew(2, ticking(), lambda errand: isinstance(errand, Compare) and errand.policy == 1))
    assert "ended unexpectedly" in found.plan.baselines[1].reason
    assert sum("ended unexpectedly" in one.reason for one in found.plan.baselines) == 1


def test_when_all_are_gone_the_search_goes_on_alone(alone: Planned) -> None:
    told: list[Progress] = []
    crew = ToyCrew(2, ticking(), lambda errand: isinstance(errand, Compare | Polish), num_spares=0)
    found = planned(crew, told)
    assert found.plan.metrics.iteration_s <= alone.plan.metrics.iteration_s * 1.001
    assert compared(found) == compared(alone)
    assert any("the search goes on alone" in one.message for one in told)


class FailingCrew(ToyCrew):
    """Says of every errand that it failed."""

    def news(self, _wait_s: float, /) -> list[News]:
        """The traceback of a failure."""
        return [News("failed", self._todo.popleft()[0], b"ZeroDivisionError: there")] if self._todo else []


def test_a_defect_is_not_hidden() -> None:
    crew = FailingCrew(1, ticking())
    with pytest.raises(Defect, match="ZeroDivisionError: there"):
        planned(crew)
    assert crew.dismissed == 1


def test_a_reproducible_search_asks_nobody() -> None:
    request = job(allowed=FIXED, options={"reproducible": True, "time_limit_s": 8.0, "workers": 4})
    crew = ToyCrew(3, lambda: 0.0)
    plan(request, crew=crew, clock=lambda: 0.0)
    assert (crew.begun, crew.given) == (0, [])


def test_a_search_that_is_soon_over_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_and_bound, "ALONE_S", 1e9)
    crew = ToyCrew(3, ticking())
    planned(crew)
    assert crew.begun == 0


def test_a_cancelled_search_drops_what_is_underway() -> None:
    crew, seen = ToyCrew(2, ticking()), list[Planned]()
    outcome = plan(REQUEST, crew=crew, clock=crew.clock, incumbent=seen.append, cancelled=lambda: bool(seen))
    assert isinstance(outcome, Planned)
    assert not outcome.complete
    assert crew.dismissed == 1
