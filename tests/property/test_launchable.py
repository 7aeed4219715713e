"""A plan for Megatron-LM or torchtitan starts there: what is exported passes the checks of the stack itself."""

from __future__ import annotations

import random
from typing import Any

import pytest

from app.exporters.launch.nemo_job import nemo_job
from app.exporters.megatron_args import megatron_args
from app.exporters.torchtitan_args import torchtitan_args
from app.faults import Refused
from models.outcome import Infeasible, Planned
from models.request import PlanRequest
from solver.planner import plan
from tests.property.stack_checks import arguments_of, megatron_stops, titan_stops

SEEDS, FAST = range(40), 15  # eighty requests take half a minute on one core


@pytest.mark.parametrize("framework", ["megatron-core", "torchtitan"])
@pytest.mark.parametrize("seed", [*SEEDS[:FAST], *(pytest.param(one, marks=pytest.mark.slow) for one in SEEDS[FAST:])])
def test_what_is_planned_for_a_stack_starts_there(framework: str, seed: int) -> None:
    """Only Megatron-LM's command line has less than the profile: multi-token prediction with learned positions."""
    request = PlanRequest.model_validate(_request(random.Random(seed), framework))
    outcome = plan(request)
    if isinstance(outcome, Infeasible):
        assert all(reason.detail and reason.remedies for reason in outcome.reasons)
        return
    assert isinstance(outcome, Planned)
    degrees, architecture = outcome.plan.configuration.degrees, request.workload.architecture
    world_size = degrees.tp * degrees.cp * degrees.pp * degrees.dp
    try:
        if framework == "torchtitan":
            sizes = {
                "heads": architecture.attention.num_heads,
                "kv_heads": architecture.attention.num_kv_heads,
                "experts": architecture.moe.num_experts if architecture.moe else 0,
                "tied": architecture.tied_embeddings,
                "stages": degrees.num_stages,
            }
            assert not list(titan_stops(arguments_of(torchtitan_args(outcome.plan, request)), world_size, sizes))
            return
        assert not list(megatron_stops(arguments_of(megatron_args(outcome.plan, request)), world_size))
        assert nemo_job(outcome.plan, request)
    except Refused as refusal:
        if refusal.faults[0].pointer != "/request/workload/architecture/num_mtp_layers":
            raise


def _request(dice: random.Random, framework: str) -> dict[str, Any]:
    """A model with odd sizes on a few hosts, in one building or two, with some degrees left open."""
    length = dice.choice([1000, 2048, 4096, 4100, 5000, 6144, 8192, 12289, 30720, 65536, 100_000, 131_072, 1_000_000])
    num_buildings = dice.choice([1, 1, 2])
    pools = [
        {"id": f"p{number}", "place": f"b{number}", "gpu": "H100-SXM-80G", "num_hosts": dice.randint(1, 4)}
        | {"nic_bytes_per_s": 5e10}
        for number in range(num_buildings)
    ]
    link = {"id": "l", "from_place": "b0", "to_place": "b1", "capacity_bytes_per_s": 1.6e11, "latency_s": 1e-3}
    choices = {
        "tp": [[8], [4], [2, 4], [1, 8]],
        "cp": [[2], [4], [1, 2]],
        "pp": [[2], [4]],
        "vpp": [[2]],
        "micro_batch_sequences": [[1], [2]],
    }
    return {
        "workload": {
            "architecture": _architecture(dice),
            "sequence_length": length,
            "global_batch_sequences": dice.choice([4, 6, 8, 12, 24, 32, 48] if length < 50_000 else [1, 2, 4, 8]),
            "precision": dice.choice(["bf16", "bf16", "fp8", "fp16", "fp32"]),
            "optimizer": {"name": dice.choice(["adam", "adam", "adam", "sgd", "muon"])},
        },
        "cluster": {
            "name": "few-hosts",
            "places": [{"id": pool["place"], "level": "building"} for pool in pools],
            "pools": pools,
            "links": [link] if num_buildings == 2 else [],
        },
        "constraints": {
            "framework": framework,
            "allowed": {name: dice.choice(values) for name, values in choices.items() if dice.random() < 0.2},
        },
        "options": {"time_limit_s": 2.0, "workers": 1, "reproducible": True},
    }


def _architecture(dice: random.Random) -> dict[str, Any]:
    heads, width = dice.choice([4, 6, 7, 8, 9, 12, 14, 16, 20, 25, 32, 40]), dice.choice([64, 96, 128])
    kv_heads = dice.choice([number for number in range(1, heads + 1) if heads % number == 0])
    hidden = dice.choice([heads * width, 2048, 2560, 5000])
    latent = {"q_lora_rank": 512, "kv_lora_rank": 256, "qk_nope_head_dim": width, "qk_rope_head_dim": 32}
    experts = dice.choice([4, 6, 8, 10, 60, 64])
    moe = {
        "num_experts": experts,
        "experts_per_token": dice.choice([1, 2, 4]),
        "expert_ffn_hidden_size": dice.choice([768, 1366, 1408, 2048]),
        "num_shared_experts": dice.choice([0, 0, 1, 2]),
        "first_moe_layer": dice.choice([0, 1]),
        "moe_layer_stride": dice.choice([1, 1, 2]),
    }
    groups = {"router_groups": dice.choice([2, 4, 8]), "router_groups_per_token": dice.choice([1, 2])}
    return {
        "name": "odd",
        "num_layers": dice.choice([2, 5, 8, 13, 16, 24, 31]),
        "hidden_size": hidden,
        "ffn_hidden_size": dice.choice([4 * hidden, 4864, 5461, 8190, 11008]),
        "gated_mlp": dice.random() < 0.7,
        "attention": {"kind": "mla", "num_heads": heads, "v_head_dim": width, **latent}
        if dice.random() < 0.15
        else {"kind": "gqa", "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": width},
        "vocab_size": dice.choice([32000, 50257, 128256, 99991]),
        "tied_embeddings": dice.random() < 0.3,
        "moe": moe if dice.random() < 0.35 else None,
        "num_mtp_layers": int(dice.random() < 0.2),
        "definition": {
            "linear_bias": dice.random() < 0.15,
            "qkv_bias": dice.random() < 0.3,
            "position_embedding": dice.choice(["rope", "rope", "learned", "none"]),
            "attention_sinks": dice.random() < 0.2,
            "attention_window": {"tokens": 512, "whole_layers": [1]} if dice.random() < 0.3 else None,
            **(groups if dice.random() < 0.3 else {}),
        },
    }
