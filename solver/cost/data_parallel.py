"""Gradient reduction and parameter gathering over replicas: bytes, time inside a building, and what crosses buildings.

Sharded state has a domain: `shard_group` replicas hold one copy of it together. HSDP and ZeRO-1 may have several such
groups, each inside a place; copies are then kept equal by an all-reduce across. A domain of all replicas is one
communicator over all of them.
"""

from dataclasses import dataclass

import numpy as np

from models.stack import StackProfile
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.cost.collectives import RankGroup, all_reduce_s, gather_s, group_of
from solver.cost.columns import DDP, FSDP, HSDP, ZERO1, Columns
from solver.cost.fabric import Fabric
from solver.cost.job import Job


@dataclass(frozen=True)
class ReplicaGroups:
    """Communicators over replicas. Shards hold one copy of dense or expert state, `replicate` joins such copies."""

    dense_shard: RankGroup
    expert_shard: RankGroup
    replicate: RankGroup


def replica_groups(columns: Columns, fabric: Fabric, stack: StackProfile) -> ReplicaGroups:
    """Dense state is shared by dp*cp ranks that lie tp apart; experts by dp*cp/ep ranks that lie tp*ep apart."""
    shard, copies = shard_and_copies(columns)
    dense = shard * columns.cp
    expert = np.maximum(dense // columns.ep, 1)
    return ReplicaGroups(
        dense_shard=group_of(dense, columns.tp, fabric, stack),
        expert_shard=group_of(expert, columns.tp * columns.ep, fabric, stack),
        replicate=group_of(copies, columns.tp * columns.cp * shard, fabric, stack),
    )


def shard_and_copies(columns: Columns) -> tuple[IntArray, IntArray]:
    """Replicas that share one copy of the state, and the number of such copies; HSDP and ZeRO-1 may have several."""
    shard = np.where(in_groups(columns), np.clip(columns.shard_group, 1, columns.dp), columns.dp)
    return shard, np.maximum(columns.dp // shard, 1)


def in_groups(columns: Columns) -> BoolArray:
    """Whether the state is sharded inside groups of replicas, of which there may be several."""
    grouped: BoolArray = (columns.sharding == HSDP) | (columns.sharding == ZERO1)
    return grouped


def replicas_together(columns: Columns) -> IntArray:
    """Replicas that share a place, rank by rank: an expert group spans them, or one of several copies of the state."""
    copies = in_groups(columns) & (columns.shard_group < columns.dp)
    together = np.lcm(replicas_sharing_experts(columns.ep, columns.cp), np.where(copies, columns.shard_group, 1))
    return np.asarray(np.where(columns.dp % together == 0, together, 1))


def replicas_sharing_experts(ep: IntArray | int, cp: IntArray | int) -> IntArray:
    """Consecutive replicas that expert groups join: every ep in a row of the replicas times cp ranks are one.

    >>> replicas_sharing_experts(np.array([3, 8]), np.array([2, 2]))
    array([3, 4])
    """
    return np.asarray(np.lcm(ep, cp) // cp)


@dataclass(frozen=True)
class ReplicaTraffic:
    """Time of one GPU for reducing or scattering gradients over replicas, and for gathering parameters once."""

    reduce_s: FloatArray
    gather_s: FloatArray


def step_traffic(
    dense_parameters: FloatArray,
    expert_parameters: FloatArray,
    columns: Columns,
    fabric: Fabric,
    stack: StackProfile,
    *,
    job: Job,
) -> ReplicaTraffic:
    """DDP all-reduces gradients; ZeRO-1 scatters them and gathers weights; HSDP and ZeRO-1 all-reduce their shards.

    FSDP moves everything with its layers instead, see `layer_traffic`.
    """
    groups = replica_groups(columns, fabric, stack)
    reduce_time = gather_time = _zeros(columns, dense_parameters, expert_parameters)
    for parameters, group in ((dense_parameters, groups.dense_shard), (expert_parameters, groups.expert_shard)):
        used = parameters > 0
        if not np.any(used):
            continue
        gradients = job.optimizer.gradient_bytes_per_parameter * parameters
        summed = all_reduce_s(gradients, group)
        scattered = gather_s(gradients, group)
        across = all_reduce_s(gradients / np.maximum(group.ranks, 1.0), groups.replicate)
        mode = columns.sharding
        choice = [summed, scattered + across, np.zeros_like(summed), across]
        reduce_time = reduce_time + np.where(used, np.choose(mode, choice), 0.0)
        gathered = gather_s(job.value_bytes * parameters, group)
        gather_time = gather_time + np.where(used & (mode == ZERO1), gathered, 0.0)
    return ReplicaTraffic(reduce_time, gather_time)


def _zeros(columns: Columns, *parameters: FloatArray) -> FloatArray:
    return np.zeros(np.broadcast_shapes((len(columns),), *(np.shape(one) for one in parameters)))


def layer_traffic(
    dense_parameters: FloatArray,
    expert_parameters: FloatArray,
    columns: Columns,
    fabric: Fabric,
    stack: StackProfile,
    *,
    job: Job,
) -> ReplicaTraffic:
    """FSDP and HSDP gather the weights of every layer forward and again backward, and scatter its gradients: per layer
    and micro-batch.
    """
    sharded = columns.sharding >= FSDP
    reduce_time = gather_time = _zeros(columns, dense_parameters, expert_parameters)
    if not np.any(sharded):
        return ReplicaTraffic(reduce_time, gather_time)
    groups = replica_groups(columns, fabric, stack)
    gradient_bytes = job.optimizer.gradient_bytes_per_parameter
    for parameters, group in ((dense_parameters, groups.dense_shard), (expert_parameters, groups.expert_shard)):
        used = sharded & (parameters > 0)
        if not np.any(used):
            continue
        gather_time = gather_time + np.where(used, gather_s(job.value_bytes * parameters, group), 0.0)
        reduce_time = reduce_time + np.where(used, gather_s(gradient_bytes * parameters, group), 0.0)
    return ReplicaTraffic(reduce_time, gather_time)


def hierarchical_crossing_bytes(payload_bytes: FloatArray | float, num_places: IntArray | int) -> FloatArray | float:
    """Bytes that one place sends to the others for an all-reduce of S: 2 (k-1)/k S, after reducing inside.

    >>> hierarchical_crossing_bytes(100.0, 2)
    100.0
    """
    return 2.0 * (num_places - 1) / num_places * payload_bytes


def ring_crossing_bytes(payload_bytes: FloatArray | float, num_ranks: IntArray | int) -> FloatArray | float:
    """Bytes that cross each cut of a ring over n ranks that gathers or scatters S: (n-1)/n S, wherever the cut is.

    >>> ring_crossing_bytes(100.0, 4)
    75.0
    """
    return (num_ranks - 1) / num_ranks * payload_bytes


def group_parameters(parameters: FloatArray, expert_parameters: FloatArray, columns: Columns) -> FloatArray:
    """Parameters on all GPUs of a stage group, from those on one: (P + E ep) tp.

    >>> row = {name: np.array([1]) for name in Columns.__dataclass_fields__}
    >>> row |= {"tp": np.array([2]), "ep": np.array([4])}
    >>> group_parameters(np.array([100.0]), np.array([10.0]), Columns(**row))
    array([280.])
    """
    return (parameters + expert_parameters * columns.ep) * columns.tp


def crossing_bytes(local_parameters: FloatArray, columns: Columns, num_places: IntArray | int, job: Job) -> FloatArray:
    """Bytes per iteration and direction that leave one place, for the parameters of one GPU's group over k places.

    All ranks of the place that share these parameters send this much together. State that all n = dp cp ranks share is
    scattered and gathered in rings over all of them, as training frameworks have one communicator for it: (n-1)/n of
    gradients and weights cross every cut. FSDP does so for every micro-batch, with two gathers. State sharded in
    groups inside places (HSDP, ZeRO-1 with several copies) is gathered inside and its gradients all-reduced across.
    """
    ranks = columns.dp * columns.cp
    gradients = job.optimizer.gradient_bytes_per_parameter * local_parameters
    weights = job.value_bytes * local_parameters
    reduced = hierarchical_crossing_bytes(gradients, num_places)
    scattered, gathered = ring_crossing_bytes(gradients, ranks), ring_crossing_bytes(weights, ranks)
    every_microbatch = columns.num_microbatches * (scattered + 2.0 * gathered)
    choice = np.where(columns.sharding == FSDP, every_microbatch, scattered + gathered)
    choice = np.where(reduced_across(columns), reduced, choice)
    return np.where(ranks > 1, choice, 0.0)


def reduced_across(columns: Columns) -> BoolArray:
    """Whether copies of the state are kept equal by an all-reduce across places."""
    inside = in_groups(columns) & (columns.shard_group < columns.dp)
    reduced: BoolArray = (columns.sharding == DDP) | (columns.sharding == HSDP) | inside
    return reduced


def state_shards(columns: Columns) -> tuple[FloatArray, FloatArray]:
    """Ways in which optimizer state is split, for dense and for expert parameters."""
    shard, _ = shard_and_copies(columns)
    dense = np.where(columns.sharding == DDP, 1, shard * columns.cp).astype(np.float64)
    whole = shard * columns.cp / columns.ep
    expert = np.where(columns.sharding == DDP, 1.0, np.maximum(whole, 1.0))
    return dense, expert
