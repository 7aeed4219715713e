"""What a study says: no claim beyond its bounds, and a word where differences are below the gaps."""

from __future__ import annotations

import csv
import io
from random import Random
from typing import Any
from xml.etree import ElementTree

import pytest

from app.exporters.report.answer_picture import study_picture
from app.jobs.findings import findings, study_table
from app.wire import Study

TOKENS = 1e6  # per iteration: a second per iteration is one per million tokens


def _member(index: int, changes: dict[str, Any], time_s: float | None, bound_s: float = 0.0, gpus: int = 8) -> Any:
    degrees = {"tp": 8, "cp": 1, "ep": 1, "pp": 1, "dp": gpus // 8, "vpp": 1}
    figures = None if time_s is None else {
        "iteration_s": time_s, "lower_bound_s": bound_s, "relative_gap": 1 - bound_s / time_s,
        "tokens_per_s": TOKENS / time_s, "model_flops_utilisation": 0.4, "num_gpus": gpus,
        "usd_per_million_tokens": None, "degrees": degrees, "crossing": "none", "elapsed_s": 1.0,
    }  # fmt: skip
    return {"index": index, "changes": changes, "plan_id": f"plan_{index}", "state": "succeeded",
            "stop_reason": "finished", "figures": figures, "faults": []}  # fmt: skip


def _random(random: Random) -> list[Any]:
    members = []
    for index in range(random.randint(2, 8)):
        time_s = random.uniform(1.0, 3.0)
        plan_s = time_s if random.random() < 0.9 else None
        members.append(_member(index, {"/a": index % 2, "/b": index // 2}, plan_s, time_s * random.uniform(0.5, 1.0),
                               8 * random.randint(1, 4)))  # fmt: skip
    return members


@pytest.mark.parametrize("seed", range(40))
def test_no_truth_within_the_bounds_contradicts_the_findings(seed: int) -> None:
    """Whatever the best plans really take, the best is the one named or one of those that may be."""
    random = Random(seed)
    members = _random(random)
    found = findings(members, [])
    if found.best is None:
        assert not found.points
        return
    for _ in range(50):
        truth = {one.index: random.uniform(one.lower_bound or 0.0, one.value) for one in found.points}
        assert min(truth, key=lambda index: truth[index]) in {found.best, *found.may_be_best}
    for one in found.points:
        beaten = [two for two in found.points if two.num_gpus <= one.num_gpus and two.value < one.value]
        assert (one.index in found.frontier) <= (not beaten)
        assert beaten or one.index in found.frontier


def test_members_with_another_objective_have_no_bound_of_time() -> None:
    members = [_member(0, {"/a": 1}, 2.0, 2.0), _member(1, {"/a": 2}, 1.0, 0.9)]
    assert not findings(members, ["p", "p"]).may_be_best
    found = findings(members, ["p", "p"], ["fewest_gpus", "iteration_time"])
    assert [one.lower_bound for one in found.points] == [None, pytest.approx(0.9)]
    assert found.may_be_best == (0,)
    assert found.axes[0].num_decided == 0
    assert all("no bound of the time is known" in one for one in (found.says, found.axes[0].says))


def test_differences_below_the_gaps_are_said_to_be() -> None:
    close = [_member(0, {"/a": 1}, 2.0, 1.8), _member(1, {"/a": 2}, 1.9, 1.7)]
    found = findings(close, ["p", "p"])
    assert "below the gaps" in found.says
    assert "below the gaps" in found.axes[0].says
    assert (found.axes[0].num_pairs, found.axes[0].num_decided) == (1, 0)
    assert found.stack_profiles == ("p",)


def test_differences_beyond_the_gaps_are_proven() -> None:
    apart = [_member(0, {"/a": 1}, 2.0, 1.95), _member(1, {"/a": 2}, 1.9, 1.85), _member(2, {"/a": 3}, 1.0, 0.99)]
    found = findings(apart, ["p", "q", ""])
    assert (found.best, found.may_be_best) == (2, ())
    assert "no longer search changes that" in found.says
    assert (found.axes[0].num_pairs, found.axes[0].num_decided) == (2, 2)
    assert found.stack_profiles == ("p", "q")


@pytest.mark.parametrize("bound_s", [0.9, 1.9], ids=["undecided", "decided"])
def test_a_member_that_may_still_get_a_plan_is_not_said_to_be_beaten(bound_s: float) -> None:
    """Only those are for which there is no plan, or which are gone."""
    members = [_member(0, {"/a": 1}, 2.0, bound_s), _member(1, {"/a": 2}, 1.0, 0.9), _member(2, {"/a": 3}, None)]
    for state in ("queued", "running", "not_found", "incomplete", "cancelled", "failed"):
        assert "1 without a plan yet may be faster" in findings([*members[:2], members[2] | {"state": state}], []).says
    for state in ("infeasible", "refused", "deleted"):
        said = findings([*members[:2], members[2] | {"state": state}], []).says
        assert "without a plan" not in said
        assert ("no longer search changes that" in said) == (bound_s > 1.0)


def test_a_study_is_a_table_and_a_picture() -> None:
    members = [_member(0, {"/a": "=1"}, 2.0, 1.8), _member(1, {"/a": 2}, None), _member(2, {"/a": 3}, 1.0, 0.9, 16)]
    study = Study.model_validate({
        "id": "study_1", "name": "", "labels": {}, "state": "done", "created_at": "2026-01-01T00:00:00Z",
        "counts": {"succeeded": 3}, "members": members, "findings": findings(members, [])})  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(study_table(study))))
    assert [row["iteration_s"] for row in rows] == ["2.0", "", "1.0"]
    assert [row["on_frontier"] for row in rows] == ["True", "False", "True"]
    root = ElementTree.fromstring(study_picture(study.findings))
    assert sum(one.tag.endswith("circle") for one in root.iter()) == 2


def test_a_study_without_plans_says_so_in_every_form() -> None:
    found = findings([_member(0, {"/a": 1}, None)], [""])
    assert (found.best, found.points, found.says) == (None, (), "no member has a plan yet")
    assert "nothing is known yet" in study_picture(found)
