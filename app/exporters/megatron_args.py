"""The arguments that make Megatron-LM train as the plan says, one a line.

The order of ranks is Megatron's default, tp-cp-ep-dp-pp, whatever crosses buildings: the hosts of the megatron-hostfile
export realise the placement. The other order is refused where dp * cp / ep is not dp (initialize_model_parallel). The
layout states embedding, layers and loss of every stage, and through their number the chunks per rank: Megatron refuses
--num-virtual-stages-per-pipeline-rank beside it. Source: megatron/training/arguments.py of Megatron-LM, August 2026.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import groupby

from app.exporters.hosts import needed
from app.exporters.losses import trainer_losses, workload_losses
from app.exporters.megatron_limits import check_megatron
from app.exporters.megatron_losses import command_line_losses, model_losses, padded_vocabulary, vocabulary_losses
from app.exporters.megatron_model import (
    Argument,
    Fields,
    arguments,
    context_exchange,
    definition_of,
    model_arguments,
    model_fields,
)
from app.exporters.target import Target, header
from app.exporters.torch_schedule_csv import main_timeline
from app.faults import refused
from models.framework import packaged_framework
from models.plan import Configuration, Degrees, Plan
from models.request import PlanRequest
from models.schedule import Operation
from models.workload import Architecture

TARGET = Target(
    "Megatron-LM",
    "core 0.13 to 0.20",
    (
        "pretrain_gpt.py started on the hosts of the megatron-hostfile export, in its order",
        "the megatron-communicators export as communicators.yaml in the working folder",
        "CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment of every rank, but with --use-megatron-fsdp left unset",
        "your own data, tokenizer, learning rate and checkpoint arguments",
    ),
)
INTERLEAVED = frozenset({"interleaved", "breadth_first", "flexible_double", "flexible_limited"})
COMMUNICATORS_FILE = "communicators.yaml"
# Arguments, and values of theirs, that the oldest core of TARGET has not: the first that takes them beside the rest.
SINCE = {"--rope-type": "0.14", "--use-megatron-fsdp": "0.14", "--quick-geglu": "0.15", "--fp4-format": "0.15",
         "muon": "0.18", "dist_muon": "0.17", "--outer-dp-sharding-strategy": "0.16",
         "--yarn-original-max-position-embeddings": "0.19", "--yarn-beta-fast": "0.19", "--yarn-beta-slow": "0.19",
         "--no-yarn-correction-range-round-to-int": "0.19", "--window-size": "0.15", "--softmax-type": "0.15",
         "--glu-linear-offset": "0.15", "--activation-func-clamp-value": "0.15", "--moe-shared-expert-gate": "0.16",
         "--experimental-attention-variant": "0.16"}  # fmt: skip
RECOMPUTE: dict[str, Fields] = {
    "none": {},
    "selective": {"recompute_granularity": "selective"},
    "full": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
}
PRECISION: dict[str, Fields] = {
    "bf16": {"bf16": True},
    "fp32": {},
    "fp16": {"fp16": True},
    "fp8": {"bf16": True, "fp8_format": "hybrid"},
    "fp4": {"bf16": True, "fp4_format": "e2m1"},
}


def megatron_args(plan: Plan, request: PlanRequest | None = None) -> str:
    """The loss report as comments, then the arguments."""
    request = needed(request, "the model's sizes are in the request, not in the plan")
    check_megatron(plan, request)
    _check_positions(request.workload.architecture)
    lines = "".join(shlex.join(argument) + "\n" for argument in _stated(plan, request))
    return header(TARGET, losses(plan, request)) + lines


def _stated(plan: Plan, request: PlanRequest) -> list[Argument]:
    one, degrees, workload = plan.configuration, plan.configuration.degrees, request.workload
    # Muon over a distributed optimizer has a name of its own.
    is_distributed_muon = workload.optimizer.name == "muon" and one.sharding == "zero1"
    fields = {
        "tensor_model_parallel_size": degrees.tp,
        "sequence_parallel": degrees.tp > 1,
        "context_parallel_size": degrees.cp,
        "cp_comm_type": context_exchange(workload.architecture, degrees.cp),
        "pipeline_model_parallel_size": degrees.pp,
        "expert_model_parallel_size": degrees.ep if degrees.ep > 1 else None,
        "pipeline_model_parallel_layout": layout_of(plan, workload.architecture) if degrees.pp > 1 else None,
        "microbatch_group_size_per_virtual_pipeline_stage": group_of(plan),
        "nccl_communicator_config_path": COMMUNICATORS_FILE,
        **_sharding(one, by_name=is_distributed_muon),
        **RECOMPUTE[one.recompute],
        **PRECISION[workload.precision],
        "micro_batch_size": one.micro_batch_sequences,
        "global_batch_size": workload.global_batch_sequences,
        "seq_length": workload.sequence_length,
        "max_position_embeddings": workload.sequence_length,
        "use_flash_attn": workload.flash_attention,
        "optimizer": "dist_muon" if is_distributed_muon else workload.optimizer.name,
    }
    return [*arguments(fields), *model_arguments(workload.architecture)]


def _check_positions(architecture: Architecture) -> None:
    """The command line takes multi-token prediction with two kinds of positions."""
    kind = model_fields(architecture)["position_embedding_type"]
    if architecture.num_mtp_layers and kind not in ("rope", "none"):
        raise refused("not-expressible", f"multi-token prediction with {kind} positions: Megatron-LM has it with rope "
                      "and none", "/request/workload/architecture/num_mtp_layers", "0",
                      "Take isthmus bundle --for nemo, or state other positions.")  # fmt: skip


def layout_of(plan: Plan, architecture: Architecture) -> str:
    """The layout of a plan: the layers of multi-token prediction are on the last stage, as they are planned."""
    return pipeline_layout(plan.configuration.layers_per_stage, architecture.num_mtp_layers)


def group_of(plan: Plan) -> int | None:
    """Consecutive micro-batches per chunk where they have to be said; None where Megatron's default is right."""
    degrees = plan.configuration.degrees
    group = _group(plan) if degrees.vpp > 1 and degrees.pp > 1 else degrees.pp
    return None if group == degrees.pp else group


def _group(plan: Plan) -> int:
    """The plan's consecutive micro-batches, where its schedule is one of Megatron's family.

    Of another schedule the number would tell Megatron to hold more activations than the plan does.
    """
    schedule = main_timeline(plan).schedule
    wanted = consecutive_microbatches(schedule.ranks[0].operations) if schedule.generator in INTERLEAVED else 1
    return legal_group(wanted, plan.configuration.degrees.pp, plan.configuration.num_microbatches)


def legal_group(wanted: int, num_ranks: int, num_microbatches: int) -> int:
    """The least group from `wanted` on that Megatron starts with: ranks <= group, and no last group smaller than that.

    Source: forward_backward_pipelining_with_interleaving of Megatron-LM.

    >>> legal_group(1, 4, 8), legal_group(8, 4, 32), legal_group(1, 4, 10)
    (4, 8, 5)
    """
    groups = range(min(max(wanted, num_ranks), num_microbatches), num_microbatches)
    fitting = (group for group in groups if not 0 < num_microbatches % group < num_ranks)
    return next(fitting, num_microbatches)


def consecutive_microbatches(operations: tuple[str, ...]) -> int:
    """Forwards of the first chunk before the first one of the next chunk.

    >>> consecutive_microbatches(("0F0", "0F1", "2F0", "2F1", "2BW0"))
    2
    """
    stages = [one.stage for one in map(Operation.parse, operations) if one.kind == "F"]
    return len(list(next(groupby(stages))[1]))


def pipeline_layout(layers_per_stage: tuple[int, ...], num_mtp_layers: int = 0) -> str:
    """Megatron's layout text: E embedding, t a layer, m one of multi-token prediction, L loss; stages in virtual order.

    >>> pipeline_layout((2, 2, 2, 1)), pipeline_layout((126, 0)), pipeline_layout((1, 1), 1)
    ('Ett|tt|tt|tL', 'Et*126|L', 'Et|tmL')
    """
    stages = ["t" * number if number < 4 else f"t*{number}" for number in layers_per_stage]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * num_mtp_layers + "L"
    return "|".join(stages)


def _sharding(one: Configuration, *, by_name: bool) -> Fields:
    """A distributed Muon is told by its name alone: core 0.17 refuses the flag beside it."""
    instances = one.num_state_copies if one.num_state_copies > 1 else None
    if one.sharding == "ddp":
        return {"overlap_grad_reduce": True}
    if one.sharding == "zero1":
        return {
            "use_distributed_optimizer": not by_name,
            "num_distributed_optimizer_instances": instances,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
        }
    return {
        "use_megatron_fsdp": True,
        "data_parallel_sharding_strategy": "optim_grads_params",
        "use_distributed_optimizer": True,
        "ckpt_format": "fsdp_dtensor",
        "num_distributed_optimizer_instances": instances,
        "outer_dp_sharding_strategy": instances and "no_shard",
    }


def losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What of the plan these arguments do not carry, and which of them older releases do not parse."""
    yield from plan_losses(plan, request)
    if request is not None:
        architecture = request.workload.architecture
        yield from command_line_losses(architecture)
        rows = padded_vocabulary(architecture.vocab_size, plan.configuration.degrees.tp)
        yield from vocabulary_losses(architecture, rows)
        words = dict.fromkeys(word for argument in _stated(plan, request) for word in argument)
        yield from (f"{word} to cores before {SINCE[word]}, which do not have it" for word in words if word in SINCE)
        yield from _release_losses(plan.configuration.degrees, architecture)


def _release_losses(degrees: Degrees, architecture: Architecture) -> Iterator[str]:
    """What older releases refuse in combination. Source: arguments.py and transformer_config.py of these releases."""
    heads = architecture.attention.num_kv_heads
    if degrees.cp > 1 and architecture.num_mtp_layers:
        yield "multi-token prediction over context-parallel ranks to cores before 0.14, which refuse it"
    if architecture.moe is not None and definition_of(architecture).linear_bias:
        yield "experts with biases to cores before 0.15, which refuse them"
    if heads % degrees.tp:
        yield f"{heads} key/value heads over {degrees.tp} ranks to cores before 0.16, which repeat none"


def plan_losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What of the plan Megatron is not told, whoever tells it."""
    if plan.configuration.degrees.pp > 1:
        yield from _order_losses(plan)
    yield from _group_losses(plan)
    if request is not None:
        yield from model_losses(request.workload.architecture)
        if exchange := context_exchange(request.workload.architecture, plan.configuration.degrees.cp):
            yield f"keys and values passed between context-parallel ranks, as planned: Megatron takes {exchange} here"
        yield from workload_losses(request.workload, "Megatron")
    yield from trainer_losses(plan)


def _order_losses(plan: Plan) -> Iterator[str]:
    schedules = [timeline.schedule for timeline in plan.timelines]
    others = sorted(
        {schedule.generator for schedule in schedules} - set(packaged_framework("megatron-core").schedules or ())
    )
    if others:
        yield f"the order of operations ({', '.join(others)}): Megatron runs 1F1B, or interleaved 1F1B"
    if any("BW" not in line for schedule in schedules for line in schedule.text.splitlines()):
        yield "backward passes in two halves: Megatron runs them whole"


def _group_losses(plan: Plan) -> Iterator[str]:
    degrees = plan.configuration.degrees
    if degrees.vpp == 1 or degrees.pp == 1:
        return
    planned, group = consecutive_microbatches(main_timeline(plan).schedule.ranks[0].operations), _group(plan)
    if planned != group:
        yield f"{planned} consecutive micro-batches per chunk: Megatron runs {group} and holds other activations"
