"""What Megatron would stop at when it starts is refused here, with what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

from app.exporters.launch.nemo_job import nemo_job, settings_of
from app.exporters.megatron_args import megatron_args
from app.exporters.torchtitan_args import torchtitan_args
from app.faults import Refused
from models.catalogue import named_entry
from models.plan import Degrees
from models.request import PlanRequest
from models.workload import Architecture
from tests.build_exports import whole_host_plan, whole_host_request

BOTH = pytest.mark.parametrize("export", [megatron_args, nemo_job])


def _asking(architecture: Architecture | None = None, optimizer: str = "adam", precision: str = "bf16") -> PlanRequest:
    request = whole_host_request()
    old = request.workload
    changes = {
        "architecture": architecture or old.architecture,
        "optimizer": old.optimizer.model_copy(update={"name": optimizer}),
        "precision": precision,
    }
    return request.model_copy(update={"workload": old.model_copy(update=changes)})


def _model(name: str, definition: dict[str, Any], **changes: Any) -> Architecture:
    entry: dict[str, Any] = named_entry("models", name)
    return Architecture.model_validate({**entry, **changes, "definition": {**entry["definition"], **definition}})


@BOTH
@pytest.mark.parametrize(
    ("sharding", "group", "precision", "why"),
    [
        ("fsdp", 2, "bf16", "Megatron's FSDP has adam and sgd"),
        ("hsdp", 1, "bf16", "Megatron's FSDP has adam and sgd"),
        ("zero1", 1, "bf16", "2 copies of the optimizer state"),
        ("zero1", 2, "fp16", "muon in bf16 and fp32, not in fp16"),
    ],
)
def test_muon_is_refused_where_megatron_has_it_not(
    export: Any, sharding: str, group: int, precision: str, why: str
) -> None:
    plan = whole_host_plan("dp_out", sharding=sharding, shard_group_replicas=group)
    with pytest.raises(Refused, match=why) as caught:
        export(plan, _asking(optimizer="muon", precision=precision))
    assert caught.value.faults[0].code == "not-expressible"
    assert export(plan, _asking())


@BOTH
def test_muon_runs_with_one_copy_of_its_state(export: Any) -> None:
    assert "muon" in export(whole_host_plan("dp_out"), _asking(optimizer="muon"))


@pytest.mark.parametrize(("sharding", "group", "name"), [("zero1", 2, "dist_muon"), ("ddp", 1, "muon")])
def test_nemo_shards_muon_layer_by_layer(sharding: str, group: int, name: str) -> None:
    """kimi_k2.py of Megatron-Bridge: distributed_muon_with_cosine_annealing, without the distributed optimizer."""
    plan = whole_host_plan("dp_out", sharding=sharding, shard_group_replicas=group)
    found = settings_of(plan.configuration, _asking(optimizer="muon").workload)
    assert found["optimizer.optimizer"] == name
    assert not found["ddp.use_distributed_optimizer"]
    assert not found["optimizer.use_distributed_optimizer"]
    assert not found["ddp.overlap_param_gather"]
    assert settings_of(plan.configuration, _asking().workload)["ddp.use_distributed_optimizer"] is (sharding == "zero1")


@BOTH
@pytest.mark.parametrize(("group", "refused"), [(1, True), (2, False)])
def test_experts_are_shared_inside_a_copy_of_the_state(export: Any, group: int, refused: bool) -> None:
    """initialize_model_parallel: "Expert data parallel size should be divisible by partial DistOpt shard factor"."""
    plan = whole_host_plan("dp_out", degrees=Degrees(tp=8, pp=2, dp=2, ep=2), layers_per_stage=(16, 16),
                           shard_group_replicas=group)  # fmt: skip
    if not refused:
        assert export(plan, _asking(_model("mixtral-8x7b", {})))
        return
    with pytest.raises(Refused, match="shares experts inside a copy of the state, over 1 ranks, not 2"):
        export(plan, _asking(_model("mixtral-8x7b", {})))


@pytest.mark.parametrize("export", [megatron_args, nemo_job, torchtitan_args])
@pytest.mark.parametrize(
    ("length", "tp", "cp", "taken"),
    [(4096, 8, 1, True), (4100, 8, 1, False), (4100, 4, 1, True), (4108, 4, 2, False), (4352, 4, 2, True)],
)
def test_sequences_are_split_evenly(export: Any, length: int, tp: int, cp: int, taken: bool) -> None:
    """_split_along_first_dim of Megatron and Trainer of torchtitan: lengths divide by tp, and by twice cp."""
    plan = whole_host_plan("dp_out", degrees=Degrees(tp=tp, cp=cp, pp=2, dp=2), sharding="fsdp")
    request = whole_host_request()
    workload = request.workload.model_copy(update={"sequence_length": length})
    asked = request.model_copy(update={"workload": workload})
    if taken:
        assert export(plan, asked)
        return
    with pytest.raises(Refused, match="splits them evenly"):
        export(plan, asked)


def test_blocks_of_attention_are_split_evenly() -> None:
    """_create_cp_block_mask of PyTorch: "Q_LEN is not divisible by CP mesh world size * BLOCK_SIZE"."""
    plan = whole_host_plan("dp_out", degrees=Degrees(tp=4, cp=2, pp=2, dp=2), sharding="fsdp", micro_batch_sequences=1)
    request = whole_host_request()
    asked = request.model_copy(update={"workload": request.workload.model_copy(update={"sequence_length": 4112})})
    assert megatron_args(plan, asked)
    with pytest.raises(Refused, match="splits them evenly, 256 has to divide them"):
        torchtitan_args(plan, asked)


@BOTH
@pytest.mark.parametrize(
    ("changes", "tp", "why"),
    [
        ({"ffn_hidden_size": 14332}, 8, "splits feed-forward blocks evenly, 14332 wide over tp 8"),
        ({"ffn_hidden_size": 14332}, 4, ""),
    ],
)
def test_widths_are_split_evenly(export: Any, changes: dict[str, Any], tp: int, why: str) -> None:
    """ensure_divisibility of ColumnParallelLinear and RowParallelLinear."""
    plan = whole_host_plan("dp_out", degrees=Degrees(tp=tp, pp=2, dp=16 // tp))
    asked = _asking(_model("llama-3.1-8b", {}, **changes))
    if not why:
        assert export(plan, asked)
        return
    with pytest.raises(Refused, match=why) as caught:
        export(plan, asked)
    assert caught.value.faults[0].pointer == "/plan/configuration/degrees/tp"


@BOTH
@pytest.mark.parametrize(("sharding", "taken"), [("ddp", True), ("zero1", False), ("fsdp", False)])
def test_only_adam_and_muon_are_sharded(export: Any, sharding: str, taken: bool) -> None:
    """DistributedOptimizer: "Only Adam and HybridDeviceOptimizer currently supported"; muon has its own."""
    plan = whole_host_plan("dp_out", sharding=sharding, shard_group_replicas=1 if sharding == "ddp" else 2)
    if taken:
        assert export(plan, _asking(optimizer="sgd"))
        return
    with pytest.raises(Refused, match="shards the state of adam, muon over replicas, not that of sgd"):
        export(plan, _asking(optimizer="sgd"))


@BOTH
@pytest.mark.parametrize(
    ("definition", "moe", "why"),
    [
        ({"linear_bias": True}, {"num_shared_experts": 1}, "no shared experts with biases"),
        ({"router_groups": 3, "router_groups_per_token": 1}, {}, "groups of equal size"),
        ({"router_groups": 8, "router_groups_per_token": 1}, {}, "groups of equal size that hold as many"),
        ({"router_groups": 4, "router_groups_per_token": 2}, {}, ""),
    ],
)
def test_experts_have_a_form_in_megatron(
    export: Any, definition: dict[str, Any], moe: dict[str, Any], why: str
) -> None:
    """SharedExpertMLP: "bias is not supported"; TransformerConfig and group_limited_topk: groups of equal size."""
    entry: dict[str, Any] = named_entry("models", "mixtral-8x7b")
    asked = _asking(_model("mixtral-8x7b", definition, moe={**entry["moe"], **moe}))
    plan = whole_host_plan("dp_out", degrees=Degrees(tp=1, pp=2, dp=16), layers_per_stage=(16, 16))
    if not why:
        assert export(plan, asked)
        return
    with pytest.raises(Refused, match=why):
        export(plan, asked)


@BOTH
def test_experts_with_biases_are_added_apart(export: Any) -> None:
    """TEGroupedMLP: "bias_dropout_fusion is not supported in TEGroupedMLP when add_bias_linear=True"."""
    plan = whole_host_plan("dp_out", degrees=Degrees(tp=1, pp=2, dp=16), layers_per_stage=(16, 16))
    for has_bias in (True, False):
        text = export(plan, _asking(_model("mixtral-8x7b", {"linear_bias": has_bias})))
        assert ("--no-bias-dropout-fusion" in text or '"bias_dropout_fusion": False' in text) == has_bias


def test_latent_attention_states_the_width_of_its_heads() -> None:
    """validate_args divides the hidden size by the heads where --kv-channels is not given."""
    model = _model("deepseek-v3", {}, hidden_size=7160, num_mtp_layers=0)
    text = megatron_args(whole_host_plan("dp_out", layers_per_stage=(31, 30)), _asking(model))
    assert "--kv-channels 128" in text


@pytest.mark.parametrize(
    ("sharding", "group", "name", "since"), [("zero1", 2, "dist_muon", "0.17"), ("ddp", 1, "muon", "0.18")]
)
def test_muon_is_told_as_every_release_with_it_takes_it(sharding: str, group: int, name: str, since: str) -> None:
    """Core 0.16 and 0.17 refuse --use-distributed-optimizer beside it, and muon beside --overlap-grad-reduce."""
    text = megatron_args(
        whole_host_plan("dp_out", sharding=sharding, shard_group_replicas=group), _asking(optimizer="muon")
    )
    assert f"--optimizer {name}" in text
    assert "--use-distributed-optimizer" not in text
    assert f"{name} to cores before {since}" in text


def test_what_older_releases_refuse_is_named() -> None:
    attention = {"kind": "gqa", "num_heads": 32, "num_kv_heads": 4, "head_dim": 128}
    model = _model("llama-3.1-8b", {"rope_scaling": None}, num_mtp_layers=1, attention=attention)
    plan = whole_host_plan("dp_out", degrees=Degrees(tp=8, cp=2, pp=2, dp=1), layers_per_stage=(16, 16))
    text = megatron_args(plan, _asking(model))
    assert "4 key/value heads over 8 ranks to cores before 0.16" in text
    assert "multi-token prediction over context-parallel ranks to cores before 0.14" in text
    biased = whole_host_plan("dp_out", degrees=Degrees(tp=1, pp=2, dp=16), layers_per_stage=(16, 16))
    assert "experts with biases to cores before 0.15" in megatron_args(
        biased, _asking(_model("mixtral-8x7b", {"linear_bias": True}))
    )


@BOTH
def test_experts_with_biases_are_not_split(export: Any) -> None:
    """TransformerConfig: "Bias in Moe is only supported when ETP==1"."""
    model = _model("mixtral-8x7b", {"linear_bias": True})
    with pytest.raises(Refused, match="biases on whole experts only"):
        export(whole_host_plan("dp_out", layers_per_stage=(16, 16)), _asking(model))
    whole = whole_host_plan("dp_out", degrees=Degrees(tp=1, pp=2, dp=16), layers_per_stage=(16, 16))
    assert export(whole, _asking(model))
    assert export(whole_host_plan("dp_out", layers_per_stage=(16, 16)), _asking(_model("mixtral-8x7b", {})))


@pytest.mark.parametrize("positions", ["learned", "none", "rope"])
def test_tokens_further_on_are_predicted_with_two_kinds_of_positions(positions: str) -> None:
    model = _model("llama-3.1-8b", {"position_embedding": positions, "rope_scaling": None}, num_mtp_layers=1)
    plan = whole_host_plan("dp_out", layers_per_stage=(16, 16))
    if positions == "learned":
        with pytest.raises(Refused, match="multi-token prediction with learned_absolute positions"):
            megatron_args(plan, _asking(model))
        assert nemo_job(plan, _asking(model))
    else:
        assert "--mtp-num-layers 1" in megatron_args(plan, _asking(model))
