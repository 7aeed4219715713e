"""Pipelines over two groups, held against every assignment of their ranks to the groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from models.request import PlanRequest
from solver.arrays import FloatArray
from solver.bounds import relaxation
from solver.bounds.crossing_pipelines import (
    CrossingPipelines,
    PipelineCrossing,
    crossing_bound_s,
    ways_to_cross,
)
from solver.bounds.gradient_exchange import ExchangeLink, SplitRanks
from solver.bounds.least_hops import MessageDelays
from solver.context import Context
from solver.cost.columns import columns_of_all
from solver.pipeline.bounds import SharedLinks, shared_links_bound
from solver.pipeline.portfolio import candidates
from solver.pipeline.simulate import replay_shape
from tests.build_job import FIXED, context_of, job
from tests.property.test_bounds import last_of_stages
from tests.unit.solver.bounds.test_relaxation import FAR, frontier_of

CROSSING_S, PLAIN_S = 0.02, 0.015
LAYOUTS = [("one_way", 1, 4), ("one_way", 1, 5), ("v", 2, 4), ("loop", 2, 4), ("loop", 3, 4), ("loop", 2, 6)]


def pipelines_of(
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    vpp: int,
    pp: int,
    gpus: tuple[str, str] = ("H100-SXM-80G", "H100-SXM-80G"),
) -> CrossingPipelines:
    """What the refined bound of an even configuration asks of two far buildings with these GPU types."""
    seen: list[CrossingPipelines] = []

    def noted(pipelines: CrossingPipelines, bound_s: float, high_s: float) -> float:
        seen.append(pipelines)
        return crossing_bound_s(pipelines, bound_s, high_s)

    monkeypatch.setattr(relaxation, "crossing_bound_s", noted)
    far = {"latency_s": 5e-3, "capacity_bytes_per_s": 1e12}
    allowed = {**FIXED, "pp": [pp], "dp": [2], "vpp": [vpp]}
    request = job(hosts=(3, 3), batch=16, allowed=allowed, link=far).model_dump()
    for pool, gpu in zip(request["cluster"]["pools"], gpus, strict=True):
        pool["gpu"] = gpu
    context = context_of(PlanRequest.model_validate(request))
    frontier = frontier_of(context)
    every = [frontier.configuration(index) for index in range(len(frontier.rows))]
    one = next(one for one in every if one.family == family and one.layer_split == "even")
    relaxation.refined_bound_s(context, [one], FAR)
    return seen[-1]


def assignments(pp: int, most: tuple[int, int]) -> Iterator[tuple[int, ...]]:
    """Every way to put the ranks into two groups that hold so many, both used."""
    for group_r in itertools.product((0, 1), repeat=pp):
        if 0 < sum(group_r) <= most[1] and 0 < pp - sum(group_r) <= most[0]:
            yield group_r


@pytest.mark.parametrize("room", [(1, 1, 1), (2, 1, 0), (0, 2, 2), (1, 0, 3), (0, 1, 0)])
def test_the_slowest_replica_is_where_others_leave_it_room(
    room: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way to put two replicas into three places, of which two have a slower GPU type."""
    pipelines = pipelines_of(monkeypatch, "one_way", 1, 4)
    pool = pipelines.context.pools[0]
    other = pool.model_copy(update={"gpu": pool.gpu.model_copy(update={"name": "slow"})})
    context, bound_of = SimpleNamespace(pools=(pool, other, other)), {pool.gpu.name: 1.0, "slow": 2.0}
    asked = replace(pipelines, context=cast(Context, context), on_types_s=lambda names: bound_of[min(names)])
    ways = [way for way in itertools.product(range(3), repeat=2) if all(way.count(g) <= room[g] for g in range(3))]
    slowest = [max(1.0 if group == 0 else 2.0 for group in way) for way in ways]
    assert asked.inside_s((0, 1, 2), np.array(room)) == min(slowest, default=float("inf"))


@pytest.mark.parametrize("gpus", [("B200-SXM", "A100-SXM-40G"), ("A100-SXM-40G", "B200-SXM")])
def test_replicas_inside_places_run_on_the_types_there(gpus: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two buildings, each with one type, with room for one replica each or for both in the faster one."""
    pipelines = pipelines_of(monkeypatch, "one_way", 1, 4, gpus)
    bound_of = {gpu: pipelines.on_types_s(frozenset({gpu})) for gpu in gpus}
    assert bound_of["A100-SXM-40G"] > 1.5 * bound_of["B200-SXM"] >= pipelines.relaxed.bound_s()
    assert pipelines.inside_s((0, 1), np.array([1, 1])) == bound_of["A100-SXM-40G"]
    only_fast = np.array([2 if pool.gpu.name == "B200-SXM" else 0 for pool in pipelines.context.pools])
    assert pipelines.inside_s((0, 1), only_fast) == bound_of["B200-SXM"]


@pytest.mark.parametrize(("family", "vpp", "pp"), LAYOUTS)
@pytest.mark.parametrize("all_s", [0.0, 0.005, 0.1])
def test_no_assignment_to_two_groups_is_below_the_bound(
    monkeypatch: pytest.MonkeyPatch, family: str, vpp: int, pp: int, all_s: float
) -> None:
    pipelines = pipelines_of(monkeypatch, family, vpp, pp)
    one, relaxed = pipelines.configurations[0], pipelines.relaxed
    assert relaxed.shape is not None
    delays, found = MessageDelays.along(one, relaxed.hop_s, CROSSING_S), []
    for most in ((pp, pp), (pp - 1, 1), (pp - pp // 2, pp // 2)):
        crossing = PipelineCrossing(CROSSING_S, delays, PLAIN_S, PLAIN_S / 2.0, all_s, most_ranks=most)
        bound_s = pipelines.crossing_s(crossing, float("inf"))
        least_s = min(with_crossings(pipelines, way, all_s) for way in assignments(pp, most))
        assert bound_s <= least_s * (1.0 + 1e-9)
        found.append((bound_s, least_s))
    assert found[0][0] == pytest.approx(found[0][1])  # any assignment: the bound is that of the best one
    assert found[0][0] <= min(bound_s for bound_s, _ in found[1:])


def with_crossings(pipelines: CrossingPipelines, group_r: tuple[int, ...], all_s: float) -> float:
    """The relaxation with every rank in its group, hop by hop; the messages of all replicas take `all_s`."""
    one, relaxed = pipelines.configurations[0], pipelines.relaxed
    assert relaxed.shape is not None
    ranks, links = one.rank_of_stages, np.full((2, one.degrees.num_stages), -1)
    lossy_s, plain_s = np.zeros((2, len(ranks)))
    for stage, (here, there) in enumerate(itertools.pairwise(ranks)):
        if here != there:
            across = group_r[here] != group_r[there]
            lossy_s[stage], plain_s[stage] = (CROSSING_S, PLAIN_S) if across else (relaxed.hop_s, relaxed.hop_s)
            links[:, stage] = (group_r[here], group_r[there]) if across else (-1, -1)
    lengths, after_s = np.full(len(ranks), all_s), np.full(len(ranks), PLAIN_S / 2.0)
    shared = SharedLinks(links[0], links[1], lengths, lengths, after_s)
    last_s = shared_links_bound(replace(relaxed.shape, latency_s=plain_s), shared) + relaxed.update_s
    return max(relaxed.bound_s(replace(relaxed.shape, latency_s=lossy_s)), last_s if all_s else 0.0)


def test_a_rank_that_spans_groups_exchanges_over_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower the links, the later the end of whichever rank has replicas on both sides."""
    found = []
    pipelines = pipelines_of(monkeypatch, "loop", 2, 4)
    columns = columns_of_all(pipelines.configurations)
    for rate in (1e15, 1e10, 1e9):
        one_rank = SplitRanks(np.ones_like(columns.pp), link_of(len(columns), rate))
        found.append(pipelines.spanning_s(one_rank, float("inf")))
    assert found[0] <= found[1] < found[2]
    relaxed_s = pipelines.relaxed.bound_s()
    assert found[0] == pytest.approx(relaxed_s, rel=0.05)


def link_of(num_rows: int, rate: float) -> ExchangeLink:
    """Between two places, with nothing to wait for; the cards are as fast as the links."""
    none, rates = np.zeros(num_rows), np.full(num_rows, rate)
    return ExchangeLink(none, none, rates, rates, rates, none, np.full(num_rows, 2))


@pytest.mark.parametrize(("family", "vpp", "pp"), LAYOUTS)
@pytest.mark.parametrize(("most", "messages_s"), [(1, 0.0), (2, 0.0), (2, 0.3), (3, 0.05), (6, 0.0), (6, 0.2)])
def test_ranks_that_span_groups_share_the_links_with_messages(
    monkeypatch: pytest.MonkeyPatch, family: str, vpp: int, pp: int, most: int, messages_s: float
) -> None:
    """Whichever ranks they are, in whichever schedule: their exchanges follow each other on what messages leave."""
    number = min(most, pp)
    pipelines = pipelines_of(monkeypatch, family, vpp, pp)
    relaxed, shape = pipelines.relaxed, pipelines.relaxed.shape
    assert shape is not None
    columns, link = columns_of_all(pipelines.configurations), link_of(1, 1e10)
    spanning = SplitRanks(np.array([number]), link, np.array([messages_s]))
    bound_s = pipelines.spanning_s(spanning, 0.0)
    sent = link.sent_bytes(pipelines.parameters, pipelines.expert_parameters, columns, pipelines.context.job)
    least_s = float("inf")
    for schedule in candidates(shape, "makespan"):
        last_s = last_of_stages(shape, replay_shape(shape, schedule.order))
        ready_s = np.maximum(last_s - relaxed.overlap_s, 0.0)
        for ranks in itertools.combinations(range(pp), number):
            own = np.isin(shape.rank_of_s, ranks)
            least_s = min(least_s, end_beside_messages(ready_s[own], sent.min(axis=0)[own] / 1e10, messages_s))
    assert bound_s - relaxed.update_s <= least_s * (1.0 + 1e-9)
    if number in (1, pp) and vpp == 1:
        assert bound_s > (0.5 if number == 1 else 0.9) * least_s


@pytest.mark.parametrize(("family", "vpp", "pp"), LAYOUTS)
@pytest.mark.parametrize("cards_s", [1e-3, 1e-2, 1e-1])
def test_exchanges_of_a_rank_follow_each_other_on_its_cards(
    monkeypatch: pytest.MonkeyPatch, family: str, vpp: int, pp: int, cards_s: float
) -> None:
    """In whichever schedule, each after its own gradients."""
    relaxed = pipelines_of(monkeypatch, family, vpp, pp).relaxed
    assert relaxed.shape is not None
    lengths_s = cards_s * np.random.default_rng(7).uniform(0.5, 2.0, size=pp * vpp)
    least_s, shape = float("inf"), relaxed.shape
    for schedule in candidates(shape, "makespan"):
        ready_s = np.maximum(last_of_stages(shape, replay_shape(shape, schedule.order)) - relaxed.overlap_s, 0.0)
        of_ranks = (shape.rank_of_s == rank for rank in range(pp))
        least_s = min(least_s, max(end_beside_messages(ready_s[own], lengths_s[own], 0.0) for own in of_ranks))
    bound_s = replace(relaxed, cards_s=lengths_s).on_cards_s(lambda: 0.0)
    assert 0.7 * least_s < bound_s - relaxed.update_s <= least_s * (1.0 + 1e-9)


def end_beside_messages(ready_s: FloatArray, lengths_s: FloatArray, messages_s: float) -> float:
    """End of jobs of one machine, of which messages keep so many seconds over the whole time, evenly."""
    low_s, high_s = messages_s, 2.0 * (messages_s + float(ready_s.max() + lengths_s.sum()))
    for _ in range(60):
        end_s = (low_s + high_s) / 2.0
        now_s = 0.0
        for at in np.argsort(ready_s):
            now_s = max(now_s, float(ready_s[at])) + float(lengths_s[at]) / (1.0 - messages_s / end_s)
        low_s, high_s = (low_s, end_s) if now_s <= end_s else (end_s, high_s)
    return high_s


def test_ways_to_cross_are_boundaries_of_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = pipelines_of(monkeypatch, "loop", 2, 4).configurations[0]
    assert list(ways_to_cross(loop)) == list(itertools.combinations(range(4), 2))
