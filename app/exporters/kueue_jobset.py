"""A JobSet whose pod sets ask Kueue for their building: one replicated job per range of ranks, in rank order.

Source: Kueue v0.14 to v0.20, podset-required-topology and podset-slice annotations; JobSet v1alpha2.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from app.exporters.kubernetes import (
    BUILDING_LABEL,
    HOST_LABEL,
    NEAREST_LABEL,
    NEEDS,
    PodGroup,
    Rendezvous,
    placement_losses,
    pod_groups,
    pod_template,
    renamed,
)
from app.exporters.launch.options import Launch
from app.exporters.target import Target, header
from app.faults import refused
from models.plan import Plan
from models.request import PlanRequest

TARGET = Target(
    "Kueue with JobSet",
    "Kueue 0.14 to 0.20, JobSet 0.8 to 0.11",
    (f"a Kueue Topology whose levels hold {BUILDING_LABEL} and {NEAREST_LABEL}, and a LocalQueue", *NEEDS),
)

# Pod sets of one workload, least versions first: validation of spec.podSets in apis/kueue/v1beta*/workload_types.go.
MOST_POD_SETS = {"0.14": 8, "0.18": 10, "0.19": 18}


def kueue_jobset(plan: Plan, request: PlanRequest | None = None) -> str:
    """The manifest; image, program and the queue's name are yours."""
    return _manifest(plan, request, Launch(trainer="megatron-core", scheduler="kubernetes"), files=None)


def jobset_manifest(plan: Plan, request: PlanRequest | None, options: Launch) -> str:
    """The manifest of a bundle, whose files are in a ConfigMap."""
    return _manifest(plan, request, options, files=f"{options.name}-files")


def kueue_topology() -> str:
    """The levels by which Kueue has to know the nodes, for its administrator: building, nearest switch, host."""
    levels = [{"nodeLabel": label} for label in (BUILDING_LABEL, NEAREST_LABEL, HOST_LABEL)]
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "isthmus"},
        "spec": {"levels": levels},
    }
    return yaml.safe_dump(manifest, sort_keys=False)


def _manifest(plan: Plan, request: PlanRequest | None, options: Launch, *, files: str | None) -> str:
    groups, name = pod_groups(plan, request), options.name
    most = max(MOST_POD_SETS.values())
    if len(groups) > most:
        raise refused("not-expressible", f"{len(groups)} groups of pods, each with a place of its own: Kueue admits no "
                      f"more than {most} together", "/plan/placement/rank_map", f"at most {most}",
                      "Take the volcano-job export or Slurm, or plan with fewer pipeline ranks.")  # fmt: skip
    master = f"{name}-{groups[0].name}-0-0.{name}"  # JobSet's name of the first pod in its headless service
    meeting = Rendezvous(master, "JOB_COMPLETION_INDEX", sum(group.num_pods for group in groups))
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": options.queue}},
        "spec": {
            "suspend": True,
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [_replicated_job(group, meeting, options, files) for group in groups],
        },
    }
    report = header(TARGET, [*losses(plan, request), *renamed(groups)])
    return report + yaml.safe_dump(manifest, sort_keys=False)


def _replicated_job(group: PodGroup, meeting: Rendezvous, options: Launch, files: str | None) -> dict[str, object]:
    limit_minutes = options.time_limit_minutes
    job = {
        "parallelism": group.num_pods,
        "completions": group.num_pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        **({"activeDeadlineSeconds": limit_minutes * 60} if limit_minutes is not None else {}),
        "template": pod_template(group, topology_requests(group), meeting, image=options.image, files=files),
    }
    return {"name": group.name, "replicas": 1, "template": {"spec": job}}


def topology_requests(group: PodGroup) -> dict[str, str]:
    """All pods in one building; where a stage group spans hosts, these share their nearest switch."""
    found = {"kueue.x-k8s.io/podset-required-topology": BUILDING_LABEL}
    if group.pods_per_stage_group > 1:
        found["kueue.x-k8s.io/podset-slice-required-topology"] = NEAREST_LABEL
        found["kueue.x-k8s.io/podset-slice-size"] = str(group.pods_per_stage_group)
    return found


def losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What the manifest does not carry, and which versions do not admit it."""
    number = len(plan.placement.rank_map)
    fewer = [most for most in MOST_POD_SETS.values() if most < number]
    if fewer and number <= max(MOST_POD_SETS.values()):
        since = next(version for version, most in MOST_POD_SETS.items() if most >= number)
        yield f"{number} groups of pods to Kueue before {since}, which admits no more than {max(fewer)} together"
    yield from placement_losses(plan, request)
