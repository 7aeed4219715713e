"""A fixed slice of the campaign, and proofs that the generator is broad and that the laws convict."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from models.cluster import GpuType, Link, Place, Pool, Uplink
from models.outcome import Planned
from models.question_parts import Limits
from models.request import AllowedDegrees, Constraints, Objective, Options, PlanRequest
from models.workload import Architecture, LayerProfile, MixtureOfExperts, Optimizer, Workload
from solver.questions.ask import ask
from tests.laws import changes, laws, questions, relations
from tests.laws.campaign import RAISES, Campaign
from tests.laws.dice import Dice
from tests.laws.requests import random_request
from tests.laws.shrink import shrunk
from tests.laws.trial import Trial, is_valid

SEED = 14
NUM_REQUESTS = 16  # about a minute on one core; campaigns take thousands
NUM_GENERATED = 400
SILENT = {"source", "board_power_w"}  # no plan depends on them
SAID = (
    *(PlanRequest, Workload, Architecture, MixtureOfExperts, Optimizer, LayerProfile, Place, Uplink, Pool, GpuType),
    *(Link, Constraints, AllowedDegrees, Objective, Options),
)
HOSTS_OF_ONE_BUILDING: dict[str, Any] = {
    "workload": {"architecture": "llama-3.1-8b", "sequence_length": 4096, "global_batch_sequences": 64},
    "cluster": {
        "name": "c",
        "places": [{"id": "b0", "level": "building"}],
        "pools": [{"id": "p0", "place": "b0", "gpu": "H100-SXM-80G", "num_hosts": 2, "nic_bytes_per_s": 5e10}],
    },
    "options": {"time_limit_s": 2.0, "reproducible": True, "workers": 1},
}


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    """Random requests."""
    return [random_request(f"{SEED}/{number}") for number in range(NUM_GENERATED)]


@pytest.mark.parametrize(
    "number", [*range(6), *(pytest.param(one, marks=pytest.mark.slow) for one in range(6, NUM_REQUESTS))]
)
def test_no_law_is_broken(number: int) -> None:
    found = Campaign(SEED, shrink_s=0.0, timed=False).run(number)
    assert not found, "\n".join(f"{one.law}: {one.what}: {one.detail}" for one in found)


@pytest.mark.parametrize("number", [*range(5), *(pytest.param(one, marks=pytest.mark.slow) for one in range(5, 40))])
def test_answers_to_questions_are_consistent(number: int) -> None:
    found = Campaign(SEED, shrink_s=0.0).run(number, questions.answers_are_consistent.__name__)
    assert not found, "\n".join(f"{one.what}: {one.detail}" for one in found)


def test_an_answer_whose_bound_is_above_its_plan_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(HOSTS_OF_ONE_BUILDING, "1/1")

    def wrong(question: Any, **_: Any) -> Any:
        answer = ask(question.model_copy(update={"options": Limits(time_limit_s=1.0)}))
        points = tuple(one.model_copy(update={"lower_bound": 1e9}) for one in answer.frontiers[0].points)
        frontiers = (answer.frontiers[0].model_copy(update={"points": points}),)
        return answer.model_copy(update={"frontiers": frontiers, "outcome": "infeasible"})

    monkeypatch.setattr(questions, "PARTS", {"frontier": questions.PARTS["frontier"]})
    monkeypatch.setattr(questions, "ask", wrong)
    found = {one.what for one in questions.answers_are_consistent(trial)}
    assert found == {"frontier: infeasible, the planner says planned", "frontier: frontiers.points: bound"}


def test_every_generated_request_is_valid(documents: list[dict[str, Any]]) -> None:
    assert all(map(is_valid, documents))


def test_a_seed_is_a_request() -> None:
    assert random_request("3/5") == random_request("3/5") != random_request("3/6")


def test_the_generator_says_everything_that_a_request_can_say(documents: list[dict[str, Any]]) -> None:
    said = Counter[tuple[type, str]]()
    for document in documents:
        _count(PlanRequest.model_validate(document), said)
    wanted = {(model, name) for model in SAID for name in model.model_fields if name not in SILENT}
    assert sorted(f"{model.__name__}.{name}" for model, name in wanted - set(said)) == []


def _count(value: Any, said: Counter[tuple[type, str]]) -> None:
    """Fields that were set in a value and in all that it holds."""
    if isinstance(value, BaseModel):
        for name in value.model_fields_set:
            said[type(value), name] += 1
            _count(getattr(value, name), said)
    elif isinstance(value, tuple | list):
        for one in value:
            _count(one, said)


def test_the_generator_reaches_what_broke_before(documents: list[dict[str, Any]]) -> None:
    requests = [PlanRequest.model_validate(one) for one in documents]
    places = [[pool.place for pool in one.cluster.pools] for one in requests]
    reached = {
        "two pools in a place": sum(len(set(one)) < len(one) for one in places),
        "two types in a cluster": sum(len({pool.gpu.name for pool in one.cluster.pools}) > 1 for one in requests),
        "two technologies": sum(len({link.technology for link in one.cluster.links}) > 1 for one in requests),
        "failed planes": sum(any(link.num_failed_planes for link in one.cluster.links) for one in requests),
        "measured layers": sum(bool(one.workload.layer_profiles) for one in requests),
        "an own stack": sum(not isinstance(one.options.stack_profile, str) for one in requests),
        "experts": sum(one.workload.architecture.moe is not None for one in requests),
        "a target": sum(one.objective.target_iteration_s is not None for one in requests),
        "pins": sum(bool(one.constraints.pins) for one in requests),
    }
    assert {name: count for name, count in reached.items() if count < NUM_GENERATED // 50} == {}


def test_a_false_bound_is_convicted_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "light_bound_s", lambda _: 1e9)
    law = laws.no_bound_is_above_an_evaluation_of_its_configuration
    number = next(n for n in range(NUM_GENERATED) if Trial(random_request(f"{SEED}/{n}"), f"{SEED}/{n}").drawn)
    ours = Campaign(SEED, shrink_s=3.0)
    found = ours.run(number, law.__name__)
    assert [(one.law, one.what) for one in found] == [(law.__name__, "speed of light")]
    assert len(str(found[0].document)) < len(str(random_request(f"{SEED}/{number}")))
    assert ours.counts["findings"] == 1


def test_what_is_raised_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("tests.laws.trial.plan", broken)
    found = Campaign(SEED, shrink_s=0.0, timed=False).run(0)
    assert {one.law for one in found} == {RAISES}


def test_shrinking_keeps_what_fails_and_drops_the_rest() -> None:
    document = random_request("1/1")
    least = shrunk(document, lambda one: is_valid(one) and len(one["cluster"]["pools"]) >= 1, goes_on=lambda: True)
    assert len(least["cluster"]["pools"]) == len(least["cluster"]["places"]) == 1
    assert "constraints" not in least


def test_what_only_adds_does_not_ask_that_all_of_it_be_used() -> None:
    document = {**random_request("1/1"), "constraints": {"use_all_gpus": True, "forbidden_places": []}}
    adding = (changes.another_pool, changes.another_building, changes.another_host, changes.nothing_forbidden)
    for change in adding:
        other = change(Dice("1/1"), document)
        assert other is not None
        assert "use_all_gpus" not in other["constraints"]


def test_a_plan_that_depends_on_the_order_of_lists_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(HOSTS_OF_ONE_BUILDING, "1/1")
    assert list(relations.the_order_of_lists_changes_no_plan(trial)) == []
    monkeypatch.setattr(changes, "another_order", lambda _, document: {**document, "constraints": {"max_gpus": 8}})
    found = [one.detail for one in relations.the_order_of_lists_changes_no_plan(trial)]
    assert len(found) == 1
    assert "configuration, placement" in found[0]


def test_a_plan_far_above_its_share_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two equal pools do three quarters of the work in no less than 3/8 of the time; a third is too fast."""
    trial = Trial(HOSTS_OF_ONE_BUILDING, "1/1")
    assert isinstance(trial.outcome, Planned)
    assert list(relations.a_pool_adds_at_most_its_share(trial)) == []
    metrics = trial.outcome.plan.metrics
    fast = metrics.model_copy(update={"iteration_s": metrics.iteration_s / 3.0})
    plan = trial.outcome.plan.model_copy(update={"metrics": fast})
    monkeypatch.setattr(trial, "outcome_of", lambda _: trial.outcome.model_copy(update={"plan": plan}))
    assert [one.what for one in relations.a_pool_adds_at_most_its_share(trial)] == ["more than its share"]


def test_only_gpus_that_may_be_used_have_a_share() -> None:
    pools = PlanRequest.model_validate(HOSTS_OF_ONE_BUILDING).cluster.pools
    peak = pools[0].gpu.bf16_flops_per_s
    assert relations.usable_flops_per_s(pools, "bf16", None) == 16 * peak
    assert relations.usable_flops_per_s(pools, "bf16", 4) == 4 * peak
