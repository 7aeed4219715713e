"""What Megatron refuses when it starts, so that no file is written that looks as if it could run.

Source: validate_args of megatron/training/arguments.py, TransformerConfig, SharedExpertMLP, group_limited_topk and
core/optimizer of Megatron-LM core 0.20, August 2026.
"""

from __future__ import annotations

from collections.abc import Iterator

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
# What the profile of Megatron lacks that its arguments cannot say either, and where it is in the plan's configuration.
LACKED = {"family": "family", "num_microbatches": "num_microbatches", "shard_group_replicas": "shard_group_replicas",
          "optimizer": "sharding", "tp": "degrees/tp", "degrees": "degrees"}  # fmt: skip


def check_megatron(plan: Plan, request: PlanRequest) -> None:
    """Refuse what has no form in Megatron, and what its configuration takes in no combination."""
    for what, pointer, remedy in _refusals(plan.configuration, request.workload):
        raise refused("not-expressible", what, pointer, remedy=remedy)


def _refusals(one: Configuration, workload: Workload) -> Iterator[Refusal]:
    """How the profile shards is no reason: its arguments say FSDP, too, of which it has no times."""
    for name, detail in packaged_framework("megatron-core").lacks(one, workload):
        if name in LACKED:
            yield detail, f"/plan/configuration/{LACKED[name]}", OTHER_PLAN
        elif name.startswith("/workload/"):
            yield detail, f"/request{name}", "State a job that Megatron has, or use the torchtitan export."
    if workload.optimizer.name == "muon" and one.sharding in ("fsdp", "hsdp"):
        what = "muon over fully sharded parameters: Megatron's FSDP has adam and sgd"
        yield what, "/plan/configuration/sharding", OTHER_OPTIMIZER
