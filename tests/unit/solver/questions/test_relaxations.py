"""A way out says in words just what its changes do."""

from __future__ import annotations

import pytest

from models.outcome import NotFound, Outcome, Planned
from models.request import PlanRequest
from solver.questions.relaxations import Relaxations
from solver.questions.searches import changed
from tests.build_request import build_request, cluster, pool
from tests.unit.app.fake_solver import tiny_plan


@pytest.mark.parametrize(
    ("least", "told"), [(32, "40 GPUs in all in place of 24"), (65, "72 GPUs in all in place of 24")]
)
def test_hosts_are_told_as_the_gpus_that_there_are_then(least: int, told: str) -> None:
    hardware = cluster() | {"pools": [pool("east", 2), pool("west", 1)], "links": []}
    base = build_request(cluster=hardware | {"fabric": "one"})

    def search(request: PlanRequest) -> Outcome:
        if request.cluster.num_free_gpus >= least:
            return Planned(plan=tiny_plan(1.0), elapsed_s=0.0)
        return NotFound(lower_bound_s=0.0, detail="too few", elapsed_s=0.0)

    (hosts,) = Relaxations(base, search, lambda: False).of_hardware()
    assert hosts.text == f"hosts: {told}"
    assert changed(base, hosts.changes).cluster.num_free_gpus == int(told.split()[0])
