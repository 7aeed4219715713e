"""A search goes on where an earlier one had ended: never worse in plan or bound, and what it claims stays true."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from models.outcome import Infeasible, NotFound, Outcome, Planned
from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.objective import Goal
from solver.planner import plan
from solver.search.frontier import Frontier
from solver.search.params import DEFAULTS, SearchParams
from solver.search.saved import SavedSearch, restored, saved_search
from solver.search.warm_start import WarmStart
from solver.verify.judge import judge
from tests.build_job import ARCHITECTURE, FIXED, job
from tests.build_request import build_request

OPEN: dict[str, Any] = {"tp": [2, 4], "cp": [1], "micro_batch_sequences": [1, 2]}
FAR = {"latency_s": 0.004, "capacity_bytes_per_s": 2e10}
EVEN = {"workload": {"architecture": {**ARCHITECTURE, "num_layers": 8}}}
Case = Callable[[float], PlanRequest]


def limited(limit_s: float) -> dict[str, Any]:
    """So much counted work: the same on every machine."""
    return {"time_limit_s": limit_s, "reproducible": True}


CASES: dict[str, Case] = {
    "near": lambda limit_s: job(batch=32, allowed=OPEN, options=limited(limit_s)),
    "far": lambda limit_s: job(batch=32, allowed=OPEN, link=FAR, options=limited(limit_s)),
    "cost": lambda limit_s: build_request(options={**limited(limit_s), "relative_gap": 0.0},
                                          objective={"kind": "cost_per_token"}),
    "few": lambda limit_s: job(batch=32, allowed=OPEN, options=limited(limit_s),
                               objective={"kind": "fewest_gpus", "target_iteration_s": 2.0}),
    "framework": lambda limit_s: job(batch=16, allowed={**FIXED, "pp": [2, 4], "dp": [4, 8]}, link=FAR,
                                     constraints={"framework": {"name": "plain", "schedules": ["one_f_one_b"]}},
                                     options=limited(limit_s)),
    "three": lambda limit_s: job(hosts=(2, 3, 2), batch=24, allowed={"tp": [2], "cp": [1]}, link=FAR,
                                 options=limited(limit_s), **EVEN),
}  # fmt: skip


def searched(request: PlanRequest, params: SearchParams = DEFAULTS) -> tuple[Planned, list[bytes]]:
    """A plan, and the states that were kept."""
    kept: list[bytes] = []
    outcome = plan(request, keep=kept.append, params=params, clock=lambda: 0.0)
    assert isinstance(outcome, Planned), outcome
    return outcome, kept


@cache
def searched_once(name: str, limit_s: float) -> tuple[Planned, list[bytes]]:
    """The plan of a case, and the states that were kept: what several tests go on from, searched once."""
    return searched(CASES[name](limit_s))


def resumed(request: PlanRequest, before: Outcome | None, state: bytes, params: SearchParams = DEFAULTS) -> Planned:
    earlier = before.plan if isinstance(before, Planned) else None
    outcome = plan(request, begin_with=WarmStart(earlier, SavedSearch.from_bytes(state)), params=params,
                   clock=lambda: 0.0)  # fmt: skip
    assert isinstance(outcome, Planned), outcome
    return outcome


def value(request: PlanRequest, found: Planned) -> float:
    metrics = found.plan.metrics
    kind = request.objective.kind
    return {"iteration_time": metrics.iteration_s, "cost_per_token": metrics.usd_per_million_tokens or 0.0,
            "fewest_gpus": float(metrics.num_gpus)}[kind]  # fmt: skip


def bound(request: PlanRequest, found: Planned) -> float:
    return value(request, found) * (1.0 - found.plan.proof.relative_gap)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("limits", [(4.0, 4.0), pytest.param((8.0, 2.5), marks=pytest.mark.slow)])
def test_going_on_is_never_worse_in_plan_or_bound(name: str, limits: tuple[float, float]) -> None:
    request, more = (CASES[name](limit_s) for limit_s in limits)
    first, kept = searched_once(name, limits[0])
    second = resumed(more, first, kept[-1])
    assert value(more, second) <= value(request, first) * (1 + 1e-12)
    assert bound(more, second) >= bound(request, first) * (1 - 1e-12)
    assert second.plan.proof.num_explored >= first.plan.proof.num_explored
    assert judge(more, second.plan).accepted
    assert second.plan.notes[0].startswith("this search goes on where an earlier one had ended")


@pytest.mark.parametrize(("long_s", "short_s"), [(6.0, 2.0), pytest.param(12.0, 3.0, marks=pytest.mark.slow)])
def test_a_bound_that_was_carried_over_is_below_every_plan(long_s: float, short_s: float) -> None:
    """Bounds of short searches, carried on three times, against the plan of a long one."""
    best, _ = searched_once("far", long_s)
    request = CASES["far"](short_s)
    found, kept = searched(request)
    for _ in range(3):
        found = resumed(request, found, kept[-1])
        assert bound(request, found) <= best.plan.metrics.iteration_s * (1 + 1e-12)


@pytest.mark.parametrize("most", [0, pytest.param(7, marks=pytest.mark.slow), 10**9])
def test_what_is_not_kept_is_priced_again(most: int) -> None:
    request = CASES["far"](4.0)
    first, kept = searched(request, replace(DEFAULTS, most_saved=most))
    assert len(SavedSearch.from_bytes(kept[-1]).rows) <= most
    second = resumed(CASES["far"](6.0), first, kept[-1])
    assert value(request, second) <= value(request, first)
    assert bound(request, second) >= bound(request, first) * (1 - 1e-12)


def test_a_search_that_was_killed_goes_on_from_what_was_kept_last() -> None:
    often = replace(DEFAULTS, least_save_s=0.1, save_share=0.0)
    request = CASES["far"](4.0)
    first, kept = searched(request, often)
    assert len(kept) >= 3
    for state in kept[:3]:
        saved = SavedSearch.from_bytes(state)
        assert saved.bound <= value(request, first) * (1 + 1e-12)
        second = resumed(request, None, state)
        assert bound(request, second) >= saved.bound * (1 - 1e-12)


def test_without_time_there_is_the_plan_of_before() -> None:
    first, kept = searched_once("far", 6.0)
    again = resumed(CASES["far"](1.6), first, kept[-1])
    assert again.plan.metrics.iteration_s <= first.plan.metrics.iteration_s
    assert again.plan.proof.relative_gap <= first.plan.proof.relative_gap + 1e-12


@pytest.mark.parametrize("name", ["near", "far"])
def test_a_plan_without_a_state_is_judged_before_anything_is_priced(name: str) -> None:
    first, _ = searched_once(name, 6.0)
    again = plan(CASES[name](1.7), begin_with=WarmStart(first.plan), clock=lambda: 0.0)
    assert isinstance(again, Planned)
    assert again.plan.metrics.iteration_s <= first.plan.metrics.iteration_s


def test_of_another_request_the_plan_alone_is_taken_over() -> None:
    first, kept = searched_once("far", 6.0)
    slower = job(batch=32, allowed=OPEN, link={**FAR, "latency_s": 0.02}, options=limited(4.0))
    found = resumed(slower, first, kept[-1])
    assert "without its bounds: they are of another request" in found.plan.notes[0]
    assert judge(slower, found.plan).accepted
    fresh, _ = searched_once("near", 6.0)
    near = resumed(CASES["near"](4.0), first, kept[-1])
    assert bound(CASES["near"](4.0), near) <= fresh.plan.metrics.iteration_s * (1 + 1e-12)


def test_a_request_that_lost_the_place_of_a_plan_does_without_it() -> None:
    first, _ = searched_once("near", 4.0)
    less = job(hosts=(4,), batch=32, allowed=OPEN, options=limited(4.0))
    outcome = plan(less, begin_with=WarmStart(first.plan), clock=lambda: 0.0)
    assert isinstance(outcome, Planned)
    assert {place for route in outcome.plan.placement.routes for place in route.places} == {"b0"}
    assert not any("earlier" in note for note in outcome.plan.notes), "nobody asked to go on"


def test_why_a_search_begins_anew_is_said() -> None:
    request = CASES["near"](4.0)
    first, _ = searched_once("near", 4.0)
    outcome = plan(request, begin_with=WarmStart(first.plan, None, "the program is another one"), clock=lambda: 0.0)
    assert isinstance(outcome, Planned)
    assert outcome.plan.notes[0].endswith("without its bounds: the program is another one")
    assert outcome.plan.metrics.iteration_s <= first.plan.metrics.iteration_s


def test_a_search_without_a_plan_goes_on_to_one() -> None:
    """Stopped before its first plan, it has priced what the next one needs not price again."""
    kept: list[bytes] = []
    request = CASES["far"](30.0)
    outcome = plan(request, keep=kept.append, cancelled=lambda: bool(kept), clock=lambda: 0.0,
                   params=replace(DEFAULTS, least_save_s=0.0, save_share=0.0))  # fmt: skip
    state = SavedSearch.from_bytes(kept[0])
    assert isinstance(outcome, NotFound | Planned)
    assert len(state.rows)
    assert resumed(CASES["far"](4.0), None, kept[0]).plan.notes[0].endswith("no plan")


def test_what_cannot_be_stays_so() -> None:
    request = job(hosts=(1,), batch=8, allowed={**FIXED, "pp": [8], "dp": [8]}, options=limited(4.0))
    kept: list[bytes] = []
    outcome = plan(request, keep=kept.append, clock=lambda: 0.0)
    assert isinstance(outcome, Infeasible)
    assert not kept


@pytest.fixture(scope="module")
def state() -> SavedSearch:
    """Of a search with all kinds of rows."""
    return SavedSearch.from_bytes(searched_once("far", 6.0)[1][-1])


def test_a_state_is_read_as_it_was_written(state: SavedSearch) -> None:
    again = SavedSearch.from_bytes(state.to_bytes())
    for name, column in vars(state).items():
        assert np.array_equal(getattr(again, name), column), name


@pytest.mark.parametrize("cut", [0, 10, 0.5, -1])
def test_a_state_that_is_cut_off_is_refused(state: SavedSearch, cut: float) -> None:
    data = state.to_bytes()
    with pytest.raises(ValueError, match="saved search"):
        SavedSearch.from_bytes(data[: int(cut * len(data)) if isinstance(cut, float) else cut])


def test_a_state_whose_parts_do_not_fit_together_is_refused(state: SavedSearch) -> None:
    broken = [replace(state, explored=np.array([len(state.rows)])), replace(state, seconds=state.seconds * np.nan),
              replace(state, priced=np.zeros_like(state.priced)), replace(state, pace_s=state.pace_s[1:])]  # fmt: skip
    for one in broken:
        with pytest.raises(ValueError, match="saved search"):
            SavedSearch.from_bytes(one.to_bytes())
    for text in (b"", b"{}", b'{"format": "isthmus-search-2"}\n', b"\xff\n"):
        with pytest.raises(ValueError, match="saved search"):
            SavedSearch.from_bytes(zlib.compress(text))


def test_every_saved_bound_is_that_of_its_configuration() -> None:
    """A frontier that is put back has the same rows with the same bounds, and the rest waits."""
    request = CASES["far"](4.0)
    context = Context.of(request)
    space, goal = enumerate_space(request), Goal.of(context)
    one, other = (Frontier(context, space, goal) for _ in range(2))
    while one.load(np.inf, planned=True, most=64) and len(one.rows) < 200:
        continue
    one.raise_bound(3, float(one.seconds[3]) * 1.5)
    one.explored, one.underway, one.refined, one.refining = {1, 2, 3}, {2}, {3, 4}, {4}
    saved = saved_search(one, 0.0)
    assert restored(saved, other)
    by_row = dict(zip(one.rows.tolist(), one.seconds.tolist(), strict=True))
    assert dict(zip(other.rows.tolist(), other.seconds.tolist(), strict=True)) == by_row
    assert sorted(other.bound) == sorted(one.bound)
    assert other.least_bound == one.least_bound
    assert sorted(other.unpriced.rows) == sorted(one.unpriced.rows)
    assert {int(other.rows[index]) for index in other.explored} == {int(one.rows[index]) for index in (1, 3)}
    assert {int(other.rows[index]) for index in other.refined} == {int(one.rows[3])}
