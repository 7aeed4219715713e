"""Requests that once broke a law: planned without an exception, and every plan accepted by the judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models.outcome import Infeasible, NotFound, Planned
from models.request import PlanRequest
from solver.planner import plan
from solver.verify.judge import judge
from tests.laws.laws import (
    Law,
    figures_are_what_a_hand_computes,
    no_bound_is_above_an_evaluation_of_its_configuration,
    the_judge_takes_every_evaluation_of_the_search,
    the_judge_takes_random_evaluations,
)
from tests.laws.trial import Trial

FOLDER = Path(__file__).parent / "found"
FOUND = sorted(FOLDER.glob("*.json"))
REJECTED = {  # evaluations that the judge rejected, by the seed that draws them
    "evaluation-detours-through-a-building": "601/122",
    "evaluation-turns-over-a-split-ring": "7102/103",
    "pin-of-ranks-on-the-same-replicas": "9001/729",
    "ring-of-two-tiers": "9202/1693",
}
IMPOSSIBLE = {
    "experts-that-join-replicas",
    "fits-but-has-no-place",
    "no-configuration-of-two-types",
    "no-degree-fits-either",
    "nothing-fits-and-no-time-to-price",
}


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_broke_a_law_once_does_not_any_more(path: Path) -> None:
    document = json.loads(path.read_text())
    document["options"] = {**document.get("options", {}), "reproducible": True}
    request = PlanRequest.model_validate(document)
    outcome = plan(request, clock=lambda: 0.0)  # counted work alone ends it
    assert isinstance(outcome, Infeasible) == (path.stem in IMPOSSIBLE)
    assert not isinstance(outcome, NotFound)
    if isinstance(outcome, Planned):
        assert judge(request, outcome.plan).violations == ()


@pytest.mark.parametrize(("name", "seed"), REJECTED.items())
def test_random_evaluations_that_were_rejected_once_are_plans(name: str, seed: str) -> None:
    trial = Trial(json.loads((FOLDER / f"{name}.json").read_text()), seed)
    assert list(the_judge_takes_random_evaluations(trial)) == []
    assert trial.counts["plans judged"] > 0


@pytest.mark.parametrize(
    ("name", "seed", "law"),
    [
        ("mesh-of-few-in-a-fuller-place", "20261122/9", the_judge_takes_every_evaluation_of_the_search),
        ("mesh-of-one-or-two-replicas", "20261123/21", no_bound_is_above_an_evaluation_of_its_configuration),
        ("ecmp-beside-queue-pairs", "9901/70", the_judge_takes_every_evaluation_of_the_search),
    ],
)
def test_a_law_that_an_evaluation_broke_once_holds(name: str, seed: str, law: Law) -> None:
    trial = Trial(json.loads((FOLDER / f"{name}.json").read_text()), seed)
    assert list(law(trial)) == []
    assert trial.counts["evaluations"] > 0


def test_an_exchange_inside_a_building_may_send_bytes_through_another() -> None:
    path = FOLDER / "exchange-outside-its-building.json"
    trial = Trial(json.loads(path.read_text()), "7101/98")
    assert trial.plan is not None
    assert trial.plan.placement.crossing == "none"
    assert trial.plan.metrics.cross_building_bytes > 0.0
    assert list(figures_are_what_a_hand_computes(trial)) == []
