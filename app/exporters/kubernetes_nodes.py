"""The nodes that `kubectl get nodes -o json` (or yaml) prints: names, label values, GPUs.

Nodes that take no pods or are not ready are left out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml

from app.faults import Refused, refused
from app.yaml_values import NotPlain, word_value, yaml_values

GPU_RESOURCE = "nvidia.com/gpu"
WHERE, POINTER = "hosts", "/hosts"  # what faults call the text, and where it stands in the body of a request
# Lines, commas and opening brackets. kubectl prints 300 lines of YAML, or 400 of JSON with as many commas and brackets
# again, for a node that holds 50 images; the largest body of a request has room for a thousand such nodes. So much JSON
# is read in 0.1 s of processor time, so much YAML in 1.6 s.
MOST_MARKS, MOST_YAML_MARKS = 1_500_000, 400_000
_KUBECTL = "the output of kubectl get nodes -o json"
_LIST = re.compile(r"^[ \t]*kind:[ \t]*\S*List[ \t]*\r?$", re.MULTILINE)  # a blank must not match the end of a line


@dataclass(frozen=True)
class Node:
    """A node that takes pods: its name, the values of its labels, and its GPUs where it says."""

    name: str
    labels: frozenset[str]
    num_gpus: int | None


def is_node_list(text: str) -> bool:
    """Whether the text is a document of Kubernetes and no list of hosts."""
    return text.startswith("{") or _LIST.search(text) is not None


def nodes_of(text: str) -> list[Node]:
    """Every node of the list that is ready and takes pods."""
    marks = sum(map(text.count, "\n,[{"))
    _check_length(marks, MOST_MARKS, "Name the hosts: POOL=node[001-128], one pool a line.")
    document = _read(text, marks)
    try:
        return [_node(one) for one in document["items"] if _takes_pods(one)]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise _unreadable("it has no items with metadata.name, labels and status as nodes have them") from None


def _check_length(marks: int, most: int, remedy: str) -> None:
    if marks > most:
        raise refused("limit-exceeded", f"the list of nodes is too long to be read: {marks:,} lines, commas and "
                      "brackets", POINTER, f"at most {most:,}", remedy, where=WHERE)  # fmt: skip


def _read(text: str, marks: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass  # YAML, which most of JSON is: its parser says what is wrong
    _check_length(marks, MOST_YAML_MARKS, "Give the output of kubectl get nodes -o json as it is.")
    try:
        return next(yaml_values(text, scalar=word_value, aliases=False), None)
    except NotPlain as fault:
        raise _unreadable(fault.what if fault.what.startswith("the ") else f"it {fault.what}") from None
    except yaml.YAMLError as error:
        raise _unreadable(str(error).splitlines()[0]) from None


def _unreadable(what: str) -> Refused:
    return refused("invalid-request", f"the list of nodes cannot be read: {what}"[:300], POINTER, _KUBECTL,
                   "Give that output as it is.", where=WHERE)  # fmt: skip


def _node(one: dict[str, Any]) -> Node:
    values = frozenset(map(str, (one["metadata"].get("labels") or {}).values()))
    gpus = (one.get("status", {}).get("allocatable") or {}).get(GPU_RESOURCE)
    return Node(str(one["metadata"]["name"]), values, None if gpus is None else int(gpus))


def _takes_pods(one: dict[str, Any]) -> bool:
    ready = [c["status"] for c in one.get("status", {}).get("conditions") or () if c["type"] == "Ready"]
    return not one.get("spec", {}).get("unschedulable", False) and ready in ([], ["True"])
