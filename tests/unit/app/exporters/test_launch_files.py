"""What launchers read is complete, in rank order, safe in a shell, and honest about what it cannot say."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from app.exporters.megatron_args import megatron_args, pipeline_layout
from app.exporters.registry import EXPORTERS
from app.exporters.slurm_hostfile import slurm_hostfile
from app.exporters.torch_schedule_csv import torch_schedule_csv
from app.faults import Refused
from models.catalogue import named_entry
from models.plan import Plan
from models.request import PlanRequest
from tests.build_exports import whole_host_plan, whole_host_request
from tests.unit.app.fake_solver import tiny_plan
from tests.unit.models.bad_requests import good_request

CELL = re.compile(r"(\d+)(F|I|W|B)(\d+)")


def _request(architecture: Any = None) -> PlanRequest:
    body = good_request()
    if architecture is not None:
        body["workload"]["architecture"] = architecture
    return PlanRequest.model_validate(body)


def _with_hosts(*names: str) -> tuple[Plan, PlanRequest]:
    """The tiny plan on named hosts of the request's pools."""
    document = tiny_plan(2.0, ("east-z1", "west-z1")).model_dump(mode="json")
    for ranks, pool, name in zip(
        document["placement"]["rank_map"], ("east-z1-pool", "west-z1-pool"), names, strict=True
    ):
        ranks.update(pool=pool, hosts=[name])
    return Plan.model_validate(document), _request()


def _arguments(request: PlanRequest) -> dict[str, list[str]]:
    lines = [line for line in megatron_args(tiny_plan(2.0), request).splitlines() if line[0] != "#"]
    words = [shlex.split(line) for line in lines]
    return {first: rest for first, *rest in words}


def test_every_rank_has_its_host_in_rank_order() -> None:
    assert slurm_hostfile(*_with_hosts("node-9", "node-1")) == "node-9\nnode-1\n"


@pytest.mark.parametrize("name", ["a b", "$(reboot)", "-rf", "a;b", "a/b"])
def test_a_host_name_that_a_shell_could_take_wrongly_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="cannot be a host name"):
        slurm_hostfile(*_with_hosts("node-1", name))


def test_a_plan_without_host_names_says_what_is_missing() -> None:
    plan, request = _with_hosts("a", "b")
    bare = plan.model_dump(mode="json")
    bare["placement"]["rank_map"][1]["hosts"] = []
    with pytest.raises(Refused, match="no host names"):
        slurm_hostfile(Plan.model_validate(bare), request)


@pytest.mark.parametrize("layers", [(1, 1), (8, 8, 8, 7), (0, 2), (126, 126)])
def test_the_layout_has_one_embedding_one_loss_and_every_layer(layers: tuple[int, ...]) -> None:
    text = re.sub(r"t\*(\d+)", lambda found: "t" * int(found.group(1)), pipeline_layout(layers))
    assert [stage.count("t") for stage in text.split("|")] == list(layers)
    assert (text.count("E"), text.count("L"), text[0], text[-1]) == (1, 1, "E", "L")


def test_the_arguments_state_the_plan_and_the_model() -> None:
    arguments = _arguments(_request())
    assert arguments["--pipeline-model-parallel-size"] == ["2"]
    assert arguments["--global-batch-size"] == ["512"]
    assert arguments["--num-query-groups"] == ["8"]
    assert arguments["--moe-layer-freq"] == ["([1]*32)"]
    assert "--sequence-parallel" not in arguments, "tp is 1"


def test_latent_attention_and_shared_experts_have_their_arguments() -> None:
    arguments = _arguments(_request(named_entry("models", "deepseek-v3")))
    assert "--multi-latent-attention" in arguments
    assert arguments["--kv-lora-rank"] == ["512"]
    assert arguments["--moe-layer-freq"] == ["([0]*3+[1]*58)"]
    assert arguments["--moe-shared-expert-intermediate-size"] == ["2048"]


def test_what_cannot_be_said_is_reported() -> None:
    text = megatron_args(tiny_plan(2.0), _request())
    assert "# not expressed: backward passes in two halves" in text
    assert text.startswith("# for Megatron-LM core 0.13 to 0.20\n")


HOSTED = ("slurm-hostfile", "megatron-hostfile", "slurm-sbatch", "torchrun-script", "kueue-jobset", "volcano-job")


@pytest.mark.parametrize("kind", HOSTED)
@pytest.mark.parametrize("field", ["num_unhealthy_gpus", "num_reserved_gpus"])
def test_gpus_of_which_only_the_number_is_known_are_reported(kind: Any, field: str) -> None:
    plan, request = whole_host_plan("dp_out"), whole_host_request()
    told = "which 3 GPUs of pool east-pool are reserved or out of service"
    assert not any(told in line for line in EXPORTERS[kind].notes(plan, request))
    east, west = request.cluster.pools
    fewer = request.with_cluster(pools=(east.model_copy(update={field: 3}), west))
    assert any(told in line for line in EXPORTERS[kind].notes(plan, fewer))


@pytest.mark.parametrize(
    ("change", "told", "by"),
    [
        ({"causal_attention": False}, "attention to later tokens", ("megatron-args", "torchtitan-args")),
        ({"flash_attention": False}, "attention that stores its scores", ("megatron-args", "torchtitan-args")),
        ({"optimizer": {"name": "muon"}}, "muon: set the optimizer", ("torchtitan-args",)),
    ],
)
def test_what_a_trainer_does_otherwise_than_the_request_is_reported(
    change: Any, told: str, by: tuple[Any, ...]
) -> None:
    body = good_request()
    body["workload"].update(change)
    plan, asked = whole_host_plan("dp_out"), PlanRequest.model_validate(body)
    for kind in ("megatron-args", "torchtitan-args"):
        assert any(line.startswith(told) for line in EXPORTERS[kind].losses(plan, asked)) is (kind in by)
        assert not any(line.startswith(told) for line in EXPORTERS[kind].losses(plan, _request()))


def test_the_schedule_is_in_the_words_of_pytorch() -> None:
    rows = [line.split(",") for line in torch_schedule_csv(tiny_plan(2.0)).splitlines()]
    assert rows[0] == ["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"]
    assert all(CELL.fullmatch(cell) for row in rows for cell in row)


@pytest.mark.parametrize("kind", EXPORTERS)
def test_every_export_is_repeatable(kind: Any) -> None:
    plan, request = whole_host_plan("dp_out"), whole_host_request()
    assert EXPORTERS[kind].export(plan, request) == EXPORTERS[kind].export(plan, request) != ""
