"""Regression: flows of the joint replay end by their own finish time, so rounding cannot stall its loop."""

from __future__ import annotations

import pytest

from solver.verify.case import Case
from solver.verify.joint_replay import joint_replay
from tests.build_costs import Forgery, Routes
from tests.build_plan import build_plan
from tests.build_request import build_request, cluster, link

THERE, BACK = ("east", "west"), ("west", "east")
FOUR: Routes = (("a", THERE, 1), ("b", THERE, 1), ("c", THERE, 1), ("d", BACK, 1))
MICROBATCHES = 1000


@pytest.mark.parametrize("capacity_bytes_per_s", [1.1e9, 3.6e9])
def test_four_routes_of_a_thousand_microbatches_end(capacity_bytes_per_s):
    """Three routes one way and one the other meet out of step on a narrow link, so flows end at uneven instants.

    A loop that waits until rate * elapsed time has eaten every byte stalls here: late in the iteration the time that
    the last bytes need is below the last bit of the clock.
    """
    links = [link("east-west", "east", "west", capacity_bytes_per_s=capacity_bytes_per_s)]
    request = build_request(cluster=cluster() | {"links": links})
    plan = build_plan(
        request, routes=FOUR, forgery=Forgery(scheduled_microbatches=MICROBATCHES, num_sharers=8, hop_transfer=0.8)
    )
    found = joint_replay(request, plan)
    stated = {one.route: max(end for rank in one.schedule.ranks for end in rank.end_s) for one in plan.timelines}
    assert found.route_end_s.keys() == stated.keys()
    assert all(end < stated[route] for route, end in found.route_end_s.items())
    case = Case(request, plan)
    size = case.network.boundary_bytes(case.network.boundaries[0])
    assert sum(edge.message_bytes for edge in found.edges) == pytest.approx(2 * 4 * MICROBATCHES * size, rel=1e-9)
