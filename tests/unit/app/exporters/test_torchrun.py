"""torchrun and torchtitan take what is exported: the script runs, degrees fill the world, layers are in one stage."""

from __future__ import annotations

import argparse
import ast
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.exporters.torchrun_script import torchrun_script
from app.exporters.torchtitan_args import expert_ranks, losses, shard_replicas, torchtitan_args
from app.faults import Refused
from models.plan import Degrees, Plan
from models.request import PlanRequest
from models.workload import Architecture
from tests.build_exports import whole_host_plan, whole_host_request, wide_plan
from tests.build_plan import build_plan
from tests.build_request import build_request

FIELDS = {  # torchtitan/config/configs.py, August 2026
    "parallelism.tensor_parallel_degree": int,
    "parallelism.context_parallel_degree": int,
    "parallelism.expert_parallel_degree": int,
    "parallelism.pipeline_parallel_degree": int,
    "parallelism.data_parallel_replicate_degree": int,
    "parallelism.data_parallel_shard_degree": int,
    "parallelism.fsdp_reshard_after_forward": str,
    "parallelism.pipeline_parallel_schedule": str,
    "parallelism.pipeline_parallel_schedule_csv": str,
    "parallelism.num_pp_microbatches": int,
    "training.max_context_length": int,
    "training.mixed_precision_param": str,
    "training.num_tokens_per_microbatch_per_dp_rank": int,
    "training.num_tokens_per_train_step": int,
    "training.disable_cuda_graphs": bool,
}


def _overrides(plan: Plan, request: PlanRequest | None = None) -> dict[str, int | str]:
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for name, kind in FIELDS.items():
        how: dict[str, Any] = {"action": "store_true"} if kind is bool else {"type": kind}
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS, **how)
    text = torchtitan_args(plan, request or whole_host_request())
    return {name.partition(".")[2]: value for name, value in
            vars(parser.parse_args(shlex.split(text, comments=True))).items()}  # fmt: skip


def _parts(plan: Plan) -> list[list[str]]:
    (line,) = [one for one in torchtitan_args(plan).splitlines() if one.startswith("# module_fqns_per_model_part = ")]
    parts: list[list[str]] = ast.literal_eval(line.partition(" = ")[2])
    return parts


@pytest.mark.parametrize(
    ("sharding", "group", "replicate", "shard"),
    [("ddp", 1, 2, 1), ("zero1", 2, 2, 1), ("fsdp", 2, 1, 2), ("hsdp", 1, 2, 1)],
)
def test_the_degrees_fill_the_world(sharding: str, group: int, replicate: int, shard: int) -> None:
    found = _overrides(whole_host_plan("dp_out", sharding=sharding, shard_group_replicas=group))
    assert (found["data_parallel_replicate_degree"], found["data_parallel_shard_degree"]) == (replicate, shard)
    world = 1
    for name in ("tensor", "context", "pipeline", "data_parallel_replicate", "data_parallel_shard"):
        world *= int(found[f"{name}_degree" if name.startswith("data") else f"{name}_parallel_degree"])
    assert world == 32


def test_zero1_is_sharded_inside_buildings_alone() -> None:
    """Full sharding over two buildings would gather parameters between them."""
    plan, request = wide_plan(16)  # replicas 0 to 3 in one building, 4 to 7 in the other
    assert shard_replicas(plan, request) == 4
    inside = whole_host_plan("pp_out")  # both replicas have the same way through the buildings
    assert shard_replicas(inside, whole_host_request()) == 2
    told = list(losses(plan, request))
    assert "optimizer state over 8 replicas: it is sharded over 4 in a building, replicated between" in told


def test_zero1_that_does_not_fit_inside_a_building_is_refused() -> None:
    plan, request = wide_plan(16)
    full = tuple(one.model_copy(update={"limit_bytes": one.total_bytes}) for one in plan.memory)
    with pytest.raises(Refused, match="torchtitan would shard over 4 in one building"):
        torchtitan_args(plan.model_copy(update={"memory": full}), request)


def test_experts_are_dealt_to_tensor_parallel_ranks_too() -> None:
    request = whole_host_request()
    moe = {"num_experts": 64, "experts_per_token": 2, "expert_ffn_hidden_size": 1024}
    architecture = Architecture.model_validate({**request.workload.architecture.model_dump(), "moe": moe})
    workload = request.workload.model_copy(update={"architecture": architecture})
    degrees = Degrees(tp=8, pp=2, dp=2, ep=2)
    configuration = whole_host_plan("pp_out", degrees=degrees).configuration
    assert expert_ranks(configuration, request.model_copy(update={"workload": workload})) == 16
    assert expert_ranks(configuration, request) == 2, "without experts nothing is dealt"


@pytest.mark.parametrize(
    ("degrees", "asked"),
    [({"pp": 1, "ep": 1}, False), ({"pp": 1, "ep": 2}, True), ({"pp": 2, "ep": 1}, True), ({"pp": 2, "ep": 2}, True)],
)
def test_cuda_graphs_are_off_where_torchtitan_refuses_them(degrees: dict[str, int], asked: bool) -> None:
    """Trainer.Config: "CUDA graphs do not support pipeline parallelism yet", nor dispatchers that wait for the CPU."""
    layers = (4, 4) if degrees["pp"] == 2 else (8,)
    plan = whole_host_plan("pp_out", degrees=Degrees(tp=8, dp=2, **degrees), layers_per_stage=layers)
    assert _overrides(plan).get("disable_cuda_graphs", False) is asked
    dealt = _overrides(
        plan, _with_model(moe={"num_experts": 64, "experts_per_token": 2, "expert_ffn_hidden_size": 1024})
    )
    assert dealt["disable_cuda_graphs"] is True, "tensor-parallel ranks share experts, too"


@pytest.mark.parametrize(
    ("precision", "computed", "told"),
    [
        ("bf16", None, None),
        ("fp32", "float32", None),
        ("fp16", None, "torchtitan has bfloat16 and float32"),
        ("fp8", None, "converter of linear layers"),
    ],
)
def test_torchtitan_computes_in_the_precision_of_the_request(
    precision: str, computed: str | None, told: str | None
) -> None:
    request = whole_host_request()
    workload = request.workload.model_copy(update={"precision": precision})
    asked = request.model_copy(update={"workload": workload})
    assert _overrides(whole_host_plan("pp_out"), asked).get("mixed_precision_param") == computed
    lines = [line for line in losses(whole_host_plan("pp_out"), asked) if line.startswith(precision)]
    assert [told in line for line in lines] == [True] if told else lines == []


def test_a_step_has_the_tokens_of_the_request() -> None:
    found = _overrides(whole_host_plan("pp_out"))
    assert found["num_tokens_per_train_step"] == 8 * 4096
    assert found["num_pp_microbatches"] == 4


@pytest.mark.parametrize(("family", "name"), [("loop", "Interleaved1F1B"), ("v", "ZBVZeroBubble")])
def test_the_name_of_the_schedule_says_how_chunks_fold(family: str, name: str) -> None:
    plan = whole_host_plan("pp_out", degrees=Degrees(tp=8, pp=2, dp=2, vpp=2), layers_per_stage=(2, 2, 2, 2), family=family)  # fmt: skip  # noqa: E501
    assert _overrides(plan)["pipeline_parallel_schedule"] == name
    assert _overrides(plan)["pipeline_parallel_schedule_csv"] == "schedule.csv"


def test_every_module_is_in_one_stage() -> None:
    parts = _parts(whole_host_plan("pp_out"))
    flat = [name for part in parts for name in part]
    assert flat == ["tok_embeddings", *(f"layers.{layer}" for layer in range(8)), "norm", "lm_head"]


def test_a_v_of_three_chunks_is_refused() -> None:
    plan = whole_host_plan("pp_out", degrees=Degrees(tp=8, pp=2, dp=2, vpp=3), layers_per_stage=(1,) * 6, family="v")
    with pytest.raises(Refused, match="folds V in two"):
        torchtitan_args(plan)


@pytest.mark.parametrize(("sharding", "group", "pp", "told"), [("fsdp", 2, 2, True), ("fsdp", 2, 1, False), ("ddp", 1, 2, False)])  # fmt: skip  # noqa: E501
def test_whole_stages_in_memory_are_told(sharding: str, group: int, pp: int, told: bool) -> None:
    """backward_maybe_with_nosync: set_reshard_after_backward(False), set_requires_gradient_sync(False)."""
    plan = whole_host_plan("pp_out", degrees=Degrees(tp=8, dp=2, pp=pp), layers_per_stage=(8 // pp,) * pp,
                           sharding=sharding, shard_group_replicas=group)  # fmt: skip
    use = plan.memory[0].model_copy(update={"weights_bytes": 3e9, "gradients_bytes": 6e9})
    lines = list(losses(plan.model_copy(update={"memory": (use,)})))
    assert any("up to 9.0 GB more per GPU than planned" in line for line in lines) is told


def _with_model(**changes: Any) -> PlanRequest:
    request = whole_host_request()
    old = request.workload.architecture
    architecture = Architecture.model_validate({**old.model_dump(), **changes})
    return request.model_copy(update={"workload": request.workload.model_copy(update={"architecture": architecture})})


def test_tied_embeddings_over_a_pipeline_are_refused() -> None:
    """Decoder.Config: "Weight tying is not supported with Pipeline Parallel"."""
    with pytest.raises(Refused, match="torchtitan ties embeddings on one rank"):
        torchtitan_args(whole_host_plan("pp_out"), _with_model(tied_embeddings=True))
    whole = whole_host_plan("pp_out", degrees=Degrees(tp=8, pp=1, dp=2), layers_per_stage=(8,))
    assert torchtitan_args(whole, _with_model(tied_embeddings=True))


def test_key_value_heads_are_not_repeated() -> None:
    """Decoder.Config: "tensor_parallel_degree must divide n_kv_heads"."""
    attention = {"kind": "gqa", "num_heads": 32, "num_kv_heads": 4, "head_dim": 128}
    with pytest.raises(Refused, match="4 key/value heads over tp 8"):
        torchtitan_args(whole_host_plan("pp_out"), _with_model(attention=attention))
    assert torchtitan_args(whole_host_plan("pp_out"), _with_model(attention={**attention, "num_kv_heads": 8}))


@pytest.mark.parametrize(("sharding", "group", "taken"), [("ddp", 1, False), ("hsdp", 1, False), ("fsdp", 2, True)])
def test_experts_are_shared_inside_a_copy_of_the_state(sharding: str, group: int, taken: bool) -> None:
    """ParallelDims: "expert_parallel_degree must divide dp_shard * cp * tp"."""
    moe = {"num_experts": 64, "experts_per_token": 2, "expert_ffn_hidden_size": 1024}
    plan = whole_host_plan("pp_out", degrees=Degrees(tp=8, pp=2, dp=2, ep=2), sharding=sharding,
                           shard_group_replicas=group)  # fmt: skip
    if taken:
        assert "expert_parallel_degree 16" in torchtitan_args(plan, _with_model(moe=moe))
        return
    with pytest.raises(Refused, match="experts shared by 16 ranks, where 8 have one copy"):
        torchtitan_args(plan, _with_model(moe=moe))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the script and a torchrun that prints its arguments."""
    (tmp_path / "run.sh").write_text(torchrun_script(whole_host_plan("pp_out"), whole_host_request()))
    stub = tmp_path / "torchrun"
    stub.write_text("#!/bin/bash\nprintf '%s\\n' \"$@\"\n")
    stub.chmod(0o755)
    return tmp_path


def _run(folder: Path, host: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{folder}:/usr/bin:/bin", "ISTHMUS_HOST": host}
    command = ["bash", "run.sh", "-m", "train", "--name", "a $b"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=30)


def test_every_host_finds_its_node_rank(folder: Path) -> None:
    hosts = ["east-node-0", "east-node-1", "west-node-0", "west-node-1"]
    for rank, host in enumerate(hosts):
        words = _run(folder, host).stdout.splitlines()
        assert words[:3] == ["--nnodes=4", "--nproc-per-node=8", f"--node-rank={rank}"]
        assert words[3:] == ["--master-addr=east-node-0", "--master-port=29500", "-m", "train", "--name", "a $b"]


def test_a_strange_host_does_not_start(folder: Path) -> None:
    done = _run(folder, "mars")
    assert (done.returncode, done.stdout) == (1, "")
    assert "not in the plan" in done.stderr


def test_hosts_of_unequal_numbers_of_ranks_are_refused() -> None:
    request = build_request()
    with pytest.raises(Refused, match="same number on each") as caught:
        torchrun_script(build_plan(request), request)
    assert caught.value.faults[0].code == "not-expressible"
