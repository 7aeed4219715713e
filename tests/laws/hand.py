"""Figures of a plan computed by hand, from the request and the plan's degrees: FLOPs, parameters, bytes."""

from __future__ import annotations

from itertools import pairwise

from models.plan import Plan
from models.request import PlanRequest
from models.workload import Architecture, GroupedQueryAttention


def projection_parameters(model: Architecture) -> float:
    """Weights of the attention of one layer."""
    attention, hidden = model.attention, model.hidden_size
    if isinstance(attention, GroupedQueryAttention):
        return hidden * attention.head_dim * (2 * attention.num_heads + 2 * attention.num_kv_heads)
    heads, nope, rope = attention.num_heads, attention.qk_nope_head_dim, attention.qk_rope_head_dim
    rank = attention.q_lora_rank
    query = hidden * rank + rank * heads * (nope + rope) if rank else hidden * heads * (nope + rope)
    latent = hidden * (attention.kv_lora_rank + rope)
    expanded = attention.kv_lora_rank * heads * (nope + attention.v_head_dim)
    return query + latent + expanded + heads * attention.v_head_dim * hidden


def core_width(model: Architecture) -> float:
    """Width of the scores and of their product with the values, all heads together."""
    attention = model.attention
    if isinstance(attention, GroupedQueryAttention):
        return 2.0 * attention.num_heads * attention.head_dim
    return float(attention.num_heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim))


def used_width(model: Architecture, layer: int) -> float:
    """Inner width of the feed-forward that every token goes through in a layer."""
    experts = model.moe
    if experts is None or not model.is_moe_layer(layer):
        return model.ffn_hidden_size
    shared = experts.shared_expert_ffn_hidden_size or experts.expert_ffn_hidden_size
    return experts.experts_per_token * experts.expert_ffn_hidden_size + experts.num_shared_experts * shared


def training_flops(request: PlanRequest) -> float:
    """Three times the forward: 2 FLOPs per weight and token, causal scores half counted, logits at every head."""
    model, job = request.workload.architecture, request.workload
    layers = [*range(model.num_layers), *[model.num_layers - 1] * model.num_mtp_layers]
    matrices = 3 if model.gated_mlp else 2
    per_token = 0.0
    for layer in layers:
        per_token += 2.0 * projection_parameters(model) + job.sequence_length * core_width(model)
        per_token += 2.0 * matrices * model.hidden_size * used_width(model, layer)
        if model.moe is not None and model.is_moe_layer(layer):
            per_token += 2.0 * model.hidden_size * model.moe.num_experts
    per_token += 2.0 * model.hidden_size * model.vocab_size * (1 + model.num_mtp_layers)
    return 3.0 * per_token * job.tokens_per_iteration


def peak_flops_per_s(request: PlanRequest, plan: Plan) -> float:
    """Peak of all GPUs that the plan uses, at the job's precision."""
    pools = {pool.id: pool.gpu for pool in request.cluster.pools}
    peaks = {
        name: {
            "fp8": gpu.fp8_flops_per_s,
            "fp4": gpu.fp4_flops_per_s,
            "fp32": gpu.fp32_flops_per_s or gpu.bf16_flops_per_s / 2,
        }
        for name, gpu in pools.items()
    }
    group, precision = plan.configuration.degrees.gpus_per_stage_group, request.workload.precision
    rates = [
        (peaks[pool].get(precision) or pools[pool].bf16_flops_per_s) * route.num_replicas
        for route in plan.placement.routes
        for pool in route.pools
    ]
    return group * float(sum(rates))


def building_of(request: PlanRequest, place: str) -> str:
    """The building that a place is or lies in; the place itself where it lies in none."""
    places = {one.id: one for one in request.cluster.places}
    here = places[place]
    while here.level != "building" and here.parent is not None:
        here = places[here.parent]
    return here.id if here.level == "building" else place


def may_leave_and_come_back(request: PlanRequest) -> bool:
    """Whether links join a building with others at two places of it: between those the way may lead outside."""
    doors = {(building_of(request, here), here)
             for link in request.cluster.links
             for here, there in ((link.from_place, link.to_place), (link.to_place, link.from_place))
             if building_of(request, here) != building_of(request, there)}  # fmt: skip
    return len(doors) > len({building for building, _ in doors})


def stage_message_bytes(request: PlanRequest, plan: Plan) -> float:
    """Bytes of activations and their gradients over all boundaries between buildings, once each way."""
    one, job = plan.configuration, request.workload
    crossings = 0
    for route in plan.placement.routes:
        ranks = [one.rank_of_stage(stage) for stage in range(one.degrees.num_stages)]
        at = [building_of(request, route.places[rank]) for rank in ranks]
        crossings += route.num_replicas * sum(here != there for here, there in pairwise(at))
    tokens = one.micro_batch_sequences * job.sequence_length * one.num_microbatches
    each = 4.0 if job.precision == "fp32" else 2.0
    return 2.0 * crossings * tokens * job.architecture.hidden_size * each
