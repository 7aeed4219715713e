"""The joint replay: as timed with reserved shares in symmetric cases, never later, bytes conserved, links respected."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import Plan
from solver.verify.case import Case
from solver.verify.joint_replay import joint_replay
from tests.build_costs import CROSSED, INSIDE, MIXED, Forgery, Routes
from tests.build_plan import TRUTH, build_plan
from tests.build_request import build_request, cluster, link
from tests.sensitivity.forge import put

ONE_ROUTE: Routes = (("across", ("east", "west"), 4),)


def narrow(capacity_bytes_per_s: float):
    """East and west joined by one link."""
    links = [link("east-west", "east", "west", capacity_bytes_per_s=capacity_bytes_per_s)]
    return build_request(cluster=cluster() | {"links": links})


def stated_ends(plan: Plan) -> dict[str, float]:
    return {one.route: max(end for rank in one.schedule.ranks for end in rank.end_s) for one in plan.timelines}


@pytest.mark.parametrize("routes", [INSIDE, CROSSED, MIXED, ONE_ROUTE])
def test_it_agrees_with_reserved_shares_where_the_cards_set_the_pace(routes):
    request = build_request()
    plan = build_plan(request, routes=routes)
    found = joint_replay(request, plan)
    assert found.iteration_s == pytest.approx(plan.metrics.iteration_s, rel=1e-9)
    assert found.route_end_s == pytest.approx(stated_ends(plan), rel=1e-9)


def test_one_route_that_fills_its_link_keeps_its_reserved_share():
    """All four replicas send at once, each a quarter of 5e10 B/s: the margin of 1.25 is all that sharing gains."""
    request = narrow(5e10)
    plan = build_plan(request, routes=ONE_ROUTE, forgery=Forgery(hop_transfer=0.8))
    found = joint_replay(request, plan)
    assert found.route_end_s == pytest.approx(stated_ends(plan), rel=1e-9)
    assert max(edge.peak_utilisation for edge in found.edges) == pytest.approx(1.0)


def test_two_routes_on_one_link_by_hand():
    """One forward message per replica; both routes send together, then each gradient comes back alone or together.

    Message size S on a link of C, one replica per route and all stage times equal: each activation travels at C/2, so
    both arrive after 2 S/C + latency, and with the stated 1/4 share it would have been 4 S/C.
    """
    capacity = 1e9
    request = narrow(capacity)
    routes: Routes = (("a", ("east", "west"), 2), ("b", ("east", "west"), 2))
    plan = build_plan(request, routes=routes, forgery=Forgery(num_sharers=8, scheduled_microbatches=1))
    problem = plan.timelines[0].problem
    first, last = problem.stages
    size = Case(request, plan).network.boundary_bytes(Case(request, plan).network.boundaries[0])
    work_s = first.forward_s + first.input_grad_s + first.weight_grad_s + last.forward_s + last.input_grad_s
    by_hand_s = work_s + 2 * (4 * size / capacity + problem.hops[0].latency_s)
    found = joint_replay(request, plan)
    assert found.route_end_s == pytest.approx({"a": by_hand_s, "b": by_hand_s}, rel=1e-9)
    assert min(stated_ends(plan).values()) > by_hand_s


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_sharing_never_ends_later_than_reserving(data):
    """One to three routes over one link, any split of the four replicas, any capacity, either order of operations."""
    splits = [(4,), (1, 3), (2, 2), (1, 1, 2)]
    counts = data.draw(st.sampled_from(splits))
    ways = [("east", "west"), ("west", "east"), ("east", "east")]
    routes = tuple((f"r{index}", data.draw(st.sampled_from(ways)), count) for index, count in enumerate(counts))
    request = narrow(data.draw(st.floats(1e9, 4e11)))
    forgery = Forgery(
        hop_transfer=data.draw(st.sampled_from([0.8, 1.0, 3.0])),
        num_sharers=8,
        all_forward_first=data.draw(st.booleans()),
    )
    plan = build_plan(request, routes=routes, forgery=forgery)
    found = joint_replay(request, plan)
    assert found.iteration_s <= plan.metrics.iteration_s * (1 + 1e-9)
    stated = stated_ends(plan)
    assert all(end <= stated[route] * (1 + 1e-9) for route, end in found.route_end_s.items())
    assert all(edge.peak_utilisation <= 1 + 1e-9 for edge in found.edges)
    crossing = sum(count for _, places, count in routes if places[0] != places[1])
    sent = sum(edge.message_bytes for edge in found.edges)
    size = next(Case(request, plan).network.boundary_bytes(one) for one in Case(request, plan).network.boundaries)
    assert sent == pytest.approx(2 * crossing * plan.configuration.num_microbatches * size, rel=1e-9)


def test_a_message_that_waits_for_itself_is_an_error():
    request, plan = build_request(), build_plan(build_request(), forgery=TRUTH)
    reversed_order = put(plan, "timelines.0.schedule.ranks.0.operations", lambda old: old[::-1])
    with pytest.raises(ValueError, match="never ends"):
        joint_replay(request, reversed_order)
