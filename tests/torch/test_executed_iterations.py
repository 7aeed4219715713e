"""Plans over two buildings run from their bundles: replicas and stages in both, delays between them, one loss.

Three plans of one job lie differently over the buildings, a fourth waits for its sends. What is compared is the whole
iteration with the plan's `iteration_s`: pipelines of all routes, exchanges, the optimizer step. As in
`test_executed_schedules` the fastest of the repetitions counts, and what was disturbed is repeated.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.documents import canonical
from app.exporters.launch.bundle import bundle
from app.exporters.launch.options import Launch
from app.exporters.replay_case import CASE_FILE, ReplayCase
from app.replay.job import ReplayJob
from app.replay.launch import Measured, execute
from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.planner import plan
from tests.build_request import build_request, cluster, link, pool, workload
from tests.replays import together
from tests.torch.test_executed_schedules import CALM, MAX_MORE, TOLERANCE

NUM_REPETITIONS = 3
NEAR = "near"
SCALE = 12.0  # real seconds per planned second: operations take 40 to 160 ms
LATENCY_S = 0.01
LEAST_DIFFERENCE = 0.05  # of the predictions of plans that are ranked: twice what an execution is off
RANKED: dict[str, dict[str, Any]] = {
    "four stages": {"pp": [4], "dp": [2], "vpp": [2]},
    "two stages": {"pp": [2], "dp": [4], "vpp": [1]},
    "no stage across": {"pp": [2], "dp": [3], "vpp": [1], "pipeline_may_cross_buildings": False},
}
BLOCKING = {"pp": [4], "dp": [2], "vpp": [1], "framework": "megatron-core"}
PLANS = {**RANKED, "blocking sends": BLOCKING}
DEGREES = ("pp", "dp", "vpp")

Asked = tuple[Plan, PlanRequest]


def _planned(constraints: dict[str, Any]) -> Asked:
    """A plan on five hosts in the east and three in the west, 10 ms apart: whole replicas fit in neither alone."""
    body = cluster()
    body["places"] = body["places"][:3]
    body["pools"] = [pool("east", 5, gpus_per_host=2), pool("west", 3, gpus_per_host=2)]
    body["links"] = [link("east-west", "east", "west", capacity_bytes_per_s=1e11, latency_s=LATENCY_S)]
    allowed = {"tp": [2]} | {name: constraints[name] for name in DEGREES if name in constraints}
    others = {name: value for name, value in constraints.items() if name not in DEGREES}
    request = build_request(
        workload=workload(24),
        cluster=body,
        constraints={"allowed": allowed} | others,
        options={"time_limit_s": 30.0, "reproducible": True},
    )
    found = plan(request)
    assert isinstance(found, Planned), found
    return found.plan, request


@pytest.fixture(scope="module")
def plans() -> dict[str, Asked]:
    """The plans, by name."""
    return {name: _planned(constraints) for name, constraints in PLANS.items()}


@pytest.fixture(scope="module")
def figures(plans: dict[str, Asked], request: pytest.FixtureRequest) -> dict[str, Measured]:
    """Every plan, executed from its bundle, and one of them without the distance."""
    cases = {name: _case(*one) for name, one in plans.items()}
    far = cases["no stage across"]
    cases[NEAR] = far.model_copy(update={"exchanges": tuple(one.scaled(0.0) for one in far.exchanges)})
    found = _executed(cases)
    for _ in range(MAX_MORE):
        disturbed = {name: cases[name] for name, one in found.items() if one.ratio > CALM}
        found |= {name: together(found[name], one) for name, one in _executed(disturbed).items()}
    writer = request.config.get_terminal_writer()
    writer.line(f"\n{'plan':16} {'predicted':>9} {'fastest':>9} {'ratio':>6} {'median':>9} {'of':>3}")
    for name, one in found.items():
        writer.line(
            f"{name:16} {one.predicted_s:7.3f} s {one.measured_s:7.3f} s {one.ratio:6.3f} {one.median_s:7.3f} s "
            f"{len(one.repetitions_s):3}  loss {one.loss:.6f}, off by {one.loss_difference:.1e}"
        )
    return found


def _case(plan_of: Plan, request: PlanRequest) -> ReplayCase:
    """The iteration that the bundle holds, at the speed of this test."""
    files = bundle(plan_of, request, Launch(trainer="pytorch", scheduler="local"))
    case = ReplayCase.model_validate_json(files[CASE_FILE])
    return case.taking(SCALE * case.operation_s)


def _executed(cases: dict[str, ReplayCase]) -> dict[str, Measured]:
    """Cases with as many processes are executed by the same ones."""
    found: dict[str, Measured] = {}
    for number in {case.num_processes for case in cases.values()}:
        alike = {name: case for name, case in cases.items() if case.num_processes == number}
        job = ReplayJob(cases=tuple(alike.values()), num_repetitions=NUM_REPETITIONS)
        found |= dict(zip(alike, execute(job), strict=True))
    return found


def test_the_plans_have_replicas_and_stages_in_both_buildings(plans: dict[str, Asked]) -> None:
    assert {one.placement.crossing for one, _ in plans.values()} == {"mixed", "dp_out"}
    for one, _ in plans.values():
        assert {place for route in one.placement.routes for place in route.places} == {"east", "west"}
        assert one.configuration.degrees.pp > 1 < one.configuration.degrees.dp
    blocking, _ = plans["blocking sends"]
    assert {one.problem.sends for one in blocking.timelines} == {"blocking"}
    assert any(one.stagger_s for found, _ in plans.values() for one in found.timelines), "no replicas take turns"


@pytest.mark.parametrize("name", PLANS)
def test_an_iteration_takes_its_predicted_time(figures: dict[str, Measured], name: str) -> None:
    assert figures[name].ratio == pytest.approx(1.0, abs=TOLERANCE)


def test_the_prediction_is_that_of_the_plan(figures: dict[str, Measured], plans: dict[str, Asked]) -> None:
    for name, (one, _) in plans.items():
        assert figures[name].predicted_s == pytest.approx(SCALE * one.metrics.iteration_s)


@pytest.mark.parametrize("name", PLANS)
def test_the_losses_are_those_of_one_process(figures: dict[str, Measured], name: str) -> None:
    one = figures[name]
    assert one.same_result, one
    assert one.same_order
    assert one.largest_gradient > 1e-3, "nothing to compare"


def test_plans_rank_as_predicted(figures: dict[str, Measured]) -> None:
    by_prediction = sorted((figures[name] for name in RANKED), key=lambda one: one.predicted_s)
    for faster, slower in pairwise(by_prediction):
        assert slower.predicted_s > faster.predicted_s * (1 + LEAST_DIFFERENCE), "too alike to be ranked"
        assert faster.measured_s < slower.measured_s


def test_without_the_distance_the_same_plan_is_faster(plans: dict[str, Asked], figures: dict[str, Measured]) -> None:
    lost_s = plans["no stage across"][0].time.data_parallel_s * SCALE
    assert figures[NEAR].measured_s < figures["no stage across"].measured_s - 0.5 * lost_s


def test_the_commands_bundle_and_replay(plans: dict[str, Asked], tmp_path: Path, capsys: Any) -> None:
    one, request = plans["four stages"]
    (tmp_path / "plan.json").write_bytes(canonical(Planned(plan=one, elapsed_s=1.0)))
    (tmp_path / "request.json").write_bytes(canonical(request))
    folder = tmp_path / "launch"
    with pytest.raises(SystemExit) as leaving:
        cli.main(["bundle", str(tmp_path / "plan.json"), "--request", str(tmp_path / "request.json"),
                  "--for", "pytorch", "--on", "local", "--out", str(folder)])  # fmt: skip
    assert leaving.value.code == 0
    capsys.readouterr()
    with pytest.raises(SystemExit) as leaving:
        cli.main(["replay", str(folder), "--json", "--repetitions", "2", "--operation-ms", "60"])
    found = json.loads(capsys.readouterr().out)
    assert leaving.value.code == 0, found
    (folder / CASE_FILE).write_text("{}")
    with pytest.raises(SystemExit) as leaving:
        cli.main(["replay", str(folder)])
    assert leaving.value.code == 2
    assert "is not the file that isthmus bundle wrote" in capsys.readouterr().err
