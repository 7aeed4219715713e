"""A run is laid beside its plan: what is off is named with what it rests on, and rows fit `calibrate`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from app.api.calibrations import COLUMNS, NEEDED
from app.observations.beside import observation
from app.observations.measured import COMPUTE, DATA, IDLE, OPTIMIZER, WORK, Measured, spread, steady, typical
from app.observations.rows import calibration_row
from models.catalogue import named_entry
from models.plan import Assumption, Plan, TimeBreakdown
from models.request import PlanRequest
from solver.calibration.rows import run_of
from solver.calibration.training import packaged_stacks
from solver.cost.job import job_of
from tests.unit.app import fake_solver
from tests.unit.app.observations.samples import megatron_line, titan_line, trace
from tests.unit.app.terminal.commands import run


def _plan(**seconds: float) -> Plan:
    """A plan of two pipeline ranks whose iteration is the sum of the given causes."""
    parts = {**fake_solver.NO_TIME, "compute_s": 0.0, **seconds}
    total_s = sum(parts.values())
    plan = fake_solver.tiny_plan(total_s)
    told = (
        Assumption(what="gemm_efficiency = 0.7", origin="fitted"),
        Assumption(what="memory_efficiency = 0.8", origin="guessed"),
        Assumption(what="step_host_s = 0.2", origin="fitted"),
    )
    time = TimeBreakdown.model_validate({**parts, "total_s": total_s})
    return plan.model_copy(update={"time": time, "assumptions": told})


def _run(parts: dict[tuple[str, ...], float]) -> Measured:
    return Measured("a", "trace", (sum(parts.values()),) * 5, parts=parts)


def test_a_run_as_planned_questions_nothing() -> None:
    plan = _plan(compute_s=0.8, bubble_s=0.2)
    seen = observation(plan, [_run({COMPUTE: 0.81, IDLE: 0.2})])
    assert seen.as_planned
    assert seen.ratio == pytest.approx(1.01)
    assert not any(one.is_off for one in seen.causes)


def test_the_cause_that_is_off_comes_first_with_its_assumptions_guesses_before_fits() -> None:
    plan = _plan(compute_s=0.8, bubble_s=0.15, pipeline_s=0.05)
    seen = observation(plan, [_run({IDLE: 0.2, COMPUTE: 1.2})])
    first, second = seen.causes
    assert not seen.as_planned
    assert (first.causes, first.is_off, second.is_off) == (COMPUTE, True, False)
    assert first.assumptions == ("memory_efficiency = 0.8 (guessed)", "gemm_efficiency = 0.7 (fitted)")
    assert (second.planned_s, second.name) == (pytest.approx(0.2), "bubble + pipeline transfers")


def test_two_errors_that_cancel_are_both_named_although_the_step_is_as_planned() -> None:
    seen = observation(_plan(compute_s=0.5, optimizer_s=0.5), [_run({COMPUTE: 0.7, OPTIMIZER: 0.3})])
    assert seen.as_planned
    assert [one.is_off for one in seen.causes] == [True, True]


def test_what_a_source_cannot_tell_apart_is_compared_together() -> None:
    plan = _plan(compute_s=0.6, tensor_parallel_s=0.1, bubble_s=0.3)
    (work, *_) = observation(plan, [_run({WORK: 0.9, IDLE: 0.3})]).causes
    assert work.planned_s == pytest.approx(0.7)
    assert work.difference_s == pytest.approx(0.2)


def test_a_difference_within_the_noise_of_the_steps_is_not_called_off() -> None:
    noisy = Measured("a", "trace", (1.0, 0.8, 1.2, 0.9, 1.1, 1.0, 0.8, 1.2), parts={COMPUTE: 1.1})
    assert not observation(_plan(compute_s=1.0), [noisy]).causes[0].is_off


def test_several_ranks_count_by_their_median_and_logs_beside_a_trace_by_their_steps() -> None:
    ranks = [_run({COMPUTE: one, DATA: 0.1}) for one in (0.9, 0.9, 5.0)]
    log = Measured("log", "torchtitan", (1.0, 1.0), peak_memory_bytes=3e9)
    seen = observation(_plan(compute_s=0.9, data_parallel_s=0.1), [*ranks, log])
    assert seen.measured_s == 1.0
    assert {one.causes: one.measured_s for one in seen.causes}[COMPUTE] == 0.9
    assert seen.measured_peak_memory_bytes == 3e9


def test_warm_up_and_checkpoints_do_not_move_the_typical_step() -> None:
    steps = [60.0, *[2.0] * 20, 31.0, *[2.02] * 18]
    assert typical(steps) in (2.0, 2.01, 2.02)
    assert spread(steps) < 0.05
    assert 60.0 not in steady(steps)


def _near(plan: Plan, request: PlanRequest) -> Plan:
    """The plan in one building of the request."""
    pool = request.cluster.pools[0].id
    route = plan.placement.routes[0].model_copy(update={"pools": (pool, pool)})
    placement = plan.placement.model_copy(update={"routes": (route,), "crossing": "none"})
    return plan.model_copy(update={"placement": placement})


@pytest.mark.parametrize("example", ["llama-8b-single-building", "llama-405b-two-buildings"])
def test_a_row_reads_back_as_the_run(example: str) -> None:
    request = PlanRequest.model_validate(named_entry("examples", example))
    plan = _near(fake_solver.tiny_plan(2.0), request)
    row = calibration_row(plan, request, observation(plan, [_run({COMPUTE: 2.5})]), "Megatron-LM")
    assert isinstance(row, dict)
    assert set(row) <= set(COLUMNS)
    assert set(NEEDED) <= set(row)
    run = run_of(row, packaged_stacks())
    assert (run.measured_s, run.num_gpus) == (2.5, 2)
    assert (run.knobs.tp, run.knobs.pp, run.knobs.dp, run.knobs.micro_batch) == (1, 2, 1, 1)
    assert run.workload.architecture.num_layers == request.workload.architecture.num_layers
    assert run.job.total_parameters == pytest.approx(_parameters(request), rel=0.02)


def _parameters(request: PlanRequest) -> float:
    return job_of(request.workload).total_parameters


def _of_model(**fields: object) -> PlanRequest:
    request = PlanRequest.model_validate(named_entry("examples", "llama-8b-single-building"))
    body = {**request.workload.architecture.model_dump(), **fields}
    whole = request.model_dump()
    return PlanRequest.model_validate({**whole, "workload": {**whole["workload"], "architecture": body}})


def test_a_row_says_that_embeddings_are_tied() -> None:
    request = _of_model(name="small", tied_embeddings=True)
    plan = _near(fake_solver.tiny_plan(2.0), request)
    row = calibration_row(plan, request, observation(plan, [_run({COMPUTE: 2.5})]), "Megatron-LM")
    assert isinstance(row, dict)
    assert run_of(row, packaged_stacks()).workload.architecture.tied_embeddings


@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        ({"num_mtp_layers": 1}, "num_mtp_layers"),
        ({"moe": {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 64,
                  "moe_layer_stride": 2}}, "moe"),
        (
            {"attention": {"kind": "mla", "num_heads": 32, "q_lora_rank": 0, "kv_lora_rank": 512,
                           "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}},
            "attention",
        ),
    ],
)  # fmt: skip
def test_a_model_that_no_row_can_say_makes_none(fields: dict[str, object], lost: str) -> None:
    request = _of_model(**fields)
    plan = _near(fake_solver.tiny_plan(2.0), request)
    row = calibration_row(plan, request, observation(plan, [_run({COMPUTE: 2.5})]), "Megatron-LM")
    assert row == f"a row cannot say these of the model: {lost}"


def test_a_run_that_distance_slows_makes_no_row() -> None:
    request = PlanRequest.model_validate(named_entry("examples", "llama-405b-two-buildings"))
    pool = request.cluster.pools[0].id
    plan = fake_solver.tiny_plan(2.0)
    route = plan.placement.routes[0].model_copy(update={"pools": (pool, pool)})
    plan = plan.model_copy(
        update={"placement": plan.placement.model_copy(update={"routes": (route,)}), "one_building_s": 1.9}
    )
    row = calibration_row(plan, request, observation(plan, [_run({COMPUTE: 2.5})]), "torchtitan")
    assert isinstance(row, str)
    assert "distance between buildings" in row


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A plan of 2 s, logs at 2 s and 3 s, a trace."""
    contents: dict[str, Any] = {
        "plan": fake_solver.tiny_plan(2.0).model_dump_json(),
        "as_planned": "\n".join(megatron_line(number, 2000.0) for number in range(1, 9)),
        "slow": "\n".join(titan_line(step, 1 / 3.0 * 1.0) for step in range(1, 9)).replace("tps: 0", "tps: 0.3333"),
        "trace": trace(),
        "none": "nothing",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    return {name: str(tmp_path / name) for name in contents}


def test_the_command_tells_in_words_and_by_its_exit_code(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(None, "observe", files["plan"], files["as_planned"]) == 0
    assert "as planned" in capsys.readouterr().out
    assert run(None, "observe", files["plan"], files["slow"]) == 3
    assert "+50.0 %" in capsys.readouterr().out
    assert run(None, "observe", files["plan"], files["slow"], "--tolerance", "0.6") == 0
    capsys.readouterr()
    assert run(None, "observe", files["plan"], files["trace"], files["as_planned"], "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert found["causes"][0]["causes"] == ["compute_s"]
    assert run(None, "observe", files["plan"], files["none"]) == 2
    assert "holds no step time" in capsys.readouterr().err


def test_rows_gather_in_one_file(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    assert run(None, "observe", files["plan"], files["as_planned"], "--rows", str(rows)) == 2
    assert "--request" in capsys.readouterr().err
    request = named_entry("examples", "llama-8b-single-building")
    asked = PlanRequest.model_validate(request)
    plan = fake_solver.tiny_plan(2.0)
    pool = asked.cluster.pools[0].id
    route = plan.placement.routes[0].model_copy(update={"pools": (pool, pool)})
    placement = plan.placement.model_copy(update={"routes": (route,), "crossing": "none"})
    Path(files["plan"]).write_text(plan.model_copy(update={"placement": placement}).model_dump_json())
    (tmp_path / "request.json").write_text(json.dumps(request))
    for _ in range(2):
        given = ("--request", str(tmp_path / "request.json"), "--rows", str(rows))
        assert run(None, "observe", files["plan"], files["as_planned"], *given) == 0
    table = list(csv.DictReader(rows.read_text().splitlines()))
    assert [one["iter_time_s"] for one in table] == ["2", "2"]
