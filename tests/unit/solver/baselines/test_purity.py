"""What a baseline fixes in advance stays fixed, whatever the cluster offers and whatever would be faster."""

from __future__ import annotations

import pytest

from solver.baselines.run import Effort, Tried, try_policies
from solver.context import Context
from solver.frontier import Frontier
from solver.objective import Goal
from solver.space.enumerate import enumerate_space
from tests.build_job import context_of, job

ALLOWED = {"tp": [4], "cp": [1], "pp": [4], "micro_batch_sequences": [1], "recompute": ["none"]}


def tried_on(hosts: tuple[int, ...]) -> tuple[Context, list[Tried]]:
    context = context_of(job(hosts=hosts, batch=48, allowed=ALLOWED))
    frontier = Frontier(context, enumerate_space(context.request), Goal.of(context))
    frontier.load(float("inf"), planned=False)
    effort = Effort(lambda: 0.0, lambda: False, deadline=float("inf"), ends_s=float("inf"))
    return context, try_policies(context, frontier.taken(), frontier.guess, effort)


@pytest.mark.parametrize("hosts", [(4, 2), (3, 3), (5, 3, 2)])
def test_what_a_policy_keeps_in_one_building_stays_there(hosts: tuple[int, ...]) -> None:
    context, tried = tried_on(hosts)
    building = {pool.id: context.topology.enclosing(pool.place, "building") for pool in context.pools}
    for one in tried:
        if one.best is None:
            assert one.reason
            continue
        routes = [[building[context.pools[pool].id] for pool in route.pools] for route in one.best.candidate.routes]
        kept = routes if one.policy.exchanges else list(zip(*routes, strict=True))
        assert all(len(set(together)) == 1 for together in kept), one.policy.name
    assert any(one.best is not None for one in tried)
