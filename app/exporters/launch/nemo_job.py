"""The job of NeMo's trainer, Megatron-Bridge: a model provider and the settings of its configuration, as a script.

The fields are those of Megatron-Core's configuration classes under Megatron-Bridge's names. Source: gpt_provider.py,
mla_provider.py and training/config.py of Megatron-Bridge 0.7, August 2026.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from app.exporters.megatron_args import COMMUNICATORS_FILE, check_megatron, layout_of
from app.exporters.megatron_model import definition_of
from app.exporters.templating import render
from models.plan import Configuration, Plan
from models.request import PlanRequest
from models.workload import Architecture, GroupedQueryAttention, ModelDefinition, Workload

PRECISION = {"fp32": None, "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8": "bf16_with_fp8_delayed_scaling_mixed",
             "fp4": "bf16_with_nvfp4_mixed"}  # fmt: skip
ACTIVATIONS = {"silu": "torch.nn.functional.silu", "gelu": "torch.nn.functional.gelu", "squared_relu": "squared_relu"}


def nemo_job(plan: Plan, request: PlanRequest) -> str:
    """The script that every rank runs."""
    check_megatron(plan)
    architecture = request.workload.architecture
    definition = definition_of(architecture)
    return render(
        "nemo_job.py.j2",
        provider="GPTModelProvider" if architecture.attention.kind == "gqa" else "MLAModelProvider",
        provider_module="gpt_provider" if architecture.attention.kind == "gqa" else "mla_provider",
        model=model_fields(plan, request),
        activation=ACTIVATIONS[definition.activation],
        settings=settings_of(plan.configuration, request.workload),
        precision=PRECISION[request.workload.precision],
    )


def model_fields(plan: Plan, request: PlanRequest) -> dict[str, Any]:
    """The fields of the model provider: sizes, definition, degrees."""
    architecture = request.workload.architecture
    one = definition_of(architecture)
    return {
        **_sizes(architecture, request.workload),
        "vocab_size": padded_vocabulary(architecture.vocab_size, plan.configuration.degrees.tp),
        **_attention(architecture),
        **_definition(architecture, one),
        **_experts(architecture, one),
        **_degrees(plan, request),
    }


def padded_vocabulary(vocab_size: int, tp: int) -> int:
    """Rows of the embedding: Megatron-Bridge leaves a stated vocabulary as it is, and each of tp ranks has as many.

    Filled up as Megatron-LM does, to a multiple of 128 tp.

    >>> padded_vocabulary(50257, 8), padded_vocabulary(32000, 8)
    (51200, 32000)
    """
    return vocab_size if vocab_size % tp == 0 else ceil(vocab_size / (128 * tp)) * 128 * tp


def settings_of(one: Configuration, workload: Workload) -> dict[str, Any]:
    """Fields of the other parts of the configuration, by part and name."""
    instances = one.degrees.dp // max(one.shard_group_replicas, 1)
    is_fsdp = one.sharding in ("fsdp", "hsdp")
    return {
        "train.micro_batch_size": one.micro_batch_sequences,
        "train.global_batch_size": workload.global_batch_sequences,
        "dataset.seq_length": workload.sequence_length,
        "tokenizer.vocab_size": workload.architecture.vocab_size,
        "ddp.use_distributed_optimizer": one.sharding != "ddp",
        "optimizer.use_distributed_optimizer": one.sharding != "ddp",
        "optimizer.optimizer": workload.optimizer.name,
        "ddp.num_distributed_optimizer_instances": 1 if one.sharding == "ddp" else instances,
        "ddp.overlap_grad_reduce": True,
        "ddp.overlap_param_gather": one.sharding != "ddp",
        "dist.nccl_communicator_config_path": COMMUNICATORS_FILE,
        **({"ddp.use_megatron_fsdp": True, "dist.use_megatron_fsdp": True, "checkpoint.ckpt_format": "fsdp_dtensor",
            "ddp.data_parallel_sharding_strategy": "optim_grads_params",
            "ddp.outer_dp_sharding_strategy": "no_shard"} if is_fsdp else {}),
    }  # fmt: skip


def _sizes(architecture: Architecture, workload: Workload) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_layers": architecture.num_layers,
        "hidden_size": architecture.hidden_size,
        "seq_length": workload.sequence_length,
        "share_embeddings_and_output_weights": architecture.tied_embeddings,
        "gated_linear_unit": architecture.gated_mlp,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    if architecture.ffn_hidden_size:
        found["ffn_hidden_size"] = architecture.ffn_hidden_size
    if architecture.num_mtp_layers:
        found |= {"mtp_num_layers": architecture.num_mtp_layers, "mtp_enabled": True}
    return found


def _attention(architecture: Architecture) -> dict[str, Any]:
    one = architecture.attention
    if isinstance(one, GroupedQueryAttention):
        return {"num_attention_heads": one.num_heads, "num_query_groups": one.num_kv_heads, "kv_channels": one.head_dim}
    return {
        "num_attention_heads": one.num_heads,
        "multi_latent_attention": True,
        "q_lora_rank": one.q_lora_rank or None,
        "kv_lora_rank": one.kv_lora_rank,
        "qk_head_dim": one.qk_nope_head_dim,
        "qk_pos_emb_head_dim": one.qk_rope_head_dim,
        "v_head_dim": one.v_head_dim,
    }


def _definition(architecture: Architecture, one: ModelDefinition) -> dict[str, Any]:
    found: dict[str, Any] = {
        "normalization": "RMSNorm" if one.norm == "rmsnorm" else "LayerNorm",
        "layernorm_zero_centered_gamma": one.norm == "layernorm1p",
        "layernorm_epsilon": one.norm_epsilon,
        "add_bias_linear": one.linear_bias,
        "add_qkv_bias": one.qkv_bias,
        "qk_layernorm": one.qk_norm,
        "position_embedding_type": {"learned": "learned_absolute"}.get(one.position_embedding, one.position_embedding),
        "rotary_base": one.rope_base,
        "rotary_percent": one.rope_fraction,
    }
    scaling, is_latent = one.rope_scaling, architecture.attention.kind == "mla"
    is_yarn = scaling is not None and scaling.kind == "yarn"
    if is_latent:
        found["rope_type"] = "yarn" if is_yarn else "rope"
    if scaling is None:
        return found
    if scaling.kind == "llama3":
        return {**found, "rope_scaling": True, "rope_scaling_factor": scaling.factor}
    if is_latent:
        length = {"original_max_position_embeddings": scaling.original_length}
        return {**found, "rotary_scaling_factor": scaling.factor, **length}
    length = {"yarn_original_max_position_embeddings": scaling.original_length}
    return {**found, "position_embedding_type": "yarn", "yarn_rotary_scaling_factor": scaling.factor, **length}


def _experts(architecture: Architecture, one: ModelDefinition) -> dict[str, Any]:
    moe = architecture.moe
    if moe is None:
        return {}
    width = moe.shared_expert_ffn_hidden_size or moe.expert_ffn_hidden_size
    return {
        "num_moe_experts": moe.num_experts,
        "moe_router_topk": moe.experts_per_token,
        "moe_ffn_hidden_size": moe.expert_ffn_hidden_size,
        "moe_layer_freq": [int(architecture.is_moe_layer(layer)) for layer in range(architecture.num_layers)],
        "moe_shared_expert_intermediate_size": moe.num_shared_experts * width or None,
        "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_score_function": one.router_score,
        "moe_router_load_balancing_type": "none" if one.router_bias else "aux_loss",
        "moe_router_enable_expert_bias": one.router_bias,
        "moe_router_num_groups": one.router_groups or None,
        "moe_router_group_topk": one.router_groups_per_token or None,
        "moe_router_topk_scaling_factor": one.router_scale if one.router_scale != 1 else None,
    }


def _degrees(plan: Plan, request: PlanRequest) -> dict[str, Any]:
    one, degrees = plan.configuration, plan.configuration.degrees
    found: dict[str, Any] = {
        "tensor_model_parallel_size": degrees.tp,
        "sequence_parallel": degrees.tp > 1,
        "context_parallel_size": degrees.cp,
        "pipeline_model_parallel_size": degrees.pp,
        "expert_model_parallel_size": degrees.ep,
        "expert_tensor_parallel_size": degrees.tp,
    }
    if degrees.pp > 1:
        layout = layout_of(plan, request.workload.architecture)
        found["pipeline_model_parallel_layout"] = layout
        found["virtual_pipeline_model_parallel_size"] = degrees.vpp if degrees.vpp > 1 else None
    if one.recompute != "none":
        found["recompute_granularity"] = one.recompute
    if one.recompute == "full":
        found |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    return found
