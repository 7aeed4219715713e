"""Chunks of a rank whose exchanges thin cards pace: one after another, known to the schedule and held by the judge."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from models.statements import CARDS_LINK
from solver.planner import plan
from solver.verify.judge import judge
from tests.build_job import ARCHITECTURE

DOCUMENT: dict[str, Any] = {
    "workload": {
        "architecture": {**ARCHITECTURE, "num_layers": 12},
        "sequence_length": 4096,
        "global_batch_sequences": 64,
    },
    "cluster": {
        "name": "thin",
        "places": [{"id": "hall", "level": "building"}],
        "pools": [{"id": "p", "place": "hall", "gpu": "H100-SXM-80G", "num_hosts": 4, "nic_bytes_per_s": 3e8}],
    },
    "constraints": {"allowed": {"tp": [8], "pp": [2], "dp": [2], "vpp": [3], "sharding": ["zero1"]}},
    "options": {"time_limit_s": 3.0, "reproducible": True},
}


@cache
def planned() -> tuple[PlanRequest, Plan]:
    """Three chunks on each of two ranks."""
    request = PlanRequest.model_validate(DOCUMENT)
    outcome = plan(request)
    assert isinstance(outcome, Planned)
    return request, outcome.plan


def test_they_follow_each_other_on_the_cards_of_their_rank() -> None:
    _, found = planned()
    for rank in range(2):
        own = [one for one in found.exchanges if found.configuration.rank_of_stage(one.stage) == rank]
        own.sort(key=lambda one: one.start_s)
        assert len(own) == 3
        assert all(one.private_s > one.overlap_s for one in own)
        for one, following in itertools.pairwise(own):
            assert following.start_s >= one.start_s + one.private_s - 1e-9


def test_the_schedule_knows_them_and_the_judge_knows_what_it_should_know() -> None:
    request, found = planned()
    problem = found.timelines[0].problem
    assert [one.gradient_sync_link for one in problem.stages] == [f"{CARDS_LINK} {rank}" for rank in (0, 1)] * 3
    assert judge(request, found).accepted
    free = problem.model_copy(
        update={"stages": tuple(one.model_copy(update={"gradient_sync_link": None}) for one in problem.stages)}
    )
    forged = found.timelines[0].model_copy(update={"problem": free})
    verdict = judge(request, found.model_copy(update={"timelines": (forged,)}))
    assert "problem-facts" in {one.rule for one in verdict.violations}


def test_the_judge_convicts_an_exchange_that_starts_while_the_cards_are_busy() -> None:
    request, found = planned()
    ready_s = {one.stage: max(one.last_weight_grad_end_s - one.overlap_s, 0.0) for one in found.exchanges}
    last = max(found.exchanges, key=lambda one: one.start_s - ready_s[one.stage])
    earlier_s = ready_s[last.stage]
    assert earlier_s < last.start_s, "it waits for the cards"
    shift_s = last.start_s - earlier_s
    moved = last.model_copy(update={"start_s": earlier_s, "end_s": last.end_s - shift_s})
    exchanges = tuple(moved if one.stage == last.stage else one for one in found.exchanges)
    verdict = judge(request, found.model_copy(update={"exchanges": exchanges}))
    assert any(one.rule == "exchange-times" and "start_s" in one.detail for one in verdict.violations)
    assert "exchange-turns" in {one.rule for one in verdict.violations}
