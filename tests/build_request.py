"""A small planning request with everything the rules on plans ask about: two buildings and a spare one, one dense job.

Every default value can be replaced. Places: region `campus` with the buildings east, west and north.
"""

from __future__ import annotations

from typing import Any

from models.request import PlanRequest

GPU = {
    "name": "test-gpu",
    "bf16_flops_per_s": 1e15,
    "memory_bytes": 8e10,
    "memory_bytes_per_s": 3.35e12,
    "scale_up_bytes_per_s": 4.5e11,
    "scale_up_domain_gpus": 8,
    "usd_per_gpu_hour": 2.0,
}
ARCHITECTURE = {
    "name": "test-dense",
    "num_layers": 8,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "attention": {"kind": "gqa", "num_heads": 32, "num_kv_heads": 8, "head_dim": 128},
    "vocab_size": 32000,
}


def profile(kind: str, forward_s: float, held_bytes: float) -> dict[str, Any]:
    """A measured profile, so that the stage times of tests do not depend on the calibration of the cost model."""
    return {
        "layer_kind": kind,
        "gpu": GPU["name"],
        "micro_batch_sequences": 1,
        "tp": 2,
        "forward_s": forward_s,
        "input_grad_s": 1.1 * forward_s,
        "weight_grad_s": 0.7 * forward_s,
        "activation_bytes": held_bytes,
        "weight_grad_context_bytes": held_bytes,
    }


PROFILES = [profile("dense", 2e-3, 2.8e8), profile("embedding", 1e-5, 0.0), profile("logits", 1e-3, 0.0)]


def workload(batch: int = 16, **architecture: Any) -> dict[str, Any]:
    """The job of `batch` sequences, with changes to its architecture."""
    return {
        "architecture": ARCHITECTURE | architecture,
        "sequence_length": 4096,
        "global_batch_sequences": batch,
        "layer_profiles": PROFILES,
    }


def pool(name: str, num_hosts: int, **changes: Any) -> dict[str, Any]:
    """A pool of hosts with 8 GPUs each in the place of the same name, with named hosts."""
    hosts = [f"{name}-node-{index}" for index in range(num_hosts)]
    return {
        "id": f"{name}-pool",
        "place": name,
        "gpu": GPU,
        "num_hosts": num_hosts,
        "gpus_per_host": 8,
        "nic_bytes_per_s": 5e10,
        "host_names": hosts,
    } | changes


def link(name: str, from_place: str, to_place: str, **changes: Any) -> dict[str, Any]:
    """A link of 400 GB/s and half a millisecond that offers ECMP only."""
    return {
        "id": name,
        "from_place": from_place,
        "to_place": to_place,
        "capacity_bytes_per_s": 4e11,
        "latency_s": 5e-4,
        "planes": 4,
        "usd_per_gb": 0.01,
    } | changes


def cluster() -> dict[str, Any]:
    """East with 16 GPUs, west with 8 and a spare north with 8, in a triangle of links."""
    return {
        "name": "three-buildings",
        "places": [
            {"id": "campus", "level": "region"},
            {"id": "east", "level": "building", "parent": "campus"},
            {"id": "west", "level": "building", "parent": "campus"},
            {"id": "north", "level": "building", "parent": "campus"},
        ],
        "pools": [pool("east", 2), pool("west", 1), pool("north", 1)],
        "links": [
            link("east-west", "east", "west"),
            link("east-north", "east", "north"),
            link("north-west", "north", "west"),
        ],
    }


def build_request(**changes: Any) -> PlanRequest:
    """The request; `changes` replace its parts by name: workload, cluster, constraints, objective, options."""
    return PlanRequest.model_validate({"workload": workload(), "cluster": cluster()} | changes)
