"""Jobs that are odd: batches that do not divide, short sequences, profiles that match nothing, targets not read.

What it says of degrees is arithmetic on two numbers, without any configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

from models.request import PlanRequest
from solver.diagnostics.rule import Found, Rule
from solver.network.places import open_pools, usable_gpus, usable_pools

SHORT_TOKENS = 128  # far below any pretraining; attention and launches dominate there in no measured way
MOST_TOKENS_PER_STEP = 2e8  # the largest published pretraining batches are about 60e6 tokens
LONG_S = 5.0  # one layer of one micro-batch: only milliseconds given as seconds reach this
FP32_STATE_BYTES = 8.0  # two moments; the weights are their own master copy
LEAST_HEADROOM = 0.02  # peak memory is predicted to 2.4 % in the median (docs/accuracy.md)
LEAST_USED = 0.75  # of the GPUs
LARGEST_REPLICA = 64  # GPUs: tp 8 by pp 8; a batch that only wider replicas divide costs bubble or leaves GPUs idle


def sequence_short(request: PlanRequest) -> Iterator[Found]:
    """A sequence of a few tokens: one in thousands, or the number of sequences."""
    length = request.workload.sequence_length
    if length < SHORT_TOKENS:
        yield "/workload/sequence_length", f"a sequence has {length} tokens"


def batch_unit(request: PlanRequest) -> Iterator[Found]:
    """A batch larger than anybody trains with: one in tokens where sequences are asked for."""
    tokens = request.workload.tokens_per_iteration
    if tokens > MOST_TOKENS_PER_STEP:
        yield (
            "/workload/global_batch_sequences",
            f"{request.workload.global_batch_sequences:,} sequences of {request.workload.sequence_length:,} tokens are "
            f"{tokens:.3g} tokens per step",
        )


def batch_divides_badly(request: PlanRequest) -> Iterator[Found]:
    """A batch whose divisors leave much of the fleet idle: every replica gets the same number of sequences.

    Megatron-Core, DeepSpeed and torchtitan all stop at a global batch that dp * micro-batch does not divide.
    """
    most, batch = usable_gpus(request), request.workload.global_batch_sequences
    if not most or request.constraints.allowed.dp is not None:
        return
    used = max(dp * min(most // dp, LARGEST_REPLICA) for dp in _divisors(batch) if dp <= most)
    if used < LEAST_USED * most:
        step = 1 << max((batch // 8).bit_length() - 1, 0)
        near = max(round(batch / step), 1) * step
        better = f"; {near:,} sequences divide further" if near != batch else ""
        yield (
            "/workload/global_batch_sequences",
            f"no number of replicas that divides {batch:,} sequences uses more than {used:,} of {most:,} GPUs, "
            f"{LARGEST_REPLICA} at most each{better}",
        )


def _divisors(number: int) -> set[int]:
    small = [one for one in range(1, isqrt(number) + 1) if number % one == 0]
    return {*small, *(number // one for one in small)}


def profile_unused(request: PlanRequest) -> Iterator[Found]:
    """Measured layer times of a GPU type that no pool has."""
    known = {pool.gpu.name for pool in request.cluster.pools}
    for index, one in enumerate(request.workload.layer_profiles):
        if one.gpu not in known:
            yield (
                f"/workload/layer_profiles/{index}/gpu",
                f"measured on {one.gpu!r}, but the pools have {', '.join(sorted(known))}",
            )


def profile_unit(request: PlanRequest) -> Iterator[Found]:
    """Measured layer times of seconds: milliseconds, most likely."""
    for index, one in enumerate(request.workload.layer_profiles):
        longest = max(one.forward_s, one.input_grad_s, one.weight_grad_s)
        if longest > LONG_S:
            yield f"/workload/layer_profiles/{index}", f"one layer of one micro-batch takes {longest:g} s"


def optimizer_state(request: PlanRequest) -> Iterator[Found]:
    """Training in 32 bits with a master copy beside the weights."""
    optimizer = request.workload.optimizer
    if request.workload.precision == "fp32" and optimizer.state_bytes_per_parameter > FP32_STATE_BYTES:
        yield (
            "/workload/optimizer/state_bytes_per_parameter",
            f"{optimizer.state_bytes_per_parameter:g} B per parameter hold a master copy, which 32-bit weights are "
            "themselves",
        )


def headroom(request: PlanRequest) -> Iterator[Found]:
    """No room left for what the memory model does not know."""
    fraction = request.constraints.memory_headroom_fraction
    if fraction < LEAST_HEADROOM:
        yield "/constraints/memory_headroom_fraction", f"{fraction:.1%} of HBM is free"


def target_ignored(request: PlanRequest) -> Iterator[Found]:
    """A target beside an objective that has none: the least time is looked for, whatever the target."""
    objective = request.objective
    if objective.kind in ("iteration_time", "time_at_confidence") and objective.target_iteration_s is not None:
        yield (
            "/objective/target_iteration_s",
            f"{objective.kind} is made as short as possible; the target of {objective.target_iteration_s:g} s is not "
            "read",
        )


def pool_without_precision(request: PlanRequest) -> Iterator[Found]:
    """Pools that are left out, as their GPU type has no unit for the precision of the job and others do."""
    precision, usable = request.workload.precision, {pool.id for pool in usable_pools(request)}
    left_out = {pool.id for pool in open_pools(request)} - usable
    for index, pool in enumerate(request.cluster.pools):
        if pool.id in left_out:
            yield (
                f"/cluster/pools/{index}/gpu/{precision}_flops_per_s",
                f"the {pool.num_free_gpus:,} GPUs of pool {pool.id!r} are left out: precision {precision} is asked "
                f"for, and {pool.gpu.name} states no {precision} peak",
            )


RULES = (
    Rule("sequence-short", "warning", ("sequence_length counts tokens: 8k is 8192",), sequence_short),
    Rule("batch-unit", "warning", ("global_batch_sequences counts sequences, not tokens",), batch_unit),
    Rule("batch-divides-badly", "warning",
         ("use a batch with more divisors", "fix allowed.dp if the odd number is meant"), batch_divides_badly),
    Rule("profile-unused", "warning", ("name the GPU type as the pools do",), profile_unused),
    Rule("profile-unit", "warning", ("times are in seconds: 4.2 ms is 0.0042",), profile_unit),
    Rule("optimizer-state", "warning",
         ("set optimizer.state_bytes_per_parameter to 8 (Adam in 32 bits: 4 + 4)",), optimizer_state),
    Rule("headroom", "warning", ("leave memory_headroom_fraction at its default",), headroom),
    Rule("target-ignored", "warning",
         ("leave target_iteration_s out", "choose an objective that reaches it: fewest_gpus, cost_per_token"),
         target_ignored),
    Rule("pool-without-precision", "warning",
         ("set workload.precision to bf16 to use all GPUs", "give the GPU type its peak at this precision"),
         pool_without_precision),
)  # fmt: skip
