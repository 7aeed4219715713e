"""NVIDIA topograph's graph: instances with the switches above each, nearest first.

Source: topograph docs/engines/graph.md. Uses `id` and `network_layers`; labels are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from app.importers.fabric import Fabric, FabricBuilder, Host, Unit, common_name, tiers
from app.importers.source import Document, Here, read_at
from app.importers.texts import parse_json
from models.base import Frozen, Name


class _Instance(Frozen):
    id: Name
    network_layers: tuple[Name, ...] | None = Field(None, max_length=16)
    labels: dict[str, str] | None = None


class _Graph(Frozen):
    instances: tuple[_Instance, ...] = Field(min_length=1)


def topograph(files: Sequence[tuple[str, bytes]]) -> Fabric:
    """The fabric that one or more graphs describe."""
    builder = FabricBuilder()
    for name, data in files:
        _add_graph(builder, parse_json(name, data))
    return builder.build(common_name(name for name, _ in files))


def _add_graph(builder: FabricBuilder, document: Document) -> None:
    graph = read_at(_Graph, document)
    labels = {label for instance in graph.instances for label in instance.labels or {}}
    if labels:
        builder.notes.append(f"{document.name}: labels are not used: {', '.join(sorted(labels)[:6])}")
    depth = max(len(instance.network_layers or ()) for instance in graph.instances)
    builder.levels = max(builder.levels, tiers(depth), key=len)
    for index, instance in enumerate(graph.instances):
        layers, here = instance.network_layers or (), Here(document, f"/instances/{index}")
        for tier, switch in enumerate(layers):
            builder.add_unit(Unit(switch, f"tier-{tier}", layers[tier + 1] if tier + 1 < len(layers) else None, here))
        builder.add_host(Host(instance.id, layers[0] if layers else None, here))
