"""A Kueue Topology with the nodes of its cluster, as `kubectl get -o yaml` or `-o json` prints them.

Source: Kueue's Topology (spec.levels[].nodeLabel, outermost first, kubernetes.io/hostname only as the last) and the
Node of Kubernetes. Of a node it uses the name, the labels of the levels, the GPUs it offers and whether it takes work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, Field

from app.importers.fabric import Fabric, FabricBuilder, Host, Unit
from app.importers.source import Document, Here, names_shown, read_at, refused, repeated
from app.importers.texts import parse_json, parse_yaml
from models.base import Frozen, Name
from models.pointers import escaped

HOSTNAME = "kubernetes.io/hostname"
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
# How NVIDIA's device plugin and feature discovery name slices of a GPU and a GPU that several pods share.
_SLICES, _PRODUCT, _PART = "nvidia.com/mig-", "nvidia.com/gpu.product", re.compile(r"-MIG-|-SHARED$")


class _Loose(Frozen):
    """A Kubernetes object holds much that an import has no use for."""

    model_config = ConfigDict(extra="ignore")


class _Level(Frozen):
    nodeLabel: str = Field(min_length=1, max_length=317)


class _TopologySpec(_Loose):
    levels: tuple[_Level, ...] = Field(min_length=1, max_length=16)


class _Metadata(_Loose):
    name: Name
    labels: dict[str, str] = Field(default_factory=dict)


class _Topology(_Loose):
    metadata: _Metadata
    spec: _TopologySpec


class _NodeSpec(_Loose):
    unschedulable: bool = False


class _Condition(_Loose):
    type: str
    status: str


class _NodeStatus(_Loose):
    capacity: dict[str, str | int] = Field(default_factory=dict)
    allocatable: dict[str, str | int] = Field(default_factory=dict)
    conditions: tuple[_Condition, ...] = ()


class _Node(_Loose):
    metadata: _Metadata
    spec: _NodeSpec = Field(default_factory=_NodeSpec)
    status: _NodeStatus = Field(default_factory=_NodeStatus)


@dataclass(frozen=True)
class _Object:
    document: Document
    pointer: str
    value: Mapping[str, Any]

    @property
    def here(self) -> Here:
        return Here(self.document, self.pointer)


def kueue(files: Sequence[tuple[str, bytes]]) -> Fabric:
    """The fabric of one Topology and the nodes in the files."""
    objects = [one for name, data in files for document in _documents(name, data) for one in _objects(document)]
    topology = _the_topology(files[0][0], [one for one in objects if one.value.get("kind") == "Topology"])
    nodes = [one for one in objects if one.value.get("kind") == "Node"]
    labels = tuple(level.nodeLabel for level in topology.spec.levels)
    read = [(one, read_at(_Node, one.document, one.pointer, one.value)) for one in nodes]
    return _fabric(topology.metadata.name, labels, read, files[0][0])


def _documents(name: str, data: bytes) -> list[Document]:
    if data.lstrip()[:1] in (b"{", b"["):
        return [parse_json(name, data)]
    return parse_yaml(name, data)


def _objects(document: Document, pointer: str = "", value: Any = None) -> Iterator[_Object]:
    """The objects of a document; a List is opened."""
    value = document.value if value is None else value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        remedy = "Give what kubectl get topologies.kueue.x-k8s.io,nodes -o yaml prints."
        raise document.refused(pointer, "is no Kubernetes object: it has no kind", code="missing-field",
                               allowed="Topology, Node, or a List of them", remedy=remedy)  # fmt: skip
    kind = value["kind"]
    if kind.endswith("List"):
        items = value.get("items")
        for index, item in enumerate(items if isinstance(items, list) else []):
            inner = item if isinstance(item, dict) else {}
            typed = {"kind": kind.removesuffix("List"), **inner} if kind != "List" else inner
            yield from _objects(document, f"{pointer}/items/{index}", typed)
    elif kind in ("Topology", "Node"):
        yield _Object(document, pointer, value)
    else:
        raise document.refused(f"{pointer}/kind", f"the kind {kind[:60]!r} is not used", code="not-an-option",
                               allowed="Topology, Node, List", remedy="Leave the object out.")  # fmt: skip


def _the_topology(file: str, found: Sequence[_Object]) -> _Topology:
    if not found:
        raise refused(file, "has no object of kind Topology", code="missing-field", allowed="exactly one",
                      remedy="Give the Topology, too: kubectl get topologies.kueue.x-k8s.io -o yaml.")  # fmt: skip
    if len(found) != 1:
        names = [str(one.value.get("metadata", {})) for one in found]
        raise refused(found[1].here,
                      f"{len(found)} objects of kind Topology: {names_shown(names, 4)}", allowed="exactly one",
                      remedy="Give the Topology of one cluster and its nodes.")  # fmt: skip
    one = found[0]
    topology = read_at(_Topology, one.document, one.pointer, one.value)
    labels = [level.nodeLabel for level in topology.spec.levels]
    for index, label in enumerate(labels):
        here = Here(one.document, f"{one.pointer}/spec/levels/{index}")
        if label in labels[:index]:
            raise repeated(here, f"the level {label!r} is repeated", "label")
        if label == HOSTNAME and index < len(labels) - 1:
            raise refused(here, f"{HOSTNAME} is not the last level", code="contradiction",
                          allowed="outermost first, hosts last", remedy="Move it to the end.")  # fmt: skip
    return topology


def _fabric(name: str, labels: tuple[str, ...], nodes: Sequence[tuple[_Object, _Node]], file: str) -> Fabric:
    inner = tuple(label for label in labels if label != HOSTNAME)
    builder = FabricBuilder(levels=tuple(reversed(inner)))
    used = [pair for pair in nodes if all(label in pair[1].metadata.labels for label in inner)]
    _note(builder, "without the labels of the levels", [n.metadata.name for _, n in nodes], used)
    if any(_gpus(one, node)[0] is not None for one, node in used):
        with_gpus = [pair for pair in used if _gpus(*pair)[0]]
        _note(builder, "without GPUs, or with parts of them alone,", [n.metadata.name for _, n in used], with_gpus)
        if not with_gpus:
            raise refused(file, f"none of {len(used)} nodes with the labels has a whole GPU",
                          allowed=f"nodes with {' or '.join(GPU_RESOURCES)}",
                          remedy="Give the GPU nodes; slices (MIG) and shared GPUs are none.")  # fmt: skip
        used = with_gpus
    if not used:
        raise refused(file, f"no node has all the labels {', '.join(inner) or HOSTNAME}",
                      allowed="nodes of the Topology",
                      remedy="Give the nodes, too: kubectl get nodes -o yaml.")  # fmt: skip
    for one, node in used:
        _check_values(one, node, inner)
    path_of = _paths([tuple(node.metadata.labels[label] for label in inner) for _, node in used])
    for one, node in used:
        path = path_of[tuple(node.metadata.labels[label] for label in inner)]
        for depth, unit in enumerate(path):
            builder.add_unit(Unit(unit, inner[depth], path[depth - 1] if depth else None, one.here))
        num_gpus, num_bad = _gpus(one, node)
        builder.add_host(Host(node.metadata.name, path[-1] if path else None, one.here, num_gpus, num_bad))
    return builder.build(name)


def _check_values(one: _Object, node: _Node, labels: Sequence[str]) -> None:
    """Kubernetes lets the value of a label be empty; a place needs a name."""
    for label in labels:
        if not node.metadata.labels[label]:
            raise one.document.refused(f"{one.pointer}/metadata/labels/{escaped(label)}",
                                       f"the label of the node {node.metadata.name!r} is empty", code="bad-length",
                                       allowed="the name of a place",
                                       remedy="Give the label a value, or remove it.")  # fmt: skip


def _note(builder: FabricBuilder, why: str, before: list[str], kept: Sequence[tuple[_Object, _Node]]) -> None:
    left = sorted(set(before) - {node.metadata.name for _, node in kept})
    if left:
        builder.notes.append(f"{len(left)} nodes {why} are left out: {names_shown(left, 4)}")


def _paths(values: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Unit names of every path of label values: the value, or the path where the value alone says too little.

    >>> _paths([("b1", "r1"), ("b2", "r1"), ("b2", "r2")])[("b2", "r1")]
    ('b2', 'b2/r1')
    """
    ways: dict[str, set[tuple[str, ...]]] = {}
    for path in values:
        for depth, value in enumerate(path):
            ways.setdefault(value, set()).add(path[: depth + 1])
    return {
        path: tuple(value if len(ways[value]) == 1 else "/".join(path[: depth + 1]) for depth, value in enumerate(path))
        for path in values
    }


def _gpus(one: _Object, node: _Node) -> tuple[int | None, int]:
    """Whole GPUs of a node, and how many of them take no work; none where the node does not say."""
    if _PART.search(node.metadata.labels.get(_PRODUCT, "")):
        return 0, 0
    for resource in GPU_RESOURCES:
        if resource in node.status.capacity or resource in node.status.allocatable:
            offered = _count(one, "allocatable", resource, node.status.allocatable.get(resource))
            built_in = _count(one, "capacity", resource, node.status.capacity.get(resource))
            total = built_in if built_in is not None else offered or 0
            free = total if offered is None else offered
            return total, total if _is_out(node) else max(0, total - free)
    return (0 if any(name.startswith(_SLICES) for name in node.status.capacity) else None), 0


def _is_out(node: _Node) -> bool:
    not_ready = any(one.type == "Ready" and one.status != "True" for one in node.status.conditions)
    return node.spec.unschedulable or not_ready


def _count(one: _Object, part: str, resource: str, value: str | int | None) -> int | None:
    if value is None:
        return None
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and int(text) <= 1024):
        raise one.document.refused(f"{one.pointer}/status/{part}/{escaped(resource)}",
                                   f"{text[:40]!r} is no number of GPUs", code="wrong-type", allowed="0 to 1024",
                                   remedy="Correct the number.")  # fmt: skip
    return int(text)
