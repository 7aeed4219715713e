"""The rates and latencies that the GPUs of one pool see, inside a host and between hosts.

Links between buildings are in `solver/network`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from models.cluster import GpuType, Pool
from solver.arrays import FloatArray

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
    full_mesh: bool = False

    def scale_up_rate_bytes_per_s(self, local_ranks: FloatArray | float) -> FloatArray:
        """What each of so many GPUs of a domain reaches: all of its rate at a switch, (n - 1) / (N - 1) in a mesh.

        Source: one peer of an MI300X reaches 64 of 448 GB/s (data sheet), eight GPUs all of it.

        >>> Fabric(448e9, 8, 5e10, 8, full_mesh=True).scale_up_rate_bytes_per_s(np.array([2.0, 8.0])).tolist()
        [64000000000.0, 448000000000.0]
        """
        peers = self.scale_up_domain_gpus - 1
        ranks = np.asarray(local_ranks, dtype=np.float64)
        if not self.full_mesh or peers < 1:
            return np.full_like(ranks, self.scale_up_bytes_per_s)
        return self.scale_up_bytes_per_s * (np.clip(ranks - 1.0, 1.0, peers) / peers)

    def at_best(self) -> Fabric:
        """The fabric with all of its rate for groups of any size: none is faster, and larger groups are no faster."""
        return replace(self, full_mesh=False)


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
        full_mesh=gpu.scale_up_full_mesh,
    )
