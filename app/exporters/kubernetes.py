"""What a plan needs of Kubernetes, whoever schedules it: groups of pods with their place, in rank order.

Names of places come from users and may not be labels: then a safe form stands for them, and the comment tells which.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.exporters.hosts import buildings_of_places, hosts_of, pools_of, ranges, unavailable_losses
from app.faults import refused
from models.plan import Plan
from models.request import PlanRequest

BUILDING_LABEL = "topology.kubernetes.io/zone"  # well-known label for a failure domain inside a region
NEAREST_LABEL = "fabric.topograph.run/tier-0"  # as topograph labels the switch nearest to a node
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
HOST_LABEL = "kubernetes.io/hostname"
NEEDS = (
    f"nodes labelled {BUILDING_LABEL} with their building, {NEAREST_LABEL} with their nearest switch (topograph does)",
    "your image, and your program in the arguments of its container",
    "network cards for the pods: your device plug-in's resource, or hostNetwork",
)
IMAGE = "registry.example/trainer:latest"
FILES_PATH = "/isthmus"
MASTER_PORT = 29500
START = (
    'exec torchrun --nnodes="$ISTHMUS_NUM_NODES" --nproc-per-node="$ISTHMUS_GPUS_PER_POD" '
    '--node-rank="$((ISTHMUS_FIRST_NODE + @INDEX@))" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"'
)


@dataclass(frozen=True)
class PodGroup:
    """Pods on whole hosts, one a host, whose ranks follow each other; on these hosts, where they are known."""

    name: str
    building: str
    hosts: tuple[str, ...]
    first_rank: int
    first_node: int
    num_pods: int
    gpus_per_pod: int
    pods_per_stage_group: int


def pod_groups(plan: Plan, request: PlanRequest | None) -> list[PodGroup]:
    """One group per range of ranks; refused where a range does not take whole hosts."""
    pools, buildings = pools_of(plan, request), buildings_of_places(request)
    group_gpus = plan.configuration.degrees.gpus_per_stage_group
    found: list[PodGroup] = []
    for number, one in enumerate(ranges(plan)):
        per_host = pools[one.pool].gpus_per_host
        if one.first_gpu % per_host or one.num_ranks % per_host:
            raise refused("not-expressible", f"ranks {one.first_rank} to {one.first_rank + one.num_ranks - 1} "
                          f"take parts of hosts of {per_host} GPUs in pool {one.pool!r}", "/plan/placement/rank_map",
                          "whole hosts",
                          "Use the slurm-hostfile export, or plan with use_all_gpus and groups that fill "
                          "hosts.")  # fmt: skip
        place = pools[one.pool].place
        building = buildings.get(place, place)
        pods = one.num_ranks // per_host
        in_group = max(group_gpus // per_host, 1)
        first_node = found[-1].first_node + found[-1].num_pods if found else 0
        hosts = tuple(dict.fromkeys(hosts_of(one, per_host))) if one.hosts else ()
        found.append(
            PodGroup(f"p{one.pipeline_rank}-{number}", building, hosts, one.first_rank, first_node, pods, per_host,
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


@dataclass(frozen=True)
class Rendezvous:
    """How the pods of a job find each other: the address of the first, and the variable with a pod's index."""

    master: str
    index_variable: str
    num_nodes: int


def pod_template(
    group: PodGroup,
    annotations: dict[str, str],
    rendezvous: Rendezvous,
    *,
    image: str = IMAGE,
    files: str | None = None,
) -> dict[str, Any]:
    """The pod of a group: where it may be, what it runs, and how it finds the others.

    `files` names a ConfigMap with the files of a bundle: then the pod runs its `pod.sh`.
    """
    inline = ["bash", "-c", START.replace("@INDEX@", rendezvous.index_variable), "trainer"]
    container: dict[str, Any] = {
        "name": "trainer",
        "image": image,
        "command": inline if files is None else ["bash", f"{FILES_PATH}/pod.sh"],
        **({"args": ["train.py"]} if files is None else {}),
        "env": _environment(group, rendezvous),
        "resources": {"limits": {"nvidia.com/gpu": str(group.gpus_per_pod)}},
        "volumeMounts": [
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *([{"name": "files", "mountPath": FILES_PATH}] if files is not None else []),
        ],
    }
    volumes: list[dict[str, Any]] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    if files is not None:
        volumes.append({"name": "files", "configMap": {"name": files}})
    return {
        **({"metadata": {"annotations": annotations}} if annotations else {}),
        "spec": {
            "nodeSelector": {BUILDING_LABEL: label_value(group.building)},
            **_on_hosts(group.hosts),
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": volumes,
        },
    }


def _environment(group: PodGroup, rendezvous: Rendezvous) -> list[dict[str, Any]]:
    values = {
        "ISTHMUS_FIRST_RANK": group.first_rank,
        "ISTHMUS_FIRST_NODE": group.first_node,
        "ISTHMUS_NUM_NODES": rendezvous.num_nodes,
        "ISTHMUS_GPUS_PER_POD": group.gpus_per_pod,
        "MASTER_ADDR": rendezvous.master,
        "MASTER_PORT": MASTER_PORT,
    }
    host = {"name": "ISTHMUS_HOST", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [*({"name": name, "value": str(value)} for name, value in values.items()), host]


def _on_hosts(hosts: tuple[str, ...]) -> dict[str, Any]:
    """The group's pods on the group's hosts, in any order: a pod of its own for every host would be one job each."""
    if not hosts:
        return {}
    wanted = {"key": HOST_LABEL, "operator": "In", "values": list(hosts)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def renamed(groups: list[PodGroup]) -> Iterator[str]:
    """A comment for every building whose label is not its name."""
    for building in dict.fromkeys(group.building for group in groups):
        if label_value(building) != building:
            yield f"building {building!r} is the label value {label_value(building)!r}"


def placement_losses(plan: Plan, request: PlanRequest | None) -> Iterator[str]:
    """What a Kubernetes scheduler is not told."""
    yield from unavailable_losses(plan, request)
    yield "which host of a group holds which rank: rank = ISTHMUS_FIRST_RANK + pod * GPUs per pod + local rank"
    yield "links, loads and times: no scheduler of Kubernetes has words for them"
    yield "degrees, schedule and transport: see the exports for the trainer"
