"""A row says what was run, or there is none: whatever was planned, a fit reads the same run back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from app.observations.beside import observation
from app.observations.measured import Measured
from app.observations.rows import calibration_row
from app.terminal.observing import _framework
from models.catalogue import named_entry
from models.plan import Configuration, Plan
from models.request import PlanRequest
from models.workload import Architecture
from solver.calibration.predict import predict
from solver.calibration.rows import Run, run_of
from solver.calibration.training import packaged_stacks
from solver.cost.fabric import fabric_of
from tests.unit.app import fake_solver

SEEDS = range(120)
GPUS = ("H100-SXM-80G", "A100-SXM-80G", "A100-SXM-40G", "B200-SXM", "H200-SXM-141G", "GB200")
STACKS = packaged_stacks()


def drawn(seed: int) -> tuple[Plan, PlanRequest]:
    """Any degrees, shards and cards of one pool in one building; schedules and places are those of the tiny plan."""
    dice = random.Random(seed)
    tp, cp, pp, dp, vpp = (
        dice.choice(sizes) for sizes in ((1, 2, 4, 8), (1, 1, 2), (1, 2, 4, 5), (2, 4, 8), (1, 1, 2))
    )
    vpp = vpp if pp > 1 else 1
    model, ep = _model(dice), 1
    if model["moe"]:
        ep = dice.choice([one for one in (1, 2, 4) if dp * cp % one == 0])
    sharding = dice.choice(("ddp", "zero1", "zero1", "fsdp", "hsdp"))
    stages = pp * vpp
    most, rest = divmod(model["num_layers"], stages)
    body = {
        "degrees": {"tp": tp, "cp": cp, "ep": ep, "pp": pp, "dp": dp, "vpp": vpp},
        "micro_batch_sequences": dice.choice((1, 2)),
        "num_microbatches": 16,
        "sharding": sharding,
        "shard_group_replicas": {"hsdp": dp // 2, "ddp": 1}.get(sharding, dp),
        "recompute": dice.choice(("none", "selective", "full")),
        "family": "loop" if vpp > 1 else "one_way",
        "layers_per_stage": dice.sample([most + (stage < rest) for stage in range(stages)], stages),
    }
    request = _request(
        dice, Architecture.model_validate(model), dp * 16 * body["micro_batch_sequences"], tp * cp * pp * dp
    )
    return _plan(Configuration.model_validate(body)), request


def _model(dice: random.Random) -> dict[str, Any]:
    moe = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 1024}
    return {
        "name": "any",
        "num_layers": dice.choice((20, 23, 32)),
        "hidden_size": 2048,
        "ffn_hidden_size": 8192,
        "attention": {"kind": "gqa", "num_heads": 16, "num_kv_heads": 8, "head_dim": 128},
        "vocab_size": 32000,
        "moe": moe if dice.random() < 0.4 else None,
    }


def _request(dice: random.Random, model: Architecture, batch: int, num_gpus: int) -> PlanRequest:
    gpu = dice.choice(GPUS)
    per_host = dice.choice((8, 8, 8, 4, 16))
    pool = {
        "id": "p",
        "place": "east",
        "gpu": gpu,
        "num_hosts": -(-num_gpus // per_host),
        "gpus_per_host": per_host,
        "nics_per_gpu": dice.choice((1, 1, 0.5, 0.125, 0.3)),
        "nic_bytes_per_s": dice.choice((5e10, 2.5e10, 3.3e9)),
        "flow_bytes_per_s": dice.choice((None, None, 1e9)),
    }
    return PlanRequest.model_validate(
        {
            "workload": {
                "architecture": model,
                "sequence_length": 4096,
                "global_batch_sequences": batch,
                "flash_attention": dice.random() < 0.8,
                "causal_attention": dice.random() < 0.8,
            },
            "cluster": {"name": "one", "places": [{"id": "east", "level": "building"}], "pools": [pool], "links": []},
        }
    )


def _plan(one: Configuration) -> Plan:
    plan = fake_solver.tiny_plan(2.0)
    pp = one.degrees.pp
    route = plan.placement.routes[0].model_copy(
        update={"places": ("east",) * pp, "pools": ("p",) * pp, "num_replicas": one.degrees.dp}
    )
    placement = plan.placement.model_copy(update={"routes": (route,), "crossing": "none"})
    metrics = plan.metrics.model_copy(update={"num_gpus": one.degrees.num_gpus})
    return plan.model_copy(update={"configuration": one, "placement": placement, "metrics": metrics})


def _row(plan: Plan, request: PlanRequest) -> dict[str, str] | str:
    return calibration_row(plan, request, observation(plan, [Measured("a", "Megatron-LM", (2.5,) * 5)]), "Megatron-LM")


def _layers_of_ranks(one: Configuration) -> list[int]:
    pp = one.degrees.pp
    return [sum(one.layers_per_stage[rank::pp]) for rank in range(pp)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_row_reads_back_as_what_was_planned(seed: int) -> None:
    plan, request = drawn(seed)
    row = _row(plan, request)
    if isinstance(row, str):
        assert _is_unsaid(plan, request), row
        return
    run, one, degrees = run_of(row, STACKS), plan.configuration, plan.configuration.degrees
    found = (run.knobs.tp, run.knobs.cp, run.knobs.ep, run.knobs.pp, run.knobs.dp, run.knobs.vpp)
    assert found == (degrees.tp, degrees.cp, degrees.ep, degrees.pp, degrees.dp, degrees.vpp)
    assert (run.knobs.recompute, run.knobs.micro_batch) == (one.recompute, one.micro_batch_sequences)
    layers = _layers_of_ranks(one)
    assert list(run.knobs.stage_layers) == (layers if len(set(layers)) > 1 else [])
    assert run.gpu.name == request.cluster.pools[0].gpu.name
    assert predict([run])[0].iteration_s == pytest.approx(_time_s(run, request), rel=0.011)


def _time_s(run: Run, request: PlanRequest) -> float:
    """What a fit would expect on the hosts of the pool, whatever the row says of them."""
    pool = request.cluster.pools[0]
    on_pool = {**run.__dict__, "gpu": pool.gpu, "fabric": fabric_of(pool)}
    return predict([Run(**on_pool)])[0].iteration_s


def _is_unsaid(plan: Plan, request: PlanRequest) -> bool:
    """Whether a row has no column for something of the run."""
    pool, job = request.cluster.pools[0], request.workload
    usual = 4 if pool.gpu.name.startswith("GB200") else 8
    return (
        pool.gpus_per_host != usual
        or pool.flow_bytes_per_s is not None
        or plan.configuration.num_state_copies > 1
        or not (job.flash_attention and job.causal_attention)
    )


def test_most_runs_have_a_row() -> None:
    rows = [_row(*drawn(seed)) for seed in SEEDS]
    assert sum(isinstance(row, dict) for row in rows) > len(SEEDS) / 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"flow_bytes_per_s": 1e8}, "1e+08 B/s of network cards per GPU"),
        ({"gpus_per_host": 2, "num_hosts": 64, "nics_per_gpu": 0.5}, "2 GPUs per host"),
        ({"gpu": {**named_entry("gpus", "H100-SXM-80G"), "bf16_flops_per_s": 5e14}}, "bf16_flops_per_s of the GPU"),
    ],
)
def test_what_no_column_says_is_named(changes: dict[str, Any], told: str) -> None:
    """Data parallelism over 64 GPUs, in whose time the cards of the hosts count."""
    model = {**_model(random.Random(0)), "num_layers": 20, "moe": None}
    request = _request(random.Random(0), Architecture.model_validate(model), 128, 128)
    document = request.model_dump()
    document["workload"] |= {"flash_attention": True, "causal_attention": True}
    usual = {"gpu": "H100-SXM-80G", "gpus_per_host": 8, "num_hosts": 16, "nics_per_gpu": 1, "nic_bytes_per_s": 5e10,
             "flow_bytes_per_s": None}  # fmt: skip
    body = {"degrees": {"tp": 2, "pp": 1, "dp": 64}, "micro_batch_sequences": 2, "num_microbatches": 1,
            "sharding": "zero1", "shard_group_replicas": 64, "recompute": "none", "layers_per_stage": [20]}  # fmt: skip
    rows = []
    for fields in (usual, usual | changes):
        document["cluster"]["pools"] = [{"id": "p", "place": "east", **fields}]
        asked = PlanRequest.model_validate(document)
        rows.append(_row(_plan(Configuration.model_validate(body)), asked))
    assert isinstance(rows[0], dict)
    assert isinstance(rows[1], str)
    assert told in rows[1]


def test_the_year_of_the_software_picks_the_profile_of_a_fit() -> None:
    """A100 were new with Megatron-LM of 2021; a run beside a plan of today is one of today."""
    plan, request = next(
        pair for pair in map(drawn, SEEDS)
        if pair[1].cluster.pools[0].gpu.name.startswith("A100") and isinstance(_row(*pair), dict)
    )  # fmt: skip
    for name, released in (("auto", 2026), ("megatron-2023", 2023)):
        row = _row(plan, request.with_options(stack_profile=name))
        assert isinstance(row, dict)
        assert run_of(row, STACKS).stack.released == released


def test_a_trace_does_not_say_who_trained() -> None:
    request = drawn(0)[1]
    steps = (2.5, 2.5)
    trace, log = Measured("t", "trace", steps), Measured("l", "torchtitan", steps)
    asked = PlanRequest.model_validate({**request.model_dump(), "constraints": {"framework": "nemo"}})
    assert [_framework(runs, asked) for runs in ([trace, log], [trace])] == ["torchtitan", "nemo"]
    assert _framework([trace], request) == ""
