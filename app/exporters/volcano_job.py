"""A Volcano job whose tasks are the ranges of ranks, each held in its building by label and by network topology.

Source: Volcano 1.16 API, batch.volcano.sh/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from app.exporters.kubernetes import NEEDS, PodGroup, Rendezvous, placement_losses, pod_groups, pod_template, renamed
from app.exporters.target import Target, header
from models.plan import Plan
from models.request import PlanRequest

TARGET = Target(
    "Volcano",
    "1.16 (networkTopology and partitionPolicy are alpha)",
    ("HyperNodes with the tier names rack, building and region", *NEEDS),
)


def volcano_job(plan: Plan, request: PlanRequest | None = None) -> str:
    """The manifest; image, program and queue are yours."""
    groups = pod_groups(plan, request)
    # the service plug-in names pods JOB-TASK-INDEX.JOB, the environment plug-in tells a pod its index
    meeting = Rendezvous(f"isthmus-{groups[0].name}-0.isthmus", "VC_TASK_INDEX", sum(one.num_pods for one in groups))
    widest = "region" if plan.placement.crossing != "none" else "building"
    manifest = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "isthmus"},
        "spec": {
            "schedulerName": "volcano",
            "queue": "training",
            "minAvailable": sum(group.num_pods for group in groups),
            "networkTopology": {"mode": "hard", "highestTierName": widest},
            "plugins": {"svc": [], "env": []},
            "tasks": [_task(group, meeting) for group in groups],
        },
    }
    report = header(TARGET, [*losses(plan, request), *renamed(groups)])
    return report + yaml.safe_dump(manifest, sort_keys=False)


def _task(group: PodGroup, meeting: Rendezvous) -> dict[str, object]:
    task: dict[str, object] = {"name": group.name, "replicas": group.num_pods, "minAvailable": group.num_pods}
    if group.pods_per_stage_group > 1:
        task["partitionPolicy"] = {
            "totalPartitions": group.num_pods // group.pods_per_stage_group,
            "partitionSize": group.pods_per_stage_group,
            "networkTopology": {"mode": "hard", "highestTierName": "rack"},
        }
    return {**task, "template": pod_template(group, {}, meeting)}


def losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What the manifest does not carry."""
    if plan.configuration.degrees.pp > 1:
        yield "the building of a task as topology: it is a node selector, which no HyperNode checks"
    yield from placement_losses(plan, request)
