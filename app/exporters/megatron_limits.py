"""What Megatron refuses when it starts, so that no file is written that looks as if it could run.

Source: validate_args of megatron/training/arguments.py, TransformerConfig, SharedExpertMLP, group_limited_topk and
core/optimizer of Megatron-LM core 0.20, August 2026.
"""

from __future__ import annotations

from app.faults import refused
from models.framework import packaged_framework
from models.plan import Plan
from models.request import PlanRequest

OTHER_PLAN = 'Plan with constraints.framework "megatron-core", or use the torchtitan and torch-schedule-csv exports.'
OTHER_OPTIMIZER = (
    "Plan for another optimizer, or with one copy of its state (constraints.allowed.sharding zero1 or ddp)."
)
# What the profile of Megatron lacks that its arguments cannot say either, and where it is in the plan's configuration.
LACKED = {"family": "family", "num_microbatches": "num_microbatches", "shard_group_replicas": "shard_group_replicas",
          "optimizer": "sharding", "tp": "degrees/tp", "degrees": "degrees"}  # fmt: skip


def check_megatron(plan: Plan, request: PlanRequest) -> None:
    """Refuse what has no form in Megatron, and what its configuration takes in no combination.

    How the profile shards is no reason: its arguments say FSDP, too, of which it has no times.
    """
    one, workload = plan.configuration, request.workload
    for name, detail in packaged_framework("megatron-core").lacks(one, workload):
        if name in LACKED:
            raise refused("not-expressible", detail, f"/plan/configuration/{LACKED[name]}", remedy=OTHER_PLAN)
        if name.startswith("/workload/"):
            raise refused("not-expressible", detail, f"/request{name}",
                          remedy="State a job that Megatron has, or use the torchtitan export.")  # fmt: skip
    if workload.optimizer.name == "muon" and one.sharding in ("fsdp", "hsdp"):
        raise refused("not-expressible", "muon over fully sharded parameters: Megatron's FSDP has adam and sgd",
                      "/plan/configuration/sharding", remedy=OTHER_OPTIMIZER)  # fmt: skip
