"""Random planning requests over the whole vocabulary, small enough that every configuration can be bounded.

Models, clusters, measured layers and software stacks are drawn, ordinary ones and those at the edge of what is allowed.
What should hold of a request is said elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from models.catalogue import entry_names, named_entry
from models.request import PlanRequest
from models.stack import SHARES_OF_A_WIRE, StackProfile

Drawn = TypeVar("Drawn")
GPUS = ("H100-SXM-80G", "H100-SXM-80G", "A100-SXM-80G", "A100-SXM-40G", "B200-SXM", "H200-SXM-141G", "MI300X")
SHARES = ("overlap", "efficiency", "share")  # names of constants that stay below one, or near it


class Draw:
    """Random choices from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def one(self, values: Sequence[Drawn]) -> Drawn:
        """Any of these values."""
        return values[int(self.random.integers(len(values)))]

    def some(self, values: Sequence[Drawn]) -> list[Drawn]:
        """One or more of these values, in their order."""
        kept = [value for value in values if self.random.random() < 0.5]
        return kept or [self.one(values)]

    def chance(self, probability: float) -> bool:
        """True so often."""
        return bool(self.random.random() < probability)

    def between(self, low: float, high: float) -> float:
        """Between these, all magnitudes alike."""
        return float(np.exp(self.random.uniform(np.log(low), np.log(high))))


def random_request(seed: int) -> PlanRequest:
    """The request of a seed; it may have no plan."""
    draw = Draw(seed)
    cluster = _cluster(draw)
    workload = _workload(draw, sorted({pool["gpu"]["name"] for pool in cluster["pools"]}))
    return PlanRequest.model_validate(
        {
            "workload": workload,
            "cluster": cluster,
            "constraints": _constraints(draw),
            "objective": {
                "kind": draw.one(("iteration_time", "least_cross_building_traffic")),
                "target_iteration_s": 1e6,
            },
            "options": {"stack_profile": _stack(draw), "workers": 1},
        }
    )


def _architecture(draw: Draw) -> dict[str, Any]:
    heads = draw.one((8, 16, 32))
    layers = int(draw.random.integers(1, 15))
    attention: dict[str, Any] = {
        "kind": "gqa",
        "num_heads": heads,
        "num_kv_heads": draw.one((heads, heads // 4, 1)),
        "head_dim": draw.one((64, 128)),
    }
    if draw.chance(0.15):
        attention = {
            "kind": "mla",
            "num_heads": heads,
            "q_lora_rank": draw.one((0, 512)),
            "kv_lora_rank": 256,
            "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 32,
            "v_head_dim": 64,
        }
    moe = None
    if draw.chance(0.35):
        moe = {
            "num_experts": draw.one((4, 8, 64)),
            "experts_per_token": draw.one((1, 2, 4)),
            "expert_ffn_hidden_size": draw.one((512, 4096)),
            "num_shared_experts": draw.one((0, 0, 1)),
            "first_moe_layer": int(draw.random.integers(0, layers)) if draw.chance(0.5) else 0,
            "moe_layer_stride": draw.one((1, 1, 2, 3)),
            "max_nodes_per_token": draw.one((None, 1, 2)),
        }
    return {
        "name": "drawn",
        "num_layers": layers,
        "hidden_size": draw.one((512, 2048, 4096, 8192)),
        "ffn_hidden_size": draw.one((1024, 8192, 16384, 28672)),
        "gated_mlp": draw.chance(0.5),
        "attention": attention,
        "vocab_size": draw.one((512, 32000, 256000)),
        "tied_embeddings": draw.chance(0.3),
        "moe": moe,
        "num_mtp_layers": draw.one((0, 0, 0, 1, 2)),
    }


def _workload(draw: Draw, gpus: Sequence[str]) -> dict[str, Any]:
    eight_bit = not any(gpu.startswith("A100") for gpu in gpus)
    profiles = [_profile(draw, gpus) for _ in range(draw.one((1, 4, 16)))] if draw.chance(0.4) else []
    return {
        "architecture": _architecture(draw),
        "sequence_length": draw.one((512, 2048, 4096, 4096, 16384)),
        "global_batch_sequences": draw.one((1, 6, 16, 24, 48, 64, 96)),
        "precision": draw.one(("bf16", "bf16", "fp8")) if eight_bit else draw.one(("bf16", "fp16")),
        "flash_attention": draw.chance(0.8),
        "causal_attention": draw.chance(0.8),
        "optimizer": {
            "state_bytes_per_parameter": draw.one((0, 8, 12)),
            "gradient_bytes_per_parameter": draw.one((1, 2, 4)),
        },
        "layer_profiles": profiles,
    }


def _profile(draw: Draw, gpus: Sequence[str]) -> dict[str, Any]:
    """Anything from far faster to far slower than the formulas."""
    slowness = draw.between(1e-6, 3e-2)
    return {
        "layer_kind": draw.one(("dense", "dense", "moe", "embedding", "logits")),
        "gpu": draw.one(gpus),
        "micro_batch_sequences": draw.one((1, 1, 2, 4)),
        "tp": draw.one((1, 2, 4, 8)),
        "cp": 1,
        "ep": draw.one((1, 1, 4)),
        "recompute": draw.one(("none", "full")),
        "forward_s": slowness * draw.between(0.5, 2),
        "input_grad_s": slowness * draw.between(0.5, 2),
        "weight_grad_s": slowness * draw.between(0.01, 2),
        "activation_bytes": draw.one((0.0, 1e6, 3e8)),
        "weight_grad_context_bytes": draw.one((0.0, 1e6, 4e8)),
    }


def _stack(draw: Draw) -> Any:
    """A profile of the catalogue, or one whose constants are pulled far apart."""
    name = draw.one(entry_names("stacks"))
    if draw.chance(0.6):
        return name
    stack = dict(named_entry("stacks", name))
    for key, field in StackProfile.model_fields.items():
        if not (field.json_schema_extra or {}) or not draw.chance(0.3):
            continue
        value = StackProfile.model_validate(named_entry("stacks", name)).model_dump()[key]["value"]
        pulled = (value or 0.1) * draw.between(0.1, 10)
        limit = (
            1.0
            if key.endswith("overlap") or key in SHARES_OF_A_WIRE
            else 1.5
            if any(word in key for word in SHARES)
            else 1e15
        )
        stack[key] = {"value": min(pulled, limit), "origin": "guessed"}
    for key in ("sequence_parallel", "fused_gradient_accumulation", "scatter_gather_pipeline", "context_parallel_ring"):
        stack[key] = draw.chance(0.7)
    return stack


def _wires(draw: Draw) -> dict[str, Any]:
    return {
        "planes": draw.one((1, 1, 4, 32, 200)),
        "technology": draw.one(("roce", "roce", "tcp", "infiniband")),
        "load_balancing": draw.some(("ecmp", "ecmp_qp_scaling", "spray", "dqplb")),
        "loss_probability": draw.one((0.0, 0.0, 1e-6, 1e-4, 1e-2)),
    }


def _place(draw: Draw, name: str, level: str, parent: str | None) -> dict[str, Any]:
    place: dict[str, Any] = {"id": name, "level": level, "parent": parent}
    if draw.chance(0.4):
        latency = draw.one((None, 0.0, 1e-4, 2e-2))
        place["uplink"] = {**_wires(draw), "oversubscription": draw.between(1, 64), "latency_s": latency}
    return place


def _cluster(draw: Draw) -> dict[str, Any]:
    """One to four buildings in a region or alone, with zones or without, and several pools in some places."""
    num_buildings, in_region = draw.one((1, 2, 2, 3, 4)), draw.chance(0.5)
    places = [{"id": f"r{number}", "level": "region"} for number in range(2)] if in_region else []
    names, sites = [f"b{number}" for number in range(num_buildings)], []
    for number, name in enumerate(names):
        places.append(_place(draw, name, "building", f"r{number // 2}" if in_region else None))
        zones = [f"{name}z{zone}" for zone in range(draw.one((0, 0, 1, 2)))]
        places += [_place(draw, zone, "zone", name) for zone in zones]
        sites += zones if zones and draw.chance(0.8) else [name, *zones]
    sites += ["r0"] if in_region and draw.chance(0.1) else []
    gpus = [_gpu(draw, number) for number in range(draw.one((1, 1, 2, 3)))]
    pools = [_pool(draw, f"{site}p{number}", site, gpus) for site in sites for number in range(draw.one((1, 1, 2)))]
    pairs = [pair for pair in itertools.combinations(names, 2) if not in_region or draw.chance(0.7)]
    if in_region and num_buildings > 2:
        pairs.append((names[0], names[2]))
    links = [_link(draw, number, *pair) for number, pair in enumerate(dict.fromkeys(pairs))]
    return {"name": "drawn", "places": places, "pools": pools, "links": links}


def _gpu(draw: Draw, number: int) -> dict[str, Any]:
    """A type of the catalogue, or one that differs from it, maybe in what matrix products do not need."""
    gpu = {**named_entry("gpus", draw.one(GPUS)), "usd_per_gpu_hour": draw.one((None, 2.0, 5.0))}
    gpu["name"] = f"{gpu['name']}-{number}"
    if draw.chance(0.4):
        for name in draw.some(("memory_bytes_per_s", "scale_up_bytes_per_s", "memory_bytes", "bf16_flops_per_s")):
            gpu[name] *= draw.between(0.3, 3)
        gpu["num_multiprocessors"] = draw.one((None, 64, 108))
        gpu["scale_up_domain_gpus"] = draw.one((1, 4, 8, 72))
    return gpu


def _pool(draw: Draw, name: str, site: str, gpus: Sequence[dict[str, Any]]) -> dict[str, Any]:
    hosts, per_host = draw.one((1, 1, 2, 3)), draw.one((8, 8, 8, 4, 2))
    return {
        "id": name,
        "place": site,
        "gpu": draw.one(gpus),
        "num_hosts": hosts,
        "gpus_per_host": per_host,
        "nics_per_gpu": draw.one((1, 1, 0.125, 0.5, 2)),
        "nic_bytes_per_s": draw.one((5e10, 2.5e10, 1e9)),
        "num_unhealthy_gpus": draw.one((0, 0, 0, 1)),
        "num_reserved_gpus": draw.one((0, 0, 0, per_host // 2)),
    }


def _link(draw: Draw, number: int, one: str, other: str) -> dict[str, Any]:
    capacity = draw.between(1e9, 1e13)
    return {
        **_wires(draw),
        "id": f"l{number}",
        "from_place": one,
        "to_place": other,
        "capacity_bytes_per_s": capacity,
        "reverse_capacity_bytes_per_s": draw.one((None, capacity / 3)),
        "latency_s": draw.one((0.0, 1e-5, 1e-3, 3e-2)),
        "oversubscription": draw.one((1.0, 1.0, 2.0)),
        "background_bytes_per_s": draw.one((0.0, 0.0, 0.1 * capacity)),
        "out_of_order_receivers": draw.chance(0.5),
        "usd_per_gb": draw.one((None, 0.02)),
    }


def _constraints(draw: Draw) -> dict[str, Any]:
    allowed: dict[str, Any] = {"micro_batch_sequences": [1, 2, 4]}
    offers: dict[str, Sequence[Any]] = {
        "sharding": ("ddp", "zero1", "fsdp", "hsdp"),
        "recompute": ("none", "selective", "full"),
        "family": ("one_way", "loop", "v"),
        "layer_split": ("even", "by_gpu_type"),
        "pp": (1, 2, 3, 4, 5, 6, 8),
        "vpp": (1, 2, 3),
    }
    allowed.update({name: draw.some(values) for name, values in offers.items() if draw.chance(0.3)})
    return {
        "allowed": allowed,
        "memory_headroom_fraction": draw.one((0.0, 0.06, 0.06, 0.5, 0.85)),
        "framework": draw.one((None, None, None, *entry_names("frameworks"))),
    }
