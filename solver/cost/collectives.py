"""Time of collectives inside one building, for groups that start on a domain boundary.

Groups are described by their number of ranks and their stride: ranks of a group lie `stride` GPUs apart, so `stride`
equal groups share the NICs of each domain (arXiv 2104.04473, 3.3; NCCL rings enter and leave a domain once).
"""

from dataclasses import dataclass

import numpy as np

from models.stack import StackProfile
from solver.arrays import FloatArray, IntArray
from solver.cost.fabric import Fabric


@dataclass(frozen=True)
class RankGroup:
    """Where the ranks of one kind of communicator sit, the rates that they reach, and latencies (seconds).

    `start_s` is that of any operation, `pass_s` that of one pass over the group, see `pass_latency_s`.
    """

    ranks: FloatArray
    local_ranks: FloatArray
    bus_bytes_per_s: FloatArray
    nic_bytes_per_s: float
    scale_up_bytes_per_s: float | FloatArray
    start_s: float
    pass_s: FloatArray


def group_of(ranks: IntArray, stride: IntArray, fabric: Fabric, stack: StackProfile) -> RankGroup:
    """Ranks per domain and bus bandwidth of `ranks` GPUs that lie `stride` apart.

    Inside one domain the scale-up rate; beyond it a ring leaves each domain through the NICs of its local ranks.
    """
    domain = fabric.scale_up_domain_gpus
    local = np.clip(domain // np.maximum(stride, 1), 1, np.maximum(ranks, 1)).astype(np.float64)
    scale_up = fabric.scale_up_rate_bytes_per_s(local) * stack.scale_up_efficiency.value
    nic = fabric.nic_bytes_per_s * stack.scale_out_efficiency.value
    rings = local / ring_slowdown(local, ranks / local, domain, stack.ring_contention.value)
    bus = np.where(local >= ranks, scale_up, np.minimum(scale_up, nic * rings))
    all_ranks = ranks.astype(np.float64)
    pass_s = pass_latency_s(all_ranks, local, fabric)
    return RankGroup(all_ranks, local, bus, nic, scale_up, stack.collective_latency_s.value, pass_s)


def ring_slowdown(local: FloatArray, domains: FloatArray, domain_gpus: int, contention: float) -> FloatArray:
    """How much slower rings of several groups get that share the NICs of a host, over many hosts.

    1 + c (l - 1)(1 - 1/hosts) where a group has l > 1 but not all GPUs of a host: its rings cannot stay on one rail and
    meet those of the other groups at shared NICs and switches. Groups with one rank per host stay on their rail, and a
    group that owns the host has nobody to meet. Form: own fit to vTrain (MICRO'24), whose plans with several replicas
    per host are slower than their bytes explain.

    >>> ring_slowdown(np.array([1.0, 2.0, 8.0]), np.array([16.0, 2.0, 16.0]), 8, 1.5).tolist()
    [1.0, 1.75, 1.0]
    """
    mixed = (local > 1) & (local < domain_gpus)
    return np.where(mixed, 1.0 + contention * (local - 1.0) * (1.0 - 1.0 / domains), 1.0)


def _share(group: RankGroup) -> FloatArray:
    return (group.ranks - 1.0) / np.maximum(group.ranks, 1.0)


def pass_latency_s(ranks: FloatArray, local: FloatArray, fabric: Fabric) -> FloatArray:
    """Latency of one pass over a group in a tree: every local hop, and the logarithm of the network hops.

    (l - 1) a_local + log2(n/l) a_network for n ranks of which l share a domain. Source: NCCL graph/tuning.cc.

    >>> fabric = Fabric(1e9, 4, 1e9, 4, scale_up_latency_s=1e-6, scale_out_latency_s=1e-5)
    >>> float(pass_latency_s(np.array([16.0]), np.array([4.0]), fabric)[0].round(9))
    2.3e-05
    """
    network = np.log2(np.maximum(ranks / local, 1.0))
    return (local - 1.0) * fabric.scale_up_latency_s + network * fabric.scale_out_latency_s


def all_reduce_s(payload_bytes: FloatArray, group: RankGroup) -> FloatArray:
    """2 (n-1)/n S / bus bandwidth plus two passes of latency; nothing for a single rank.

    Source: Patarasuk & Yuan 2009 (ring), nccl-tests (bus bandwidth), NCCL trees for the latency.

    >>> group = RankGroup(np.array([4.0]), np.array([4.0]), np.array([1e9]), 1e9, 1e9, 3e-5, np.array([1.5e-5]))
    >>> all_reduce_s(np.array([8e6]), group).round(6).tolist()
    [0.01206]
    """
    time = group.start_s + 2.0 * group.pass_s + 2.0 * _share(group) * payload_bytes / group.bus_bytes_per_s
    return np.where(group.ranks > 1, time, 0.0)


def gather_s(payload_bytes: FloatArray, group: RankGroup) -> FloatArray:
    """All-gather or reduce-scatter of a whole array of S bytes: (n-1)/n S / bus bandwidth plus one pass.

    Source: nccl-tests (bus bandwidth).

    >>> group = RankGroup(np.array([4.0]), np.array([4.0]), np.array([1e9]), 1e9, 1e9, 3e-5, np.array([1.5e-5]))
    >>> gather_s(np.array([8e6]), group).round(6).tolist()
    [0.006045]
    """
    time = group.start_s + group.pass_s + _share(group) * payload_bytes / group.bus_bytes_per_s
    return np.where(group.ranks > 1, time, 0.0)


def all_to_all_s(payload_bytes: FloatArray, group: RankGroup, *, copies_across: FloatArray) -> FloatArray:
    """Pairwise exchange of S bytes per rank: the local part over scale-up, the rest over the rank's own NIC.

    Both at once: max(local share S / scale-up rate, remote share S / NIC rate) plus one pass of latency.
    `copies_across` is the share of the remote copies that really travel, see `remote_copies_share`.

    >>> group = RankGroup(np.array([16.0]), np.array([8.0]), np.array([1e9]), 1e9, 1e10, 3e-5, np.array([5e-5]))
    >>> all_to_all_s(np.array([1e9]), group, copies_across=np.array([1.0])).round(3).tolist()
    [0.5]
    """
    inside = np.maximum(group.local_ranks - 1.0, 0.0) / np.maximum(group.ranks, 1.0)
    across = np.maximum(group.ranks - group.local_ranks, 0.0) / np.maximum(group.ranks, 1.0)
    remote = across * copies_across * payload_bytes / group.nic_bytes_per_s
    time = group.start_s + group.pass_s + np.maximum(inside * payload_bytes / group.scale_up_bytes_per_s, remote)
    return np.where(group.ranks > 1, time, 0.0)


def remote_copies_share(group: RankGroup, copies: float | FloatArray, max_hosts: int) -> FloatArray:
    """Distinct remote hosts that the copies of a token reach, over its remote copies: one message per host suffices.

    With K copies spread evenly over D hosts, (D - 1)(1 - (1 - 1/D)^K) of the remote hosts are hit; routing may cap the
    hosts at M. The host passes them on over scale-up links (arXiv 2412.19437, 3.2.2).

    >>> both = RankGroup(np.array([16.0]), np.array([8.0]), np.array([1.0]), 1.0, 1.0, 0.0, np.array([0.0]))
    >>> remote_copies_share(both, 2.0, 0).tolist()
    [0.75]
    """
    hosts = np.maximum(group.ranks / group.local_ranks, 1.0)
    reached = (hosts - 1.0) * (1.0 - (1.0 - 1.0 / hosts) ** copies)
    if max_hosts:
        reached = np.minimum(reached, max_hosts * (hosts - 1.0) / hosts)
    remote = np.maximum(copies * (hosts - 1.0) / hosts, 1e-12)
    return np.where(hosts > 1.0, np.minimum(reached / remote, 1.0), 1.0)


def exposed_s(communication_s: FloatArray, hider_s: FloatArray, overlap: float) -> FloatArray:
    """Communication that delays its owner when a share `overlap` of the work beside it can hide it.

    (1 - w) C + w max(0, C - H): at w = 1 only what is longer than the work, at w = 0 all of it.

    >>> float(exposed_s(np.array(10.0), np.array(4.0), 0.5))
    8.0
    """
    return (1.0 - overlap) * communication_s + overlap * np.maximum(0.0, communication_s - hider_s)


def boundary_message_s(
    boundary_bytes: FloatArray, tp: IntArray, cp: IntArray, fabric: Fabric, stack: StackProfile
) -> FloatArray:
    """One stage-to-stage message of a whole stage group through the NICs of its ranks.

    With scatter-gather each rank sends its share; without, every tensor-parallel rank sends all of its part
    (arXiv 2104.04473, 4.1).

    >>> ranks, fabric = np.array([8]), Fabric(1e11, 8, 1e9, 8)
    >>> boundary_message_s(np.array([8e9]), ranks, np.array([1]), fabric, StackProfile(name="any")).round(3).tolist()
    [1.429]
    """
    senders = (tp * cp if stack.scatter_gather_pipeline else cp).astype(np.float64)
    rate = fabric.nic_bytes_per_s * stack.point_to_point_efficiency.value
    return fabric.scale_out_latency_s + stack.collective_latency_s.value + boundary_bytes / senders / rate
