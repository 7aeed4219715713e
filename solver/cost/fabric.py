"""The rates and latencies that the GPUs of one pool see, inside a host and between hosts.

Links between buildings are in `solver/network`.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.cluster import GpuType, Pool

SCALE_UP_LATENCY_S = 5e-6  # one hop of a ring over NVLink incl. protocol, NCCL graph/tuning.cc v2.30.7 (3.4 us + base)
SCALE_OUT_LATENCY_S = 1.4e-5  # one network hop of a ring, simple protocol, NCCL graph/tuning.cc v2.30.7


@dataclass(frozen=True)
class Fabric:
    """Per-GPU rates, per direction. `gpus_per_host` GPUs share the NICs of a host."""

    scale_up_bytes_per_s: float
    scale_up_domain_gpus: int
    nic_bytes_per_s: float
    gpus_per_host: int
    scale_up_latency_s: float = SCALE_UP_LATENCY_S
    scale_out_latency_s: float = SCALE_OUT_LATENCY_S


def share_place(one: Pool, other: Pool) -> bool:
    """Whether two pools lie in one place: its bandwidth is full, so messages between them queue behind nothing."""
    return one.place == other.place


def fabric_of(pool: Pool) -> Fabric:
    """The network that the GPUs of `pool` see inside their building, without oversubscription."""
    return fabric_from(pool.gpu, nic_bytes_per_s=pool.nic_bytes_per_s_per_gpu, gpus_per_host=pool.gpus_per_host)


def fabric_from(gpu: GpuType, *, nic_bytes_per_s: float, gpus_per_host: int) -> Fabric:
    """The network of GPUs of one type with a given NIC share each.

    A scale-up domain is never smaller than what NVLink joins inside a host, and may span many hosts (NVL72).
    """
    return Fabric(
        scale_up_bytes_per_s=gpu.scale_up_bytes_per_s,
        scale_up_domain_gpus=gpu.scale_up_domain_gpus,
        nic_bytes_per_s=nic_bytes_per_s,
        gpus_per_host=gpus_per_host,
    )
