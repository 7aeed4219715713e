"""What a plan needs of Kubernetes, whoever schedules it: groups of pods with their place, in rank order.

Owns the groups, their names and labels. Names of places come from users and may not be labels: then a safe form stands
for them, and the comment tells which.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.exporters.hosts import pools_of, ranges
from app.exporters.places import building_of
from app.faults import Fault, Refused
from models.plan import Plan
from models.request import PlanRequest

BUILDING_LABEL = "topology.kubernetes.io/zone"  # well-known label for a failure domain inside a region
NEAREST_LABEL = "fabric.topograph.run/tier-0"  # as topograph labels the switch nearest to a node
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
NEEDS = (
    f"nodes labelled {BUILDING_LABEL} with their building, {NEAREST_LABEL} with their nearest switch (topograph does)",
    "your image and command in the container",
)
IMAGE = "registry.example/trainer:latest"


@dataclass(frozen=True)
class PodGroup:
    """Pods on whole hosts, one a host, whose ranks follow each other."""

    name: str
    building: str
    first_rank: int
    num_pods: int
    gpus_per_pod: int
    pods_per_stage_group: int


def pod_groups(plan: Plan, request: PlanRequest | None) -> list[PodGroup]:
    """One group per range of ranks; refused where a range does not take whole hosts."""
    pools = pools_of(plan, request)
    group_gpus = plan.configuration.degrees.gpus_per_stage_group
    found = []
    for number, one in enumerate(ranges(plan)):
        per_host = pools[one.pool].gpus_per_host
        if one.first_gpu % per_host or one.num_ranks % per_host:
            raise Refused((Fault("not-expressible", f"ranks {one.first_rank} to {one.first_rank + one.num_ranks - 1} "
                                 f"take parts of hosts of {per_host} GPUs in pool {one.pool!r}",
                                 "/plan/placement/rank_map", "whole hosts",
                                 "Use the slurm-hostfile export, or plan with use_all_gpus and groups that fill "
                                 "hosts."),))  # fmt: skip
        building = building_of(pools[one.pool].place, request)
        pods = one.num_ranks // per_host
        in_group = max(group_gpus // per_host, 1)
        found.append(
            PodGroup(f"p{one.pipeline_rank}-{number}", building, one.first_rank, pods, per_host,
                     in_group if pods % in_group == 0 else 1)
        )  # fmt: skip
    return found


def label_value(name: str) -> str:
    """The name as a label value; one that is none becomes a safe form that ends in a hash of it.

    >>> label_value("east-1"), label_value("Building A; rm")
    ('east-1', 'Building-A--rm-2dcf1b')
    """
    if LABEL_VALUE.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name).strip("-._")[:50]
    return f"{safe or 'place'}-{digest}"


def pod_template(group: PodGroup, annotations: dict[str, str]) -> dict[str, Any]:
    """The pod of a group: its building, its GPUs and its first rank."""
    container = {
        "name": "trainer",
        "image": IMAGE,
        "env": [
            {"name": "ISTHMUS_FIRST_RANK", "value": str(group.first_rank)},
            {"name": "ISTHMUS_GPUS_PER_POD", "value": str(group.gpus_per_pod)},
        ],
        "resources": {"limits": {"nvidia.com/gpu": str(group.gpus_per_pod)}},
    }
    return {
        **({"metadata": {"annotations": annotations}} if annotations else {}),
        "spec": {
            "nodeSelector": {BUILDING_LABEL: label_value(group.building)},
            "restartPolicy": "Never",
            "containers": [container],
        },
    }


def renamed(groups: list[PodGroup]) -> Iterator[str]:
    """A comment for every building whose label is not its name."""
    for building in dict.fromkeys(group.building for group in groups):
        if label_value(building) != building:
            yield f"building {building!r} is the label value {label_value(building)!r}"


def placement_losses() -> Iterator[str]:
    """What a Kubernetes scheduler is not told."""
    yield "which host of a building holds which rank: rank = ISTHMUS_FIRST_RANK + pod * GPUs per pod + local rank"
    yield "links, loads and times: no scheduler of Kubernetes has words for them"
    yield "degrees, schedule and transport: see the exports for the trainer"
