"""The nodes that `kubectl get nodes -o json` (or yaml) prints: names, label values, GPUs.

Nodes that take no pods or are not ready are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from app.faults import refused

GPU_RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True)
class Node:
    """A node that takes pods: its name, the values of its labels, and its GPUs where it says."""

    name: str
    labels: frozenset[str]
    num_gpus: int | None


def is_node_list(text: str) -> bool:
    """Whether the text is a document of Kubernetes and no list of hosts."""
    return text.startswith("{") or re.search(r"^\s*kind:\s*\S*List\s*$", text, re.MULTILINE) is not None


def nodes_of(text: str) -> list[Node]:
    """Every node of the list that is ready and takes pods."""
    try:
        document = yaml.load(text, Loader=yaml.CSafeLoader)  # JSON is YAML; C, because a cluster's list is long
        return [_node(one) for one in document["items"] if _takes_pods(one)]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"the list of nodes cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise refused("invalid-request", what[:300], "hosts", "the output of kubectl get nodes -o json",
                      "Give that output as it is.", where="hosts") from None  # fmt: skip


def _node(one: dict[str, Any]) -> Node:
    values = frozenset(map(str, (one["metadata"].get("labels") or {}).values()))
    gpus = (one.get("status", {}).get("allocatable") or {}).get(GPU_RESOURCE)
    return Node(str(one["metadata"]["name"]), values, None if gpus is None else int(gpus))


def _takes_pods(one: dict[str, Any]) -> bool:
    ready = [c["status"] for c in one.get("status", {}).get("conditions") or () if c["type"] == "Ready"]
    return not one.get("spec", {}).get("unschedulable", False) and ready in ([], ["True"])
