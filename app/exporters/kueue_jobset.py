"""A JobSet whose pod sets ask Kueue for their building: one replicated job per range of ranks, in rank order.

Owns the annotations of Kueue's topology-aware scheduling. Source: Kueue v0.14 to v0.20, podset-required-topology and
podset-slice annotations; JobSet v1alpha2.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from app.exporters.kubernetes import (
    BUILDING_LABEL,
    NEAREST_LABEL,
    NEEDS,
    PodGroup,
    placement_losses,
    pod_groups,
    pod_template,
    renamed,
)
from app.exporters.target import Target, header
from models.plan import Plan
from models.request import PlanRequest

TARGET = Target(
    "Kueue with JobSet",
    "Kueue 0.14 to 0.20, JobSet 0.8 to 0.11",
    (f"a Kueue Topology whose levels hold {BUILDING_LABEL} and {NEAREST_LABEL}, and a LocalQueue", *NEEDS),
)


def kueue_jobset(plan: Plan, request: PlanRequest | None = None) -> str:
    """The manifest; the queue's name is the only thing to fill in besides image and command."""
    groups = pod_groups(plan, request)
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "isthmus", "labels": {"kueue.x-k8s.io/queue-name": "training"}},
        "spec": {"suspend": True, "replicatedJobs": [_replicated_job(group) for group in groups]},
    }
    report = header(TARGET, [*losses(plan, request), *renamed(groups)])
    return report + yaml.safe_dump(manifest, sort_keys=False)


def _replicated_job(group: PodGroup) -> dict[str, object]:
    job = {
        "parallelism": group.num_pods,
        "completions": group.num_pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": pod_template(group, topology_requests(group)),
    }
    return {"name": group.name, "replicas": 1, "template": {"spec": job}}


def topology_requests(group: PodGroup) -> dict[str, str]:
    """All pods in one building; where a stage group spans hosts, these share their nearest switch."""
    found = {"kueue.x-k8s.io/podset-required-topology": BUILDING_LABEL}
    if group.pods_per_stage_group > 1:
        found["kueue.x-k8s.io/podset-slice-required-topology"] = NEAREST_LABEL
        found["kueue.x-k8s.io/podset-slice-size"] = str(group.pods_per_stage_group)
    return found


def losses(_plan: Plan, _request: PlanRequest | None = None) -> Iterator[str]:
    """What the manifest does not carry."""
    yield from placement_losses()
