"""What is known of every constant before any run is seen: value, limits, and how far software and GPUs may differ.

Spreads are standard deviations of the logarithm, for shares of the logit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TINY = 1e-6  # a spread that holds a constant fixed


@dataclass(frozen=True)
class Prior:
    """Expected value, physical limits, and spreads: of the shared value, between software, between GPU generations."""

    value: float
    low: float
    high: float
    shared: float
    software: float
    generation: float
    is_share: bool = False
    source: str = ""


_MAMF = "best measured product over shapes: ml-engineering MAMF tables"
_NCCL = "nccl-tests bus bandwidth on one host: 224 of 300 GB/s on A100, 695 of 900 on B200"
_STREAM = "an overlap is a share of traffic: 0 to 1"

PRIORS: Mapping[str, Prior] = {
    "gemm_efficiency": Prior(0.74, 0.2, 0.88, 0.1, 0.1, 0.06, True, _MAMF),
    "gemm_efficiency_fp8": Prior(0.68, 0.15, 0.82, 0.2, 0.2, 0.15, True, _MAMF),
    "gemm_efficiency_fp4": Prior(0.55, 0.1, 0.8, 0.3, 0.2, 0.2, True, "vendor peaks; few public sweeps"),
    "gemm_half_size": Prior(80.0, 5.0, 1500.0, 0.5, 0.3, 0.2, source="tiles of 64 to 256 (NVIDIA matrix guide)"),
    "attention_efficiency": Prior(0.5, 0.05, 0.8, 0.4, 0.4, 0.3, True, "fused, causal: arXiv 2307.08691, 2407.08608"),
    "memory_efficiency": Prior(0.8, 0.2, 0.95, 0.1, TINY, TINY, True, "stream benchmarks reach 0.8 to 0.92 of HBM"),
    "elementwise_traffic": Prior(1.2, 0.5, 6.0, 0.4, 0.3, 0.2, source="1: every kernel fused; arXiv 2104.04473, 5.8"),
    "expert_gemm_share": Prior(0.8, 0.2, 1.0001, 0.4, 0.3, 0.3, True, "grouped against dense products: DeepGEMM"),
    "expert_traffic": Prior(1.3, 0.3, 10.0, 0.5, 0.4, 0.2, source="1: permutation and activation fused"),
    "host_layer_s": Prior(6e-4, 1e-5, 5e-3, 0.7, 0.5, 0.3, source="60 launches of 10 us"),
    "host_moe_layer_s": Prior(3e-3, 1e-5, 2e-2, 0.5, 0.5, 0.3, source="300 launches of 10 us, counts read back"),
    "scale_up_efficiency": Prior(0.75, 0.1, 0.95, 0.3, 0.2, TINY, True, _NCCL),
    "scale_out_efficiency": Prior(0.7, 0.02, 1.0, 0.8, 0.6, TINY, True, "line rate less protocol; SimAI tables"),
    "ring_contention": Prior(0.5, 1e-3, 3.0, 1.0, 0.5, TINY, source="0: rings never meet"),
    "point_to_point_efficiency": Prior(0.6, 0.02, 0.92, 0.8, 0.5, TINY, True, "as scale-out, one message at a time"),
    "collective_latency_s": Prior(3e-5, 1e-6, 1e-3, 1.0, 0.5, TINY, source="NCCL graph/tuning.cc and one launch"),
    "tensor_parallel_overlap": Prior(0.3, 5e-3, 0.98, 1.0, 1.0, TINY, True, _STREAM),
    "expert_parallel_overlap": Prior(0.4, 5e-3, 0.98, 1.0, 1.0, TINY, True, _STREAM),
    "pipeline_overlap": Prior(0.3, 5e-3, 0.98, 1.0, 1.0, TINY, True, _STREAM),
    "data_parallel_overlap": Prior(0.5, 5e-3, 0.98, 1.0, 1.0, TINY, True, _STREAM),
    "step_host_s": Prior(5e-3, 1e-4, 0.2, 0.7, 0.7, 0.2, source="500 launches of 10 us"),
    "step_sync_s": Prior(2e-3, 1e-5, 5e-2, 0.7, 0.7, TINY, source="jitter of a host, order statistics"),
    "optimizer_traffic": Prior(1.2, 0.5, 5.0, 0.3, 0.2, TINY, source="1: state streamed once"),
}
