"""Forge any field of any plan of the planner: the judge convicts, or said beforehand that it does not judge that field.

`ISTHMUS_SEED=N` draws other places and other forgeries. The counts are printed (`pytest -s`).
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from random import Random
from typing import Any

import pytest

from models.plan import Plan
from models.request import PlanRequest
from solver.verify.judge import DERIVATIONS, judge
from tests.sensitivity.corruptions import Corruption, corruptions
from tests.sensitivity.forge import put, puts
from tests.sensitivity.plans import REQUESTS, plan_called, request_called

SEED = int(os.environ.get("ISTHMUS_SEED", "0"))
FAST = 25  # corruptions of each plan in the normal run
SLOW = {"places_per_kind": 3, "ways_per_place": 4}
MOST_WAYS = 99  # to forge one value: all that there are, so that no draw decides which rule has a case of its own


def is_named(pointer: str, plan: Plan) -> bool:
    """Whether the verdict of the plan names the field, or something around it, as unjudged."""
    return any(pointer == one.pointer or pointer.startswith(f"{one.pointer}/") for one in plan.verdict.unjudged)


def check(name: str, forged: list[Corruption]) -> None:
    """Every corruption is refused by the vocabulary, convicted, or on a field that the verdict names."""
    request, plan = request_called(name), plan_called(name)
    counts: Counter[str] = Counter()
    unnoticed = []
    for one in forged:
        if one.plan is None:
            counts["refused"] += 1
        elif not judge(request, one.plan).accepted:
            counts["convicted"] += 1
        elif is_named(one.pointer, plan):
            counts["named as unjudged"] += 1
        else:
            unnoticed.append(f"{one.pointer} {one.how}")
    print(f"{name}: {len(forged)} corruptions with seed {SEED}, {dict(counts)}")  # noqa: T201
    assert unnoticed == []


@pytest.mark.parametrize("name", REQUESTS)
def test_a_forged_field_is_convicted_or_named(name: str) -> None:
    every = list(corruptions(plan_called(name), Random(SEED), places_per_kind=1, ways_per_place=1))
    check(name, Random(SEED + 1).sample(every, FAST))


@pytest.mark.slow
@pytest.mark.parametrize("name", REQUESTS)
def test_every_kind_of_field_is_convicted_or_named(name: str) -> None:
    check(name, list(corruptions(plan_called(name), Random(SEED), **SLOW)))


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_not_judged_is_little_and_has_a_reason(name: str) -> None:
    request, plan = request_called(name), plan_called(name)
    assert judge(request, plan).violations == ()
    named = [one.pointer for one in plan.verdict.unjudged]
    in_slots = sum(one.route is not None for one in plan.message_transports)
    assert len(set(named)) == len(named) <= 11 + len(plan.transport) + 2 * len(plan.timelines) + 2 * in_slots + 3
    assert all(one.reason for one in plan.verdict.unjudged)


def objections(name: str, request: PlanRequest | None = None, **changes: Any) -> set[str]:
    """Rules that object to a plan with replacements."""
    forged = puts(plan_called(name), **changes)
    return {one.rule for one in judge(request or request_called(name), forged).violations}


def linked(name: str, **changes: Any) -> PlanRequest:
    """The request with links of another kind."""
    document = request_called(name).model_dump(mode="json")
    for link in document["cluster"]["links"]:
        link.update(changes)
    return PlanRequest.model_validate(document)


LOST = {"loss_probability": 0.3}
MANY_PLANES = {"planes": 4096, "load_balancing": ["ecmp"]}


@pytest.mark.parametrize(("name", "rule"), [("pipelines across", "hop-times"), ("replicas across", "exchange-times")])
@pytest.mark.parametrize("links", [LOST, MANY_PLANES], ids=["loss", "planes"])
def test_loss_and_collisions_cost_what_the_stated_transport_makes_of_them(name, rule, links):
    assert rule in objections(name, linked(name, **links))


def test_the_policy_of_sharing_links_is_read_from_the_plan():
    assert "exchange-end" in objections("replicas across", transport_policy__num_exchange_chunks=2)


@pytest.mark.parametrize(("name", "value"), [("num_exchange_chunks", 1024), ("exchange_share", 0.1)])
def test_a_policy_that_no_bound_covers_is_convicted(name, value):
    """More chunks hide more of an exchange than the bound of exchanges over several places allows."""
    plan = plan_called("pipelines across")
    changed = puts(plan, **{f"transport_policy__{name}": value})
    found = judge(request_called("pipelines across"), changed).violations
    assert [(one.rule, one.where) for one in found] == [("transport-policy", "transport_policy")]
    assert name in found[0].detail


def _moved(seconds: float) -> dict[str, Any]:
    return {"time__bubble_s": lambda old: old - seconds, "time__pipeline_s": lambda old: old + seconds}


def _bound(plan: Plan, bound_s: float) -> dict[str, Any]:
    gap = 1.0 - bound_s / plan.metrics.iteration_s
    return {"proof__lower_bound_s": bound_s, "proof__relative_gap": gap, "proof__status": "feasible"}


def _rerouted(plan: Plan) -> dict[str, Any]:
    """A tenth of a percent of the bytes left out wherever they count."""

    def less(old: float) -> float:
        return 0.999 * old

    changes: dict[str, Any] = {"metrics__cross_building_bytes": less}
    for index, load in enumerate(plan.link_loads):
        for flow, _ in enumerate(load.flows):
            changes[f"link_loads__{index}__flows__{flow}__bytes_per_iteration"] = less
        changes[f"link_loads__{index}__mean_utilisation"] = less
    return changes


REPLICAS = "replicas across"
LIES = {
    "work hidden in another cause": ("breakdown-idle", "pipelines across", lambda _: _moved(0.01)),
    "a bound of nothing": ("proof-light", REPLICAS, lambda plan: _bound(plan, 0.0)),
    "a bound below the speed of light": (
        "proof-light",
        REPLICAS,
        lambda plan: _bound(plan, 0.99 * plan.proof.speed_of_light_s),
    ),
    "one building that would not help": (
        "near-stated",
        "fewest GPUs",
        lambda plan: {"one_building_s": 0.99 * plan.metrics.iteration_s},
    ),
    "a fold of one chunk": (
        "family-plain",
        "fewest GPUs",
        lambda _: {"configuration__family": "loop", "timelines__0__problem__layout": "loop"},
    ),
    "exchanges on other links": (
        "ring-bytes",
        REPLICAS,
        _rerouted,
    ),
    "a price of exchanges that delay nothing": (
        "exchange-price",
        REPLICAS,
        lambda _: {"link_loads__0__price_s_per_gb": 1.0, "link_loads__0__flows__0__price_s_per_gb": 1.0},
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_that_agrees_with_itself_is_convicted(lie):
    rule, name, changes = LIES[lie]
    found = objections(name, **changes(plan_called(name)))
    assert rule in found
    assert found <= {rule} | {"exchange-bytes", "pipeline-bytes", "load-facts", "runnable-by"}, (
        "next to nobody else sees it"
    )


@pytest.mark.slow
def test_every_derivation_convicts_somebody_alone():
    alone: defaultdict[str, set[str]] = defaultdict(set)
    for name in ("replicas across", "in turns", "lossy planes", "GPUs of two types"):
        request = request_called(name)
        for one in corruptions(plan_called(name), Random(5), places_per_kind=1, ways_per_place=MOST_WAYS):
            rules = set() if one.plan is None else {found.rule for found in judge(request, one.plan).violations}
            if len(rules) == 1:
                alone[rules.pop()].add(one.pointer)
    lied = {rule for rule, _, _ in LIES.values()}
    assert DERIVATIONS.keys() - alone.keys() <= lied


def test_a_claim_of_optimality_is_named_with_what_the_judge_confirms():
    plan = plan_called(REPLICAS)
    boast = {"proof__lower_bound_s": plan.metrics.iteration_s, "proof__relative_gap": 0.0, "proof__status": "optimal"}
    verdict = judge(request_called(REPLICAS), puts(plan, **boast))
    named = next(one for one in verdict.unjudged if one.pointer == "/proof/lower_bound_s")
    assert f"confirms {plan.proof.speed_of_light_s:.6g} s" in named.reason


def test_contexts_of_weight_gradients_are_judged_where_backwards_are_fused():
    name = "fused backwards"
    assert plan_called(name).timelines[0].problem.backward == "fused"
    larger = {"timelines__0__problem__stages__0__weight_grad_context_bytes": lambda old: 1.05 * old}
    assert objections(name, **larger) == {"stage-bytes"}


@pytest.mark.parametrize(("field", "value"), [("reliability", "selective_repeat"), ("num_queue_pairs", 2)])
def test_what_no_figure_of_a_time_slot_follows_from_is_named(field, value):
    name = "lossy planes"
    number = next(index for index, one in enumerate(plan_called(name).message_transports) if one.route is not None)
    assert objections(name, **{f"message_transports__{number}__connection__{field}": value}) == set()
    assert is_named(f"/message_transports/{number}/connection/{field}", plan_called(name))


def test_more_queue_pairs_than_a_choice_needs_are_convicted():
    """Also where they change no figure of it, as inside a place where nothing collides and its window is enough."""
    name = "GPUs of two types"
    assert any(one.tier == "building" for one in plan_called(name).transport)
    for number, choice in enumerate(plan_called(name).transport):
        more = {f"transport__{number}__num_queue_pairs": 2 * choice.num_queue_pairs}
        assert "transport-times" in objections(name, **more), choice


def test_an_exchange_stated_twice_for_one_stage_and_never_for_another_is_convicted():
    assert "exchange-complete" in objections("messages beside gradients", exchanges__3__stage=0)


def test_a_baseline_faster_than_the_plan_is_convicted():
    plan = plan_called(REPLICAS)
    first = next(index for index, one in enumerate(plan.baselines) if one.iteration_s is not None)
    faster = put(plan, f"baselines.{first}.iteration_s", 0.9 * plan.metrics.iteration_s)
    faster = put(faster, f"baselines.{first}.speed_up", 0.9)
    assert {one.rule for one in judge(request_called(REPLICAS), faster).violations} == {"rivals-possible"}
