"""torchrun and torchtitan take what is exported: the script runs, degrees fill the world, layers are in one stage."""

from __future__ import annotations

import argparse
import ast
import shlex
import subprocess
from pathlib import Path

import pytest

from app.exporters.torchrun_script import torchrun_script
from app.exporters.torchtitan_args import torchtitan_args
from app.faults import Refused
from models.plan import Degrees, Plan
from tests.build_exports import whole_host_plan, whole_host_request
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
    "training.num_tokens_per_microbatch_per_dp_rank": int,
    "training.num_tokens_per_train_step": int,
}


def _overrides(plan: Plan) -> dict[str, int | str]:
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for name, kind in FIELDS.items():
        parser.add_argument(f"--{name}", type=kind, default=argparse.SUPPRESS)
    text = torchtitan_args(plan, whole_host_request())
    return {name.partition(".")[2]: value for name, value in
            vars(parser.parse_args(shlex.split(text, comments=True))).items()}  # fmt: skip


def _parts(plan: Plan) -> list[list[str]]:
    (line,) = [one for one in torchtitan_args(plan).splitlines() if one.startswith("# module_fqns_per_model_part = ")]
    parts: list[list[str]] = ast.literal_eval(line.partition(" = ")[2])
    return parts


@pytest.mark.parametrize(
    ("sharding", "group", "replicate", "shard"),
    [("ddp", 1, 2, 1), ("zero1", 2, 1, 2), ("fsdp", 2, 1, 2), ("hsdp", 1, 2, 1)],
)
def test_the_degrees_fill_the_world(sharding: str, group: int, replicate: int, shard: int) -> None:
    found = _overrides(whole_host_plan("dp_out", sharding=sharding, shard_group_replicas=group))
    assert (found["data_parallel_replicate_degree"], found["data_parallel_shard_degree"]) == (replicate, shard)
    world = 1
    for name in ("tensor", "context", "pipeline", "data_parallel_replicate", "data_parallel_shard"):
        world *= int(found[f"{name}_degree" if name.startswith("data") else f"{name}_parallel_degree"])
    assert world == 32


def test_a_step_has_the_tokens_of_the_request() -> None:
    found = _overrides(whole_host_plan("pp_out"))
    assert found["num_tokens_per_train_step"] == 16 * 4096
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
