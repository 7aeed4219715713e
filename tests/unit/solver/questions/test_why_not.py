"""Why there is no plan: all minimal conflicts that trying every subset finds, and ways out that lead to a plan."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import pytest

from models.catalogue import entry_names, named_entry
from models.cluster import Cluster
from models.outcome import Infeasible, Planned
from models.questions import WhyNot, WhyNotAnswer
from models.request import PlanRequest
from solver.lint import lint
from solver.network.topology import build_topology
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.searches import changed
from solver.questions.wishes import Group, hardware_of, wishes_of
from tests.build_request import build_request

PIN = {"first_pipeline_rank": 0, "last_pipeline_rank": 0}
CASES: dict[str, dict[str, Any]] = {
    "pins and degrees": {
        "constraints": {
            "pins": [{**PIN, "place": "east"}, {**PIN, "place": "west"}],
            "allowed": {"tp": [3], "dp": [5]},
            "memory_headroom_fraction": 0.0,
        }
    },
    "places": {"constraints": {"forbidden_places": ["east", "west", "north"], "max_gpus": 8}},
    "too few": {"constraints": {"allowed": {"tp": [4], "pp": [4]}, "max_gpus": 8, "forbidden_places": ["north"]}},
    "a target": {
        "objective": {"kind": "fewest_gpus", "target_iteration_s": 0.1},
        "constraints": {"max_gpus": 8, "memory_headroom_fraction": 0.0},
    },
}


def _asked(case: str) -> tuple[PlanRequest, WhyNotAnswer]:
    request = build_request(**CASES[case], options={"time_limit_s": 10.0, "workers": 1})
    return request, ask(WhyNot.model_validate({"request": request, "options": {"time_limit_s": 300.0}}))


def _has_plan(request: PlanRequest) -> bool:
    found: list[Planned] = []
    outcome = plan(request, incumbent=found.append, cancelled=lambda: bool(found))
    assert found or isinstance(outcome, Infeasible), "small enough to be decided"
    return bool(found)


def _without(request: PlanRequest, groups: tuple[Group, ...]) -> PlanRequest:
    return changed(request, [change for group in groups for change in group.changes])


@pytest.mark.parametrize("case", ["pins and degrees", "places", "too few"])
def test_the_conflicts_are_those_that_all_subsets_show(case: str) -> None:
    request, answer = _asked(case)
    groups = wishes_of(request)
    subsets = chain.from_iterable(combinations(groups, size) for size in range(len(groups) + 1))
    bad = []
    for kept in subsets:
        names = frozenset(group.name for group in kept)
        if any(one <= names for one in bad):
            continue
        if not _has_plan(_without(request, tuple(group for group in groups if group.name not in names))):
            bad.append(names)
    assert {frozenset(one.wishes) for one in answer.conflicts} == set(bad)
    assert answer.complete
    assert all(one.minimal and one.reasons for one in answer.conflicts)


@pytest.mark.parametrize("case", CASES)
def test_every_way_out_leads_to_a_plan(case: str) -> None:
    request, answer = _asked(case)
    assert answer.outcome == "infeasible"
    assert answer.relaxations
    for relaxation in answer.relaxations:
        assert _has_plan(changed(request, relaxation.changes)), relaxation.text
    hit = [{one.replace("/", ".")[1:] for one in (change.pointer for change in relaxation.changes)}
           for relaxation in answer.relaxations if relaxation.kind == "wish"]  # fmt: skip
    for conflict in answer.conflicts:
        assert all(names & set(conflict.wishes) for names in hit), "a way out meets every conflict"


def test_a_target_names_the_physics_and_the_least_that_will_do() -> None:
    _, answer = _asked("a target")
    (target,) = [one for one in answer.relaxations if "target_iteration_s" in one.text]
    reached_s = float(target.text.rsplit(" ", 1)[1])
    assert target.plan.iteration_s <= reached_s * (1.0 + 1e-6)
    refused_s = float(target.least_proven.rsplit(" ", 1)[1])
    assert 0.1 < refused_s < reached_s
    assert any("speed of the GPUs" in one.physics for one in answer.conflicts)


def test_a_request_with_a_plan_is_answered_with_it() -> None:
    answer = ask(WhyNot.model_validate({"request": build_request(), "options": {"time_limit_s": 60.0}}))
    assert (answer.outcome, answer.conflicts, answer.relaxations) == ("planned", (), ())
    assert answer.plan is not None


def test_what_the_hardware_alone_forbids_is_no_wish() -> None:
    request = build_request(constraints={"memory_headroom_fraction": 0.0})
    document = request.model_dump(mode="json")
    for pool in document["cluster"]["pools"]:
        pool["gpu"]["memory_bytes"] = 1e9
    asked = WhyNot.model_validate({"request": document, "options": {"time_limit_s": 120.0}})
    answer = ask(asked)
    assert [one.wishes for one in answer.conflicts] == [()]
    assert "memory of the GPUs" in answer.conflicts[0].physics
    bought = [one for one in answer.relaxations if one.kind == "hardware"]
    assert bought
    assert all(one.kind == "hardware" for one in answer.relaxations)
    assert _has_plan(changed(asked.request, bought[0].changes))


def test_missing_links_are_what_is_in_the_way_and_are_offered() -> None:
    names = ("east", "west", "north")
    places = [{"id": "campus", "level": "region"},
              *({"id": name, "level": "building", "parent": "campus"} for name in names)]  # fmt: skip
    document = build_request().model_dump(mode="json")
    document["cluster"] |= {"places": places, "links": []}
    asked = WhyNot.model_validate({"request": document, "options": {"time_limit_s": 60.0}})
    assert [one.code for one in lint(asked.asked)] == ["links-missing"]
    answer = ask(asked)
    assert [(one.wishes, one.physics) for one in answer.conflicts] == [((), ("links between the buildings",))]
    separate, links, *_ = answer.relaxations
    assert (separate.kind, separate.changes[0].pointer, separate.plan.crossing) == ("wish", "/cluster/fabric", "none")
    assert (links.kind, len(links.changes)) == ("hardware", 2)
    for way in answer.relaxations:
        assert _has_plan(changed(asked.asked, way.changes)), way.text


def test_hardware_without_limits_brings_no_uplink_and_takes_none() -> None:
    """A stated uplink of full bisection would be the default; the default with a delay of its own would be stated."""
    cluster = Cluster.model_validate({
        "name": "campus", "fabric": "separate",
        "places": [
            {"id": "campus", "level": "region"},
            {"id": "narrow", "level": "building", "parent": "campus", "uplink": {"oversubscription": 4.0}},
            {"id": "unstated", "level": "building", "parent": "campus"},
            {"id": "zone", "level": "zone", "parent": "unstated"},
        ],
        "pools": [{"id": name, "place": name, "gpu": "H100-SXM-80G", "num_hosts": 1, "nic_bytes_per_s": 5e10}
                  for name in ("narrow", "zone")],
    })  # fmt: skip
    request = build_request().model_copy(update={"cluster": cluster})
    ids = {edge.id for edge in build_topology(cluster).edges}
    assert ids == {"uplink:narrow", "uplink:zone"}
    for group in hardware_of(request):
        better = changed(request, group.changes)
        assert {edge.id for edge in build_topology(better.cluster).edges} == ids, group.name


def test_a_question_that_is_stopped_keeps_what_it_has() -> None:
    request = build_request(**CASES["pins and degrees"])
    heard: list[WhyNotAnswer] = []
    answer = ask(WhyNot.model_validate({"request": request}), found=heard.append, cancelled=lambda: len(heard) > 2)
    assert answer.outcome == "infeasible"
    assert not answer.complete or answer.conflicts


@pytest.mark.parametrize("name", entry_names("examples"))
def test_hardware_is_raised_as_far_as_a_request_may_state(name: str) -> None:
    request = PlanRequest.model_validate(named_entry("examples", name))
    for group in hardware_of(request):
        assert changed(request, group.changes) != request, group.name
