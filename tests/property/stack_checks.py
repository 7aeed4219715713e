"""What Megatron-LM and torchtitan check when they start, written anew over the arguments that are exported for them.

It shares nothing with the exports. Each check names where the stack has it. Source: Megatron-LM core 0.20 and
torchtitan b5bcd76, August 2026; torch/distributed/tensor/experimental/_context_parallel/_attention.py of PyTorch.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

Arguments = dict[str, str]
BLOCK = 128  # tokens; _DEFAULT_SPARSE_BLOCK_SIZE of PyTorch's FlexAttention


def arguments_of(text: str) -> Arguments:
    """Arguments by name; a flag has an empty value. Comments are left out."""
    lines = (shlex.split(line) for line in text.splitlines() if line and not line.startswith("#"))
    return {line[0].removeprefix("--"): " ".join(line[1:]) for line in lines}


def megatron_stops(one: Arguments, world_size: int) -> Iterator[str]:
    """Why Megatron-LM would not start on so many GPUs."""
    tp, cp, pp = (_int(one, f"{name}-parallel-size") for name in ("tensor-model", "context", "pipeline-model"))
    yield from _megatron_batch(one, world_size, tp * cp * pp)
    length = int(one["seq-length"])
    yield from _uneven("validate_args: seq-length by 2 cp", length, 2 * cp if cp > 1 else 1)
    yield from _uneven("sequence parallelism: the length of a context-parallel rank by tp", length, tp * cp)
    if int(one["max-position-embeddings"]) < length:
        yield "validate_args: max_position_embeddings"
    yield from _megatron_widths(one, tp)
    yield from _megatron_attention(one, tp, cp)
    yield from _megatron_experts(one, world_size, tp, pp)
    yield from _megatron_layout(one, pp)
    yield from _megatron_state(one, world_size // (tp * pp))


def _megatron_batch(one: Arguments, world_size: int, model_size: int) -> Iterator[str]:
    yield from _uneven("validate_args: the world by tp pp cp", world_size, model_size)
    at_once = int(one["micro-batch-size"]) * (world_size // model_size)
    yield from _uneven("num_microbatches_calculator: the batch", int(one["global-batch-size"]), at_once)
    chunks, pp = _chunks(one), _int(one, "pipeline-model-parallel-size")
    if chunks > 1:
        num_microbatches = int(one["global-batch-size"]) // at_once
        group = _int(one, "microbatch-group-size-per-virtual-pipeline-stage", pp)
        if not pp <= group <= num_microbatches:
            yield f"forward_backward_with_interleaving: groups of {group} of {num_microbatches} over {pp}"
        elif 0 < num_microbatches % group < pp:
            yield f"forward_backward_pipelining_with_interleaving: {num_microbatches} micro-batches by {group}"


def _megatron_widths(one: Arguments, tp: int) -> Iterator[str]:
    heads = int(one["num-attention-heads"])
    groups = _int(one, "num-query-groups", heads)
    yield from _uneven("TransformerConfig: heads by tp", heads, tp)
    if groups % tp and tp % groups:
        yield f"TransformerConfig: {groups} query groups by tp {tp}"
    if "kv-channels" not in one:
        yield from _uneven("validate_args: the hidden size by heads", int(one["hidden-size"]), heads)
    if "multi-latent-attention" in one and "group-query-attention" in one:
        yield "validate_args: groups beside latent attention"
    frequency = list(_layer_kinds(one))
    if 0 in frequency:
        yield from _uneven("ColumnParallelLinear: the feed-forward width by tp", int(one["ffn-hidden-size"]), tp)
    for name in ("moe-ffn-hidden-size", "moe-shared-expert-intermediate-size"):
        yield from _uneven(f"ColumnParallelLinear: {name} by tp", _int(one, name, 0), tp)


def _megatron_experts(one: Arguments, world_size: int, tp: int, pp: int) -> Iterator[str]:
    num_experts, ep = _int(one, "num-experts", 0), _int(one, "expert-model-parallel-size")
    yield from _uneven("initialize_model_parallel: the world by etp ep pp", world_size, tp * ep * pp)
    if not num_experts:
        if ep > 1:
            yield "validate_args: ep without experts"
        return
    yield from _uneven("validate_args: experts by ep", num_experts, ep)
    top_k = int(one["moe-router-topk"])
    if top_k == 1 and one["moe-router-score-function"] == "softmax" and "moe-router-pre-softmax" not in one:
        yield "TransformerConfig: softmax of one expert"
    has_bias = "disable-bias-linear" not in one
    if has_bias and (tp > 1 or "moe-shared-expert-intermediate-size" in one or "no-bias-dropout-fusion" not in one):
        yield "TransformerConfig, SharedExpertMLP, TEGroupedMLP: biases of experts"
    if group_top_k := _int(one, "moe-router-group-topk", 0):
        num_groups = int(one["moe-router-num-groups"])
        yield from _uneven("TransformerConfig: experts by groups", num_experts, num_groups)
        if top_k // group_top_k > num_experts // num_groups:
            yield "group_limited_topk: fewer experts in a group than are taken"


def _megatron_layout(one: Arguments, pp: int) -> Iterator[str]:
    """PipelineParallelLayerLayout."""
    if pp == 1:
        if "pipeline-model-parallel-layout" in one:
            yield from _uneven("layout: stages by ranks", len(_stages(one)), pp)
        return
    stages = _stages(one)
    flat = "".join(stages)
    yield from _uneven("layout: stages by ranks", len(stages), pp)
    if flat[0] != "E" or flat[-1] != "L" or flat.count("E") != 1 or flat.count("L") != 1:
        yield f"layout: ends of {flat}"
    if flat.count("t") != int(one["num-layers"]) or flat.count("m") != _int(one, "mtp-num-layers", 0):
        yield f"layout: layers of {flat}"
    if "m" in "".join(stages[:-1]) or re.search("m.*t", flat):
        yield "layout: layers of multi-token prediction are not last"
    if _int(one, "mtp-num-layers", 0) and one["position-embedding-type"] not in ("rope", "none"):
        yield "validate_args: positions of multi-token prediction"


def _megatron_state(one: Arguments, sharing: int) -> Iterator[str]:
    """`sharing` ranks hold the same part of the model: dp x cp."""
    instances, ep = _int(one, "num-distributed-optimizer-instances"), _int(one, "expert-model-parallel-size")
    yield from _uneven("initialize_model_parallel: dp cp by instances", sharing, instances)
    yield from _uneven("initialize_model_parallel: expert dp by instances", sharing // ep, instances)
    is_split, optimizer = "use-distributed-optimizer" in one, one["optimizer"]
    if is_split and optimizer != "adam":
        yield f"DistributedOptimizer, validate_args: {optimizer}"
    if "muon" in optimizer and ("use-megatron-fsdp" in one or "fp16" in one or instances > 1):
        yield "validate_args, _get_megatron_emerging_optimizer: muon"
    if "overlap-param-gather" in one and not (is_split or optimizer == "dist_muon"):
        yield "validate_args: overlap-param-gather without a distributed optimizer"
    if "overlap-param-gather" in one and "overlap-grad-reduce" not in one:
        yield "validate_args: overlap-param-gather without overlap-grad-reduce"
    if ("use-megatron-fsdp" in one) != (one.get("ckpt-format") == "fsdp_dtensor"):
        yield "validate_args: the checkpoint format of FSDP"
    if one.get("recompute-granularity") == "full" and not {"recompute-method", "recompute-num-layers"} <= set(one):
        yield "TransformerConfig: full recomputation without a method"


def titan_stops(one: Arguments, world_size: int, model: dict[str, Any]) -> Iterator[str]:
    """Why torchtitan would not start on so many GPUs with a model of these sizes."""
    pp, tp, cp, ep = (
        _int(one, f"parallelism.{name}_parallel_degree") for name in ("pipeline", "tensor", "context", "expert")
    )
    replicate, shard = (int(one[f"parallelism.data_parallel_{name}_degree"]) for name in ("replicate", "shard"))
    if replicate * shard * cp * tp * pp != world_size:
        yield "ParallelDims: the world"
    yield from _uneven("ParallelDims: dp_shard cp tp by ep", shard * cp * tp, ep)
    yield from _uneven("Decoder: heads by tp", model["heads"], tp)
    yield from _uneven("Decoder: key/value heads by tp", model["kv_heads"], tp)
    yield from _uneven("Decoder: experts by ep", model["experts"], ep)
    if model["tied"] and pp > 1:
        yield "Decoder: tied weights in a pipeline"
    tokens = int(one["training.num_tokens_per_microbatch_per_dp_rank"])
    yield from _uneven("Trainer: tokens by tp 2 cp", tokens, tp * (2 * cp if cp > 1 else 1))
    yield from _uneven("_create_cp_block_mask: tokens by blocks of cp", tokens, BLOCK * cp if cp > 1 else 1)
    at_once = tokens * (_int(one, "parallelism.num_pp_microbatches") if pp > 1 else 1) * replicate * shard
    yield from _uneven("Trainer: tokens of a step", int(one["training.num_tokens_per_train_step"]), at_once)
    if (pp > 1 or ep > 1) and "training.disable_cuda_graphs" not in one:
        yield "Trainer: CUDA graphs"
    if pp > 1:
        stages, schedule = model["stages"], one["parallelism.pipeline_parallel_schedule"]
        yield from _uneven("_pipeline_module_split: stages by ranks", stages, pp)
        if schedule == "ZBVZeroBubble" and stages != 2 * pp:
            yield "_pipeline_module_split: a V of other than two chunks"


def _int(one: Arguments, name: str, otherwise: int = 1) -> int:
    return int(one.get(name, otherwise))


def _uneven(what: str, number: int, divisor: int) -> Iterator[str]:
    if number % divisor:
        yield f"{what}: {number} by {divisor}"


def _stages(one: Arguments) -> list[str]:
    text = re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), one["pipeline-model-parallel-layout"])
    return text.split("|")


def _chunks(one: Arguments) -> int:
    pp = _int(one, "pipeline-model-parallel-size")
    return len(_stages(one)) // pp if pp > 1 else 1


def _layer_kinds(one: Arguments) -> list[int]:
    """1 for a layer with experts, 0 for a dense one."""
    return _pattern(one["moe-layer-freq"]) if "num-experts" in one else [0] * int(one["num-layers"])


def _pattern(text: str) -> list[int]:
    """The lists that _eval_pattern of arguments.py takes: nothing but digits, brackets, commas, + and *."""
    assert re.fullmatch(r"[,\d\[\]()+*]+", text), text
    found: list[int] = eval(text)
    return found


def _megatron_attention(one: Arguments, tp: int, cp: int) -> Iterator[str]:
    """core_transformer_config_from_args, TransformerConfig, and attention over context-parallel ranks."""
    layers = int(one["num-layers"])
    for name in ("no-rope-freq", "window-attn-skip-freq", "moe-layer-freq"):
        if name in one and len(_pattern(one[name])) != layers:
            yield f"TransformerConfig: {name} of {layers} layers"
    has_sinks, exchange = one.get("softmax-type", "vanilla") != "vanilla", one.get("cp-comm-type", "p2p")
    if cp > 1 and has_sinks and exchange != "a2a":
        yield "attn_forward_func_with_cp: sinks"
    if cp > 1 and "window-size" in one and exchange not in ("a2a", "all_gather"):
        yield "attn_forward_func_with_cp: windows"
    if cp > 1 and exchange == "a2a":
        heads = _int(one, "num-query-groups", int(one["num-attention-heads"]))
        yield from _uneven("AttnFuncWithCPAndQKVOA2A: heads by tp cp", heads, tp * cp)
    if "glu-linear-offset" in one and "quick-geglu" not in one:
        yield "TransformerConfig: an offset without quick GELU"
