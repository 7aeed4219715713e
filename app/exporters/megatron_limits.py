"""What Megatron refuses when it starts, so that no file is written that looks as if it could run.

Source: validate_args of megatron/training/arguments.py, TransformerConfig and core/optimizer of Megatron-LM core 0.20,
August 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from app.exporters.megatron_model import definition_of
from app.faults import refused
from models.framework import packaged_framework
from models.plan import Configuration, Plan
from models.request import PlanRequest
from models.workload import Workload

Refusal = tuple[str, str, str]  # what, where in the plan or its request, what to do instead
OTHER_PLAN = 'Plan with constraints.framework "megatron-core", or use the torchtitan and torch-schedule-csv exports.'
OTHER_OPTIMIZER = (
    "Plan for another optimizer, or with one copy of its state (constraints.allowed.sharding zero1 or ddp)."
)


def check_megatron(plan: Plan, request: PlanRequest) -> None:
    """Refuse what has no form in Megatron, and what its configuration takes in no combination."""
    for what, pointer, remedy in _refusals(plan.configuration, request.workload):
        raise refused("not-expressible", what, pointer, remedy=remedy)


def _refusals(one: Configuration, workload: Workload) -> Iterator[Refusal]:
    """How the profile shards is no reason: its arguments say FSDP, too, of which it has no times."""
    for name, detail in packaged_framework("megatron-core").lacks(one, workload.architecture):
        if name in ("family", "num_microbatches", "shard_group_replicas"):
            yield detail, f"/plan/configuration/{name}", OTHER_PLAN
    if workload.optimizer.name == "muon":
        yield from ((what, "/plan/configuration/sharding", OTHER_OPTIMIZER) for what in _of_muon(one, workload))
    architecture, tp, cp = workload.architecture, one.degrees.tp, one.degrees.cp
    if workload.sequence_length % lcm(tp * cp, 2 * cp if cp > 1 else 1):
        yield (f"sequences of {workload.sequence_length} tokens over {tp} tensor-parallel and {cp} context-parallel "
               "ranks: Megatron splits them evenly", "/plan/configuration/degrees",
               "Plan with constraints.allowed.tp and cp that divide them.")  # fmt: skip
    if architecture.moe is not None and definition_of(architecture).linear_bias and tp > 1:
        yield (f"experts with biases over {tp} tensor-parallel ranks: Megatron has biases on whole experts only",
               "/plan/configuration/degrees/tp", "Plan with constraints.allowed.tp [1].")  # fmt: skip


def _of_muon(one: Configuration, workload: Workload) -> Iterator[str]:
    if one.sharding in ("fsdp", "hsdp"):
        yield "muon over fully sharded parameters: Megatron's FSDP has adam and sgd"
    elif one.num_state_copies > 1:
        yield f"muon with {one.num_state_copies} copies of the optimizer state: Megatron shards it over all replicas"
    if workload.precision == "fp16":
        yield "muon in fp16: Megatron has it in bf16 and fp32"
