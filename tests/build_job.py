"""Small planning requests for tests of the search: one dense model on one or two buildings of H100s.

Every default value can be replaced.
"""

from __future__ import annotations

from typing import Any

from models.request import PlanRequest
from solver.context import Context

ARCHITECTURE: dict[str, Any] = {
    "name": "small-dense",
    "num_layers": 16,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "attention": {"kind": "gqa", "num_heads": 32, "num_kv_heads": 8, "head_dim": 128},
    "vocab_size": 32000,
}
FIXED: dict[str, Any] = {
    "tp": [2],
    "cp": [1],
    "pp": [4],
    "vpp": [1],
    "micro_batch_sequences": [1],
    "recompute": ["none"],
}


def job(
    *,
    hosts: tuple[int, ...] = (4, 4),
    batch: int = 64,
    allowed: dict[str, Any] | None = None,
    link: dict[str, Any] | None = None,
    pool: dict[str, Any] | None = None,
    **request: Any,
) -> PlanRequest:
    """A job on as many buildings as `hosts` has entries, neighbours joined by a link."""
    places = [{"id": f"b{index}", "level": "building"} for index in range(len(hosts))]
    pools = [
        {"id": f"p{index}", "place": f"b{index}", "gpu": "H100-SXM-80G", "num_hosts": count, "nic_bytes_per_s": 5e10}
        | (pool or {})
        for index, count in enumerate(hosts)
    ]
    links = [
        {"id": f"l{index}", "from_place": f"b{index}", "to_place": f"b{index + 1}", "capacity_bytes_per_s": 1.6e12}
        | {"latency_s": 1e-4}
        | (link or {})
        for index in range(len(hosts) - 1)
    ]
    constraints = {"allowed": FIXED if allowed is None else allowed} | request.pop("constraints", {})
    options = {"time_limit_s": 20.0, "relative_gap": 0.0, "workers": 1} | request.pop("options", {})
    workload = {"architecture": ARCHITECTURE, "sequence_length": 4096, "global_batch_sequences": batch}
    return PlanRequest.model_validate(
        {
            "workload": workload | request.pop("workload", {}),
            "cluster": {"name": "test", "places": places, "pools": pools, "links": links},
            "constraints": constraints,
            "options": options,
            **request,
        }
    )


def context_of(request: PlanRequest) -> Context:
    """The context that the planner would make."""
    return Context.of(request)


def three_types(architecture: dict[str, Any], *, hosts: int, batch: int, allowed: dict[str, list[Any]]) -> Context:
    """Three buildings, each with so many hosts of a GPU type of its own, in a chain of links."""
    gpus = ("H100-SXM-80G", "H200-SXM-141G", "B200-SXM")
    places = [{"id": name, "level": "building"} for name in "abc"]
    pools = [
        {"id": f"p{place}", "place": place, "gpu": gpu, "num_hosts": hosts, "nic_bytes_per_s": 5e10}
        for place, gpu in zip("abc", gpus, strict=True)
    ]
    links = [
        {"id": f"{a}{b}", "from_place": a, "to_place": b, "capacity_bytes_per_s": 1e12, "latency_s": 1e-4}
        for a, b in ("ab", "bc")
    ]
    request = {
        "workload": {"architecture": architecture, "sequence_length": 4096, "global_batch_sequences": batch},
        "cluster": {"name": "types", "places": places, "pools": pools, "links": links},
        "constraints": {"allowed": {"cp": [1], **allowed}},
    }
    return context_of(PlanRequest.model_validate(request))
