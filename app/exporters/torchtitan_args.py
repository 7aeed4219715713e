"""Command-line overrides for torchtitan, one a line, with the schedule from the torch-schedule-csv export.

torchtitan lays ranks out as (pp, dp_replicate, dp_shard, cp, tp), the plan's own order. It has no ZeRO-1: the optimizer
state of such a plan is sharded with the parameters, but inside buildings alone, so that gathers do not cross. The name
of the schedule only says how many chunks a rank has and how they fold; the order comes from the CSV. Module names of
the stages are a nested list, which its command line cannot take: they stand in a comment, for the config function.
Source: torchtitan/config/configs.py and distributed/pipeline_parallel.py, August 2026.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import accumulate

from app.exporters.hosts import buildings_of_places
from app.exporters.losses import trainer_losses, workload_losses
from app.exporters.target import Target, header
from app.faults import Refused, refused
from models.definition import ModelDefinition
from models.framework import packaged_framework
from models.plan import Configuration, Plan
from models.request import PlanRequest
from models.workload import Precision

TARGET = Target(
    "torchtitan",
    "main of August 2026 (b5bcd76), with PyTorch 2.13",
    (
        "the torch-schedule-csv export as schedule.csv in the working folder",
        "module_fqns_per_model_part in the config function, as below",
        "torchrun on the hosts of the torchrun-script export",
    ),
)
SCHEDULE_FILE = "schedule.csv"
OTHER_PLAN = 'Plan with constraints.framework "torchtitan".'
SCHEDULE_OF_FAMILY = {"one_way": "1F1B", "loop": "Interleaved1F1B", "v": "ZBVZeroBubble"}


def torchtitan_args(plan: Plan, request: PlanRequest | None = None) -> str:
    """The loss report and the stages as comments, then the overrides."""
    _check(plan, request)
    parts = json.dumps(module_names(plan.configuration.layers_per_stage))
    lines = "".join(shlex.join([f"--{name}", *values]) + "\n" for name, *values in _overrides(plan, request))
    return f"{header(TARGET, losses(plan, request))}# module_fqns_per_model_part = {parts}\n{lines}"


def _check(plan: Plan, request: PlanRequest | None) -> None:
    """Refuse what torchtitan stops at when it starts. Source: Decoder.Config and ParallelDims of torchtitan."""
    one, degrees = plan.configuration, plan.configuration.degrees
    where = "/plan/configuration/degrees"
    if one.family == "v" and degrees.vpp != 2:
        raise _refused(f"a V of {degrees.vpp} chunks per rank: torchtitan folds V in two", f"{where}/vpp", "2",
                       "Plan with constraints.allowed.vpp [2] for this family.")  # fmt: skip
    if request is None:
        return
    values = {
        "pp": (f"{where}/pp", "1"),
        "tp": (f"{where}/tp", "a divisor of the key/value heads"),
        "degrees": (where, "divisors of the tokens"),
    }
    for name, detail in packaged_framework("torchtitan").lacks(one, request.workload):
        if name in values:
            raise _refused(detail, *values[name], OTHER_PLAN)
    ranks = shard_replicas(plan, request) * degrees.cp * degrees.tp
    if ranks % expert_ranks(one, request):
        raise _refused(f"experts shared by {expert_ranks(one, request)} ranks, where {ranks} have one copy of the "
                       "state: torchtitan shares them inside a copy", f"{where}/ep", "a divisor of these ranks",
                       "Plan with constraints.allowed.sharding [\"fsdp\"], or a smaller ep.")  # fmt: skip


def _refused(what: str, pointer: str, allowed: str, remedy: str) -> Refused:
    return refused("not-expressible", what, pointer, allowed, remedy)


def _overrides(plan: Plan, request: PlanRequest | None) -> Iterator[tuple[str, ...]]:
    one, degrees = plan.configuration, plan.configuration.degrees
    yield "parallelism.tensor_parallel_degree", str(degrees.tp)
    yield "parallelism.context_parallel_degree", str(degrees.cp)
    yield "parallelism.expert_parallel_degree", str(expert_ranks(one, request))
    yield "parallelism.pipeline_parallel_degree", str(degrees.pp)
    shard = shard_replicas(plan, request)
    yield "parallelism.data_parallel_replicate_degree", str(degrees.dp // shard)
    yield "parallelism.data_parallel_shard_degree", str(shard)
    if one.sharding == "zero1":
        yield "parallelism.fsdp_reshard_after_forward", "never"
    if degrees.pp > 1:
        yield "parallelism.pipeline_parallel_schedule", SCHEDULE_OF_FAMILY[one.family]
        yield "parallelism.pipeline_parallel_schedule_csv", SCHEDULE_FILE
        yield "parallelism.num_pp_microbatches", str(one.num_microbatches)
    if degrees.pp > 1 or expert_ranks(one, request) > 1:
        # torchtitan refuses pipelines with CUDA graphs, and most dispatchers of tokens do
        yield ("training.disable_cuda_graphs",)
    if request is not None:
        sequence = request.workload.sequence_length
        if request.workload.precision == "fp32":
            yield "training.mixed_precision_param", "float32"
        yield "training.max_context_length", str(sequence)
        yield "training.num_tokens_per_microbatch_per_dp_rank", str(one.micro_batch_sequences * sequence)
        yield "training.num_tokens_per_train_step", str(request.workload.tokens_per_iteration)


def expert_ranks(one: Configuration, request: PlanRequest | None) -> int:
    """Ranks that share a layer's experts, tensor-parallel ranks among them.

    torchtitan deals whole experts to them where the plan splits each: every GPU holds the planned part. Where they do
    not divide, ep alone.
    """
    moe = None if request is None else request.workload.architecture.moe
    ranks = one.degrees.ep * one.degrees.tp
    return ranks if moe is not None and moe.num_experts % ranks == 0 else one.degrees.ep


def shard_replicas(plan: Plan, request: PlanRequest | None) -> int:
    """Replicas over which torchtitan shards: the plan's, and for ZeRO-1 the most that lie in one building.

    Full sharding gathers parameters and scatters gradients over its ranks; ZeRO-1 over several buildings would become
    that over several buildings. Sharding inside each, replicated between them, moves there what the plan moves. Refused
    where the optimizer state then no longer fits.
    """
    one = plan.configuration
    if one.sharding == "ddp":
        return 1
    if one.sharding != "zero1":
        return one.shard_group_replicas
    widest = one.shard_group_replicas
    fitting = (
        size
        for size in range(widest, 0, -1)
        if widest % size == 0 and size * one.degrees.cp % one.degrees.ep == 0 and _in_one_building(plan, request, size)
    )
    size = next(fitting, 1)
    for use in plan.memory:
        needed = use.total_bytes + use.optimizer_bytes * (widest / size - 1)
        if needed > use.limit_bytes:
            raise _refused(f"ZeRO-1 over {widest} replicas: torchtitan would shard over {size} in one building, which "
                           f"needs {needed / 1e9:.1f} GB of {use.limit_bytes / 1e9:.1f} GB",
                           "/plan/configuration/sharding", "fsdp or hsdp", OTHER_PLAN)  # fmt: skip
    return size


def _in_one_building(plan: Plan, request: PlanRequest | None, size: int) -> bool:
    """Whether every aligned run of so many replicas lies in one building on every pipeline rank."""
    found: dict[int, tuple[str, ...]] = {}
    buildings = buildings_of_places(request)
    for route in plan.placement.routes:
        where = tuple(buildings.get(place, place) for place in route.places)
        found |= dict.fromkeys(range(route.first_replica, route.first_replica + route.num_replicas), where)
    return all(
        len({found[replica] for replica in range(first, first + size)}) == 1
        for first in range(0, plan.configuration.degrees.dp, size)
    )


def module_names(layers_per_stage: tuple[int, ...]) -> list[list[str]]:
    """Modules of every stage under torchtitan's names.

    >>> module_names((1, 2))
    [['tok_embeddings', 'layers.0'], ['layers.1', 'layers.2', 'norm', 'lm_head']]
    """
    ends = list(accumulate(layers_per_stage))
    stages = [
        [f"layers.{layer}" for layer in range(end - count, end)]
        for end, count in zip(ends, layers_per_stage, strict=True)
    ]
    stages[0].insert(0, "tok_embeddings")
    stages[-1] += ["norm", "lm_head"]
    return stages


def losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What of the plan these overrides do not carry."""
    one = plan.configuration
    yield "times: the runtime starts an operation when its inputs are there, in the order of the CSV"
    if request is None:
        yield "sequence length and batch: they are in the request, which was not given"
    yield from _sharding_losses(plan, request)
    if request is not None and request.workload.architecture.moe and one.degrees.tp > 1:
        if expert_ranks(one, request) == one.degrees.ep:
            yield f"experts split over {one.degrees.tp} tensor-parallel ranks: torchtitan holds them whole on each"
        else:
            yield "experts split over tensor-parallel ranks: torchtitan deals whole ones to these ranks"
    if request is not None and request.workload.architecture.num_mtp_layers:
        yield "multi-token prediction layers: torchtitan's model is taken without them"
    if request is not None:
        yield from _definition_losses(request.workload.architecture.definition)
        yield from _precision_losses(request.workload.precision)
        yield from workload_losses(request.workload, "torchtitan")
        if request.workload.optimizer.name != "adam":
            yield f"{request.workload.optimizer.name}: set the optimizer in the config function, which has AdamW"
    if one.recompute != "none":
        config = "FullAC" if one.recompute == "full" else "SelectiveAC"
        yield f"{one.recompute} recomputation: set activation_checkpoint to {config}.Config() in the config function"
    yield from trainer_losses(plan)


def _definition_losses(definition: ModelDefinition | None) -> Iterator[str]:
    """The overrides state no part of the model."""
    yield "the model: norms, positions, windows, biases and routing are those of the config function, compare them"
    if definition is not None:
        yield from (f"{part}: see that the model of the config function has it" for part in definition.other_parts)


def _precision_losses(precision: Precision) -> Iterator[str]:
    if precision == "fp16":
        yield "fp16: torchtitan has bfloat16 and float32, it computes in bfloat16"
    elif precision in ("fp8", "fp4"):
        yield f"{precision}: add torchtitan's converter of linear layers to the config function"


def _sharding_losses(plan: Plan, request: PlanRequest | None) -> Iterator[str]:
    one = plan.configuration
    if one.sharding == "zero1":
        yield from _zero1_losses(plan, request)
    elif one.sharding in ("fsdp", "hsdp") and one.degrees.pp > 1:
        more = max(use.weights_bytes + use.gradients_bytes for use in plan.memory)
        shards = one.shard_group_replicas * one.degrees.cp
        yield ("gathering a layer at a time: in a pipeline PyTorch holds all parameters and gradients of a stage until "
               f"its last micro-batch, up to {more * (shards - 1) / 1e9:.1f} GB more per GPU than planned")  # fmt: skip


def _zero1_losses(plan: Plan, request: PlanRequest | None) -> Iterator[str]:
    yield "zero1: torchtitan shards more than the optimizer, FSDP without resharding splits gradients, too"
    try:
        shard = shard_replicas(plan, request)
    except Refused:
        return  # the export itself says so
    if shard < plan.configuration.shard_group_replicas:
        planned = plan.configuration.shard_group_replicas
        yield f"optimizer state over {planned} replicas: it is sharded over {shard} in a building, replicated between"
