"""Limits are kept on a machine of any speed: the clock here goes on with the work that is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import solver.search.frontier
from models.outcome import Outcome, Planned
from solver.baselines.policies import POLICIES
from solver.configurations.enumerate import enumerate_space
from solver.cost.columns import FSDP
from solver.objective import Goal
from solver.planner import plan
from solver.search.comparison import Comparison
from solver.search.frontier import Frontier
from solver.search.hooks import Hooks
from solver.search.incumbent import Incumbent
from solver.search.params import DEFAULTS, SearchParams
from solver.search.phases import Phases
from solver.search.pricing import Pricing
from tests.build_job import context_of, job


class SlowMachine:
    """A clock that goes on by so many seconds per configuration that is priced, and a little with every look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, row_s: float) -> None:
        self.now_s, self.portions = 0.0, list[int]()
        priced = solver.search.frontier.lower_bounds

        def slow(context: Any, space: Any) -> Any:
            self.now_s += row_s * len(space)
            self.portions.append(len(space))
            return priced(context, space)

        monkeypatch.setattr(solver.search.frontier, "lower_bounds", slow)

    def __call__(self) -> float:
        self.now_s += 0.005
        return self.now_s


def hooks(clock: Callable[[], float]) -> Hooks:
    return Hooks(lambda _: None, lambda _: None, lambda: False, clock, 0.0)


@pytest.mark.parametrize(("limit_s", "row_s"), [(1.0, 1e-4), (2.0, 1e-3), (4.0, 5e-4)])
def test_pricing_never_overruns_and_the_first_plan_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, limit_s: float, row_s: float
) -> None:
    machine = SlowMachine(monkeypatch, row_s=row_s)
    found: list[float] = []
    outcome: Outcome = plan(
        job(allowed={}, options={"time_limit_s": limit_s}),
        clock=machine,
        incumbent=lambda _: found.append(machine.now_s),
    )
    assert isinstance(outcome, Planned)
    assert machine.now_s <= limit_s + 0.3
    assert found[0] <= 0.8


def test_the_pace_so_far_says_how_many_configurations_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SlowMachine(monkeypatch, row_s=1e-3)
    context = context_of(job(allowed={}))
    frontier = Frontier(context, enumerate_space(context.request), Goal.of(context))
    pricing = Pricing(frontier, Phases(hooks(machine), 100.0))
    first = pricing.load(float("inf"), planned=True, until_s=100.0)
    assert 0 < first <= DEFAULTS.first_portion, "two ways of choosing may choose the same"
    assert pricing.portion(100.0) == pytest.approx(2.0 / 1e-3, rel=0.05), "2 % of the limit"
    assert pricing.portion(machine.now_s + 1.0) == pytest.approx(1.0 / 1e-3, rel=0.05), "what is left"
    assert pricing.portion(machine.now_s + 0.01) == 0
    assert pricing.portion(machine.now_s - 1.0) == 0


def test_of_a_baseline_without_a_plan_it_says_what_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SlowMachine(monkeypatch, row_s=1e-3)
    context = context_of(job(allowed={"sharding": ["ddp", "fsdp"]}))
    frontier = Frontier(context, enumerate_space(context.request), Goal.of(context))
    comparison = Comparison(frontier, Incumbent(context, frontier.goal))
    fsdp, zero1 = POLICIES[0], next(one for one in POLICIES if one.name == "atlas-like")
    assert "the request allows no configuration" in comparison.why_untried(zero1)
    assert "ended before it knew a configuration" in comparison.why_untried(fsdp)
    comparison.price(Pricing(frontier, Phases(hooks(machine), 100.0)), 100.0, lambda: False)
    assert (frontier.space.columns.sharding[frontier.rows] == FSDP).any()
    assert comparison.why_untried(fsdp) == "the search ended before its turn"


def test_a_baseline_that_fits_nowhere_is_said_not_to_fit() -> None:
    context = context_of(job(allowed={"sharding": ["zero1"]}, workload={"architecture": "llama-3.1-405b"}))
    frontier = Frontier(context, enumerate_space(context.request), Goal.of(context))
    while frontier.load(float("inf"), planned=True):
        pass
    comparison = Comparison(frontier, Incumbent(context, frontier.goal))
    assert "fits into memory" in comparison.why_untried(POLICIES[0])


def test_plans_are_judged_for_a_part_of_the_time_and_at_once_near_the_end() -> None:
    now_s = 0.0
    phases = Phases(hooks(lambda: now_s), 100.0)
    assert phases.plan_is_due(), "none was judged yet"
    now_s = 3.0
    phases.judged(began_s=1.0)
    assert not phases.plan_is_due()
    now_s = 3.0 + 2.0 / DEFAULTS.judge_share - 1e-6
    assert not phases.plan_is_due()
    now_s += 1e-3
    assert phases.plan_is_due()
    now_s = phases.ends_s - 5.0
    phases.judged(began_s=now_s - 2.0)
    assert not phases.plan_is_due()
    now_s = phases.last_plan_s - 2.0
    assert phases.plan_is_due(), "there may be no time for it later"
    now_s = phases.last_plan_s
    assert phases.plan_fits()


def test_evaluations_have_their_share_whatever_pricing_and_refining_take() -> None:
    request = job(
        hosts=(8, 8, 4),
        batch=256,
        allowed={},
        link={"latency_s": 1e-2},
        options={"time_limit_s": 6.0, "reproducible": True},
    )
    found = [plan(request, clock=lambda: 0.0, params=SearchParams(evaluate_share=share)) for share in (0.0, 0.9)]
    few, many = (one.plan.proof.num_explored for one in found if isinstance(one, Planned))
    assert many > few
