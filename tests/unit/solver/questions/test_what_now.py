"""Replans: no placement of no configuration contradicts their proof, and what can stay stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import pytest

from models.errors import InvalidRequest
from models.outcome import Planned
from models.plan import Configuration, Plan
from models.request import PlanRequest
from models.what_now import WhatIfLost, WhatNow, WhatNowAnswer
from solver.clock import Clock
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import within_framework
from solver.context import Context, stack_for
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.scheduling import Schedulers
from solver.network.topology import build_topology
from solver.placement.capacity_groups import groups_of
from solver.placement.fill import PooledRoute
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.losses import changes_of
from solver.questions.replanning import ReplanCase, ReplanSearch, timed_only
from solver.questions.searches import RunHooks, SearchRuns, changed, with_profile
from solver.questions.standing import Standing, standing_of
from solver.verify.judge import judge
from tests.build_request import build_request, cluster, link, pool, workload
from tests.counted import work_clock
from tests.laws import changes
from tests.laws.dice import Dice
from tests.laws.requests import random_request
from tests.unit.solver.questions.paused import paused_clock

CLOSE = 1e-9
FEW = {"tp": [4], "pp": [2], "vpp": [1], "micro_batch_sequences": [1], "sharding": ["zero1"], "recompute": ["none"]}


def _request(allowed: dict[str, Any] | None = None, **parts: Any) -> PlanRequest:
    return with_profile(build_request(
        constraints={"allowed": FEW if allowed is None else allowed},
        options={"time_limit_s": 2.0, "workers": 1, "relative_gap": 0.0}, **parts))  # fmt: skip


def _planned(request: PlanRequest) -> Plan:
    outcome = plan(request, clock=work_clock())
    assert isinstance(outcome, Planned)
    return outcome.plan


def _asked(
    request: PlanRequest,
    before: Plan | None,
    limit_s: float = 6.0,
    clock: Clock | None = None,
    **parts: Any,
) -> WhatNowAnswer:
    parts |= {"request": request, "plan": before, "options": {"time_limit_s": limit_s}}
    return ask(WhatNow.model_validate(parts), clock=clock or work_clock())


def _every_placement(context: Context, configuration: Configuration) -> Iterator[Candidate]:
    """All ways of putting replicas on pools, by brute force."""
    degrees, pools = configuration.degrees, range(len(context.pools))
    room = [groups_of(pool, degrees.tp, degrees.cp) for pool in context.pools]
    for ways in combinations_with_replacement(product(pools, repeat=degrees.pp), degrees.dp):
        used = Counter[int]()
        routes = []
        for way in ways:
            first = []
            for pool_index in way:
                first.append(used[pool_index])
                used[pool_index] += 1
            routes.append(PooledRoute(way, 1, tuple(first)))
        if all(used[one] <= room[one] for one in pools):
            yield Candidate(configuration, tuple(routes))


def _moved(candidate: Candidate, standing: Standing) -> int:
    ranks = standing.ranks_retained(candidate.configuration)
    there = Counter((rank, way) for route in candidate.routes for rank, way in enumerate(route.pools))
    return sum(max(0, number - standing.count(ranks[rank], pool)) for (rank, pool), number in there.items())


@pytest.mark.parametrize("lost", ["east", "west", "east-node-1", "north-pool", "east-west"])
def test_no_placement_of_no_configuration_contradicts_the_proof(lost: str) -> None:
    request = _request({**FEW, "pp": [1, 2], "tp": [4, 8]})
    before = _planned(request)
    answer = _asked(request, before, lost=[lost])
    after = changed(request, changes_of(request, [lost]))
    context = Context.of(after)
    standing = standing_of(before, Context.of(request), context)
    quick = Schedulers(context, lambda: 0.0, lambda: False).quick
    space = enumerate_space(after)
    everything = [
        (_moved(candidate, standing), found.iteration_s)
        for row in range(len(space))
        for candidate in _every_placement(context, configuration_of(context, space, row))
        if (found := evaluate(context, candidate, quick)) is not None
    ]
    assert everything
    assert answer.points
    for point in answer.points:
        assert point.least_moved <= point.num_moved
        assert not [one for one in everything if one[0] < point.least_moved and one[1] <= point.iteration_s]
        assert not [one for one in everything if one[0] <= point.num_moved
                    and one[1] < point.lower_bound_s * (1 - CLOSE)]  # fmt: skip
    within_s = min(time_s for _, time_s in everything) * (1 + answer.time_tolerance)
    fewest = min(moved for moved, time_s in everything if time_s <= within_s)
    assert answer.chosen is not None
    assert answer.points[answer.chosen].num_moved <= fewest


@pytest.mark.parametrize("lost", ["north", "west-pool", "east-west"])
def test_what_bounds_the_world_before_a_loss_bounds_what_is_left(lost: str) -> None:
    """In half a second, on a clock that counts readings: of one GPU type a loss leaves nothing that was not there."""
    request = _request()
    before = _planned(request)
    answer = _asked(request, before, limit_s=0.5, clock=paused_clock(0, 0.0), lost=[lost])
    assert answer.points
    assert answer.lower_bound_s >= before.proof.lower_bound_s * (1.0 - CLOSE)


def test_a_plan_of_another_request_brings_no_bound() -> None:
    before = _planned(_request(workload=workload(batch=32)))
    request = _request()
    answer = _asked(request, before, limit_s=0.5, lost=["north"])
    best = _planned(changed(request, changes_of(request, ["north"])))
    assert answer.lower_bound_s <= best.metrics.iteration_s


def _three_equal() -> dict[str, Any]:
    named = cluster()
    return named | {"pools": [pool(name, 2) for name in ("east", "west", "north")]}


def _whole(request: PlanRequest) -> PlanRequest:
    """The same with each pipeline inside a building."""
    kept = request.constraints.model_copy(update={"pipeline_may_cross_buildings": False})
    return request.model_copy(update={"constraints": kept})


@pytest.mark.parametrize("lost", ["east", "west", "north"])
def test_losing_one_of_three_equal_buildings_moves_nothing(lost: str) -> None:
    parts = {"cluster": _three_equal(), "workload": workload(batch=48)}
    before = _planned(_whole(_request({**FEW, "dp": [6]}, **parts)))
    request = _whole(_request({**FEW, "dp": [2, 4, 6]}, **parts))
    answer = _asked(request, before, lost=[lost])
    assert answer.chosen is not None
    chosen = answer.points[answer.chosen]
    assert (chosen.num_moved, chosen.num_untouched_replicas, chosen.plan.configuration.degrees.dp) == (0, 4, 4)
    assert answer.plan is not None
    after = changed(request, changes_of(request, [lost]))
    assert judge(after, answer.plan).accepted
    assert _gpus(answer.plan) <= _gpus(before), "groups that stay stay on their GPUs, not only in their pool"


def _gpus(one: Plan) -> set[tuple[str, int, int]]:
    """Pool, GPU and pipeline rank of every GPU in use."""
    return {
        (ranks.pool, ranks.first_gpu + offset, ranks.pipeline_rank)
        for ranks in one.placement.rank_map
        for offset in range(ranks.num_ranks)
    }


@pytest.mark.parametrize("fabric", ["linked", "one", "separate"])
def test_no_lost_link_leaves_a_path_that_was_not_there(fabric: str) -> None:
    named = cluster() | {"fabric": fabric}
    links = [one["id"] for one in named["links"]]
    request = _request(cluster=named)
    before = build_topology(request.cluster)
    for count in range(1, len(links) + 1):
        for lost in combinations(links, count):
            after = build_topology(changed(request, changes_of(request, lost)).cluster)
            assert {(one.id, one.reverse) for one in after.edges} <= {(one.id, one.reverse) for one in before.edges}


def test_groups_on_a_lost_host_move_and_only_they() -> None:
    request = _request(cluster=cluster() | {"pools": [pool("east", 2), pool("west", 2), pool("north", 1)]},
                       workload=workload(batch=16))  # fmt: skip
    before = _planned(request.model_copy(update={"constraints": request.constraints.model_copy(
        update={"max_gpus": 32})}))  # fmt: skip
    used = next(one for one in before.placement.rank_map if one.hosts)
    answer = _asked(request, before, lost=[used.hosts[0]], time_tolerance=0.0)
    assert answer.num_groups_lost == 2, "a host of eight GPUs holds two groups of four"
    assert min(point.num_moved for point in answer.points) == 0 or answer.points[0].num_moved == 2
    for point in answer.points:
        if point.plan.configuration.degrees.dp == before.configuration.degrees.dp:
            assert point.num_moved == 2
            assert point.state_bytes > 0


def test_state_of_which_no_copy_is_left_comes_from_a_checkpoint() -> None:
    """zero1 over replicas in two buildings: with one building half of the optimizer state is gone."""
    parts = {
        "cluster": cluster()
        | {"pools": [pool("east", 1), pool("west", 1)], "links": [link("east-west", "east", "west")]},
        "workload": workload(batch=4),
    }
    request = _request({**FEW, "pp": [1]}, **parts)
    before = _planned(_request({**FEW, "pp": [1], "dp": [4]}, **parts))
    assert {place for route in before.placement.routes for place in route.places} == {"east", "west"}
    assert before.configuration.num_state_copies == 1
    answer = _asked(request, before, lost=["west"])
    assert answer.chosen is not None
    chosen = answer.points[answer.chosen]
    assert chosen.num_moved == 0
    assert chosen.checkpoint_bytes == pytest.approx(chosen.state_bytes)
    states = before.memory[0].optimizer_bytes * before.configuration.degrees.num_gpus
    assert chosen.checkpoint_bytes == pytest.approx(states / 2, rel=1e-6)


def test_every_loss_of_a_plan_has_a_prepared_answer() -> None:
    request = _request()
    before = _planned(request)
    question = WhatIfLost.model_validate({"request": request, "plan": before, "options": {"time_limit_s": 12.0}})
    answer = ask(question, clock=work_clock())
    named = {(one.kind, one.name) for one in answer.losses}
    used = {place for route in before.placement.routes for place in route.places}
    assert {("building", place) for place in used} <= named
    assert all(one.answer is not None and one.answer.lost == (one.name,) for one in answer.losses)
    assert answer.complete


@pytest.mark.parametrize("reading", [4, 10, 52, 114])
def test_a_pause_as_long_as_the_part_of_a_loss_costs_it_no_answer(reading: int) -> None:
    """A computer that does other things for a second, at some reading of the clock: most of the time is left."""
    parts = {"cluster": _three_equal(), "workload": workload(batch=48)}
    before = _planned(_request({**FEW, "dp": [6]}, **parts))
    request = _request({**FEW, "pp": [1, 2], "dp": [4, 6, 8]}, **parts)
    question = WhatIfLost.model_validate({"request": request, "plan": before, "options": {"time_limit_s": 5.0}})
    assert ask(question, clock=paused_clock(reading, 1.0)).complete


def test_what_was_found_for_one_loss_serves_another() -> None:
    parts = {"cluster": _three_equal(), "workload": workload(batch=48)}
    before = _planned(_request({**FEW, "dp": [6]}, **parts))
    request = timed_only(_request({**FEW, "pp": [1, 2], "dp": [4, 8]}, **parts))
    of_before = ReplanCase(before, Context.of(request))

    def search_after(lost: str) -> ReplanSearch:
        after = changed(request, changes_of(request, [lost]))
        question = WhatNow.model_validate({"request": request, "lost": [lost], "options": {"time_limit_s": 5.0}})
        hooks = RunHooks.of(question, lambda: False, work_clock())
        return ReplanSearch(of_before, SearchRuns(after, hooks), hooks.stopped)

    found = search_after("east").search(2.0, first=False)
    assert found is not None
    other = search_after("west")
    carried = other.carry_over(found.plan, lambda: False)
    assert carried is not None
    assert carried.plan.configuration == found.plan.configuration
    assert carried.iteration_s <= found.iteration_s * (1 + CLOSE)
    assert judge(other.request, carried.plan).accepted


def test_an_answer_with_neither_plan_nor_proof_is_not_complete() -> None:
    request = _request()
    answer = _asked(request, _planned(request), limit_s=0.1, lost=["west"])
    assert (answer.outcome, answer.complete) == ("not_found", False)


@pytest.mark.parametrize(("lost", "where"), [(["nowhere"], "/lost/0"), (["east", "east-west-1"], "/lost/1")])
def test_a_loss_of_nothing_known_is_refused(lost: list[str], where: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        _asked(_request(), None, lost=lost)
    assert raised.value.pointer == where


def test_a_plan_of_another_cluster_is_refused() -> None:
    before = _planned(_request())
    other = _request(cluster=cluster() | {"pools": [pool("east", 2, id="elsewhere")]})
    with pytest.raises(InvalidRequest, match="not one of this request"):
        _asked(other, before, lost=["east"])


def test_a_world_without_room_says_why() -> None:
    request = _request(cluster=cluster() | {"pools": [pool("east", 1)], "links": []}, workload=workload(batch=4))
    answer = _asked(request, None, lost=["east"])
    assert (answer.outcome, answer.chosen, answer.points) == ("infeasible", None, ())
    assert answer.reasons


def test_a_replan_that_is_stopped_keeps_what_it_has() -> None:
    request = _request()
    before = _planned(request)
    heard: list[WhatNowAnswer] = []
    question = WhatNow.model_validate({"request": request, "plan": before, "lost": ["west"]})
    answer = ask(question, found=heard.append, cancelled=lambda: any(one.points for one in heard))
    assert answer.points
    assert not answer.complete


@pytest.mark.parametrize("seed", [0, 2, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, *range(3, 80)))])
def test_replans_of_random_fleets_are_what_they_say(seed: int) -> None:
    """Mixed types, uneven pools, several pools in a place: what is said to stay stays, and no proof is contradicted."""
    dice, document = Dice(f"replan/{seed}"), changes.with_fixed_stack(random_request(f"replan/{seed}"))
    document["objective"] = {"kind": "iteration_time"}
    request = with_profile(PlanRequest.model_validate(document))
    outcome = plan(request, clock=lambda: 0.0)
    if not isinstance(outcome, Planned):
        return
    used = sorted({pool for route in outcome.plan.placement.routes for pool in route.pools})
    lost = dice.pick(used)
    answer = _asked(request, outcome.plan, limit_s=2.0, lost=[lost])
    after = changed(request, changes_of(request, [lost]))
    contexts = [Context(within_framework(one), stack_for(one)) for one in (request, after)]
    standing = standing_of(outcome.plan, *contexts)
    assert answer.num_groups_lost == standing.num_lost
    for point in answer.points:
        assert point.least_moved <= point.num_moved <= point.num_groups
        assert point.lower_bound_s <= point.iteration_s
        index = {pool.id: number for number, pool in enumerate(contexts[1].pools)}
        ranks, there = standing.ranks_retained(point.plan.configuration), Counter[tuple[int, int]]()
        for route in point.plan.routes:
            for rank, pool_id in enumerate(route.pools):
                there[rank, index[pool_id]] += route.num_replicas
        fewest = sum(max(0, number - standing.count(ranks[rank], pool)) for (rank, pool), number in there.items())
        assert point.num_moved >= fewest, "no more groups stay in a pool than stood there"
    if answer.plan is not None:
        assert judge(after, answer.plan).violations == ()
