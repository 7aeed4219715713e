"""Corrupt a valid plan in every way that its limits know: the judge must object by name, and each rule must matter.

The plan is made by hand and slower than possible, so that its figures follow from no stated transport: rules that
derive them are tested on plans of the planner, in `test_corruptions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import pytest

from models.plan import Plan
from models.request import PlanRequest
from models.verdict import Verdict
from solver.verify.case import Rule
from solver.verify.judge import LIMITS, judge
from tests.build_plan import build_plan
from tests.build_request import build_request
from tests.sensitivity.forge import Corruption, put
from tests.sensitivity.how import HOW
from tests.sensitivity.when import WHEN
from tests.sensitivity.where import WHERE

CORRUPTIONS: tuple[Corruption, ...] = WHERE + WHEN + HOW


# An iteration faster than light breaks every rule on times: this one would notice errors of the physics they share.
OF_PHYSICS = {"speed-of-light"}  # convicted in test_real_plan.py
OF_CHUNKS = {"exchange-turns"}  # tests/unit/solver/evaluation/test_exchanges_on_cards.py: plans here have one per rank


def objections(request: PlanRequest, plan: Plan, rules: Mapping[str, Rule] = LIMITS) -> dict[str, str]:
    """Rules that object, each with one finding."""
    return {one.rule: f"{one.where}: {one.detail}" for one in judge(request, plan, rules=rules).violations}


def without(dropped: AbstractSet[str]) -> dict[str, Rule]:
    """A judge that has forgotten some rules."""
    return {name: rule for name, rule in LIMITS.items() if name not in dropped}


def test_the_valid_plan_is_accepted():
    verdict = judge(build_request(), build_plan(build_request()), rules=LIMITS)
    assert verdict.violations == ()
    assert verdict.accepted
    assert verdict.rules_checked == tuple(LIMITS)


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda one: one.name)
def test_a_corrupted_plan_is_convicted_by_name(corruption):
    """By exactly the rules it breaks; and without these it passes, so that each objection is that rule's own work."""
    assert judge(*corruption.valid(), rules=LIMITS).accepted
    broken = corruption.broken()
    found = objections(*broken)
    assert found.keys() == corruption.rules, found
    assert judge(*broken, rules=without(corruption.rules)).accepted


def test_every_rule_convicts_somebody_alone():
    alone = {name for one in CORRUPTIONS if len(one.rules) == 1 for name in one.rules}
    backed = {name for one in CORRUPTIONS for name in one.rules} - alone
    assert set(LIMITS) == alone | backed | OF_CHUNKS | OF_PHYSICS
    implied = {"pool-capacity": "a rank map within the free GPUs"}
    assert backed == implied.keys(), "these follow from others, and are kept for their plain message"


def test_a_plan_too_broken_to_read_is_convicted_not_a_crash():
    request, plan = build_request(), build_plan(build_request())
    for broken in (
        put(plan, "stack_profile", "no such profile"),
        put(plan, "timelines.0.schedule.ranks.0.operations", ("nonsense",)),
        put(plan, "placement.routes.0.pools", ()),
        put(plan, "placement.rank_map", ()),
        put(plan, "metrics.iteration_s", 0.0),
        put(plan, "configuration.degrees.pp", 7),
        put(plan, "timelines.0.schedule.ranks", ()),
        put(plan, "link_loads.0.usable_bytes_per_s", 0.0),
    ):
        assert not judge(request, broken).accepted


def test_the_judge_names_the_numbers():
    found = objections(*next(one for one in CORRUPTIONS if one.name == "over capacity").broken())
    assert found["pool-capacity"] == "pool east-pool: 12 GPUs used, 10 free"


def test_the_verdict_inside_the_plan_is_not_believed():
    request, plan = build_request(), build_plan(build_request())
    boastful = put(plan, "verdict", Verdict(accepted=True, rules_checked=()))
    assert not judge(request, put(boastful, "metrics.num_gpus", 1)).accepted
