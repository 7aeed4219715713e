"""Rings of several ranks split over paths together: no placement loses by it, some gain, and the judge follows them."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

from models.outcome import Planned
from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation import evaluate as evaluation
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.scheduling import portfolio_timing
from solver.placement.fill import PooledRoute
from solver.planner import plan
from solver.transport.exchange import ExchangeCost
from solver.verify.judge import judge
from tests.build_job import FIXED
from tests.unit.solver.transport.meshes import MeshLink, meshed

TOGETHER = evaluation.rings_together
OVER_BUILDINGS = {**FIXED, "pp": [2], "dp": [32]}  # every rank needs two buildings


def mesh(random: np.random.Generator | None = None, **how: object) -> PlanRequest:
    """Four buildings with a link between any two: equal ones, or some wider than others."""
    factors = np.ones(6) if random is None else random.uniform(0.5, 2.0, size=6)
    pairs = itertools.combinations(range(4), 2)
    links: list[MeshLink] = [
        (f"{one}-{other}", f"b{one}", f"b{other}", 2e10 * float(factor), 1e-4)
        for (one, other), factor in zip(pairs, factors, strict=True)
    ]
    return meshed(4, tuple(links), allowed=OVER_BUILDINGS, **how)


def evaluated(context: Context, routes: tuple[tuple[str, str], ...]) -> evaluation.Evaluation:
    """Half of the replicas on each route over buildings."""
    pool_of = {pool.place: number for number, pool in enumerate(context.pools)}
    configuration = configuration_of(context, enumerate_space(context.request), 0)
    half = configuration.degrees.dp // 2
    pooled = tuple(PooledRoute((pool_of[one], pool_of[other]), half, (0, 0)) for one, other in routes)
    scheduler = partial(portfolio_timing, names=("greedy",))
    found = evaluation.evaluate(context, Candidate(configuration, pooled), scheduler)
    assert found is not None
    return found


def test_no_placement_on_random_meshes_takes_longer_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    random, sooner = np.random.default_rng(4), 0
    for _ in range(6):
        context, order = Context.of(mesh(random)), random.permutation(4)
        routes = tuple((f"b{order[at]}", f"b{order[at + 2]}") for at in range(2))
        times_s = []
        for together in (TOGETHER, lambda *_: None):
            monkeypatch.setattr(evaluation, "rings_together", together)
            times_s.append(evaluated(context, routes).iteration_s)
        assert times_s[0] <= times_s[1] * (1.0 + 1e-9)
        sooner += times_s[0] < 0.99 * times_s[1]
    assert sooner > 2


def test_the_judge_follows_rings_that_were_split_together(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[ExchangeCost, ...]]()

    def together(context: Context, costs: tuple[ExchangeCost, ...], reserved: dict[int, float]) -> object:
        asked.append(costs)
        return TOGETHER(context, costs, reserved)

    monkeypatch.setattr(evaluation, "rings_together", together)
    request = mesh(constraints={"use_all_gpus": True}, options={"time_limit_s": 4.0, "reproducible": True})
    outcome = plan(request)
    assert isinstance(outcome, Planned)
    assert asked
    verdict = judge(request, outcome.plan)
    assert verdict.accepted, verdict.violations
