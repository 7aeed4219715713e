"""The job of NeMo's trainer, Megatron-Bridge: a model provider and the settings of its configuration, as a script.

The fields are those of Megatron-Core's configuration classes under Megatron-Bridge's names. Source: gpt_provider.py,
mla_provider.py and training/config.py of Megatron-Bridge 0.7, August 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.exporters import megatron_model
from app.exporters.megatron_args import COMMUNICATORS_FILE, RECOMPUTE, group_of, layout_of, plan_losses
from app.exporters.megatron_limits import check_megatron
from app.exporters.megatron_losses import padded_vocabulary, vocabulary_losses
from app.exporters.templating import render
from models.plan import Configuration, Plan
from models.request import PlanRequest
from models.workload import Architecture, Workload

PRECISION = {"fp32": None, "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8": "bf16_with_fp8_delayed_scaling_mixed",
             "fp4": "bf16_with_nvfp4_mixed"}  # fmt: skip
ACTIVATIONS = {"silu": "torch.nn.functional.silu", "gelu": "torch.nn.functional.gelu", "quick_gelu": "quick_gelu",
               "squared_relu": "squared_relu"}  # fmt: skip
# What builds the layers where Megatron-Bridge's default would give all of them experts, or a norm it does not pass on.
# Source: default_layer_spec of gpt_provider.py; deepseek_v3_bridge.py and glm5_bridge.py.
BLOCK, SPARSE = "get_gpt_decoder_block_spec", "get_transformer_block_with_experimental_attention_variant_spec"
SPEC_MODULES = {BLOCK: "gpt_layer_specs", SPARSE: "experimental_attention_variant_module_specs"}


def nemo_job(plan: Plan, request: PlanRequest) -> str:
    """The script that every rank runs."""
    check_megatron(plan, request)
    architecture = request.workload.architecture
    definition = megatron_model.definition_of(architecture)
    return render(
        "nemo_job.py.j2",
        provider="GPTModelProvider" if architecture.attention.kind == "gqa" else "MLAModelProvider",
        provider_module="gpt_provider" if architecture.attention.kind == "gqa" else "mla_provider",
        model=model_fields(plan, request),
        activation=ACTIVATIONS[definition.activation],
        layers=_layers(architecture),
        layer_modules=SPEC_MODULES,
        settings=settings_of(plan.configuration, request.workload),
        precision=PRECISION[request.workload.precision],
    )


def model_fields(plan: Plan, request: PlanRequest) -> dict[str, Any]:
    """The fields of the model provider: sizes, definition, degrees."""
    architecture = request.workload.architecture
    return {
        **megatron_model.model_fields(architecture),
        "seq_length": request.workload.sequence_length,
        "vocab_size": _vocabulary(plan, request),
        **({"mtp_enabled": True} if architecture.num_mtp_layers else {}),
        **_kernels(architecture),
        **_degrees(plan, request),
        **RECOMPUTE[plan.configuration.recompute],
    }


def _kernels(architecture: Architecture) -> dict[str, bool]:
    """Fused kernels as Megatron-LM has them by default; a provider of Megatron-Bridge leaves them off.

    MLAModelProvider takes TransformerConfig's defaults before those of GPTModelProvider, so even weight gradients would
    not be added up in place. Source: llama_bridge.py and deepseek_v3_bridge.py, which set the same fields.
    """
    one, stated = megatron_model.definition_of(architecture), megatron_model.model_fields(architecture)
    is_rotated = stated["position_embedding_type"] == "rope" and architecture.attention.kind == "gqa"
    has_kernel = one.activation in ("silu", "quick_gelu") if architecture.gated_mlp else one.activation == "gelu"
    return {
        "gradient_accumulation_fusion": True,
        "persist_layer_norm": True,
        "bias_dropout_fusion": stated.get("bias_dropout_fusion", True),
        "bias_activation_fusion": has_kernel and (architecture.gated_mlp or one.linear_bias),
        "apply_rope_fusion": is_rotated and stated.get("apply_rope_fusion", True),
    }


def _layers(architecture: Architecture) -> str:
    """What builds the layers, as the script writes it; empty where the default does."""
    one = megatron_model.definition_of(architecture)
    if one.sparse_attention is not None:
        return SPARSE
    more = ", qk_l2_norm=True" if one.qk_l2_norm else ""
    return f"partial({BLOCK}, use_transformer_engine=True{more})" if architecture.moe is not None or more else ""


def losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What of the plan Megatron-Bridge is not told."""
    yield from plan_losses(plan, request)
    if request is not None:
        yield from vocabulary_losses(request.workload.architecture, _vocabulary(plan, request))


def _vocabulary(plan: Plan, request: PlanRequest) -> int:
    """Rows of the embedding: Megatron-Bridge leaves a stated vocabulary as it is, and each of tp ranks has as many."""
    vocab_size, tp = request.workload.architecture.vocab_size, plan.configuration.degrees.tp
    return vocab_size if vocab_size % tp == 0 else padded_vocabulary(vocab_size, tp)


def settings_of(one: Configuration, workload: Workload) -> dict[str, Any]:
    """Fields of the other parts of the configuration, by part and name.

    Muon over all replicas has a name and a sharding of its own, layer by layer: Megatron-Bridge's recipes with it have
    no distributed optimizer.
    """
    instances = one.degrees.dp // max(one.shard_group_replicas, 1)
    is_fsdp = one.sharding in ("fsdp", "hsdp")
    by_layer = workload.optimizer.name == "muon" and one.sharding == "zero1"
    is_distributed = one.sharding != "ddp" and not by_layer
    return {
        "train.micro_batch_size": one.micro_batch_sequences,
        "train.global_batch_size": workload.global_batch_sequences,
        "dataset.seq_length": workload.sequence_length,
        "tokenizer.vocab_size": workload.architecture.vocab_size,
        "ddp.use_distributed_optimizer": is_distributed,
        "optimizer.use_distributed_optimizer": is_distributed,
        "optimizer.optimizer": "dist_muon" if by_layer else workload.optimizer.name,
        "ddp.num_distributed_optimizer_instances": 1 if one.sharding == "ddp" else instances,
        "ddp.overlap_grad_reduce": True,
        "ddp.overlap_param_gather": is_distributed,
        "dist.nccl_communicator_config_path": COMMUNICATORS_FILE,
        **({"ddp.use_megatron_fsdp": True, "dist.use_megatron_fsdp": True, "checkpoint.ckpt_format": "fsdp_dtensor",
            "ddp.data_parallel_sharding_strategy": "optim_grads_params",
            "ddp.outer_dp_sharding_strategy": "no_shard"} if is_fsdp else {}),
    }  # fmt: skip


def _degrees(plan: Plan, request: PlanRequest) -> dict[str, Any]:
    degrees = plan.configuration.degrees
    exchange = megatron_model.context_exchange(request.workload.architecture, degrees.cp)
    found: dict[str, Any] = {
        "tensor_model_parallel_size": degrees.tp,
        "sequence_parallel": degrees.tp > 1,
        "context_parallel_size": degrees.cp,
        **({"cp_comm_type": exchange} if exchange else {}),
        "pipeline_model_parallel_size": degrees.pp,
        "expert_model_parallel_size": degrees.ep,
        "expert_tensor_parallel_size": degrees.tp,
    }
    if degrees.pp > 1:
        # As Megatron-LM sends: asynchronously where chunks are interleaved, and without keeping what was sent.
        found["overlap_p2p_comm"] = degrees.vpp > 1
        found["batch_p2p_comm"] = degrees.vpp == 1
        found["deallocate_pipeline_outputs"] = True
        layout = layout_of(plan, request.workload.architecture)
        found["pipeline_model_parallel_layout"] = layout
        found["virtual_pipeline_model_parallel_size"] = degrees.vpp if degrees.vpp > 1 else None
        if (group := group_of(plan)) is not None:
            found["microbatch_group_size_per_vp_stage"] = group
    return found
