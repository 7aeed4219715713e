"""Slurm's topology.yaml, which `scontrol show topoconf` prints of a running cluster in the same form.

Source: topology.yaml(5) of Slurm 26.11. Reads trees and blocks; a flat topology, a ring and a torus are
refused, because they are no tree of places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from app.importers.fabric import Fabric
from app.importers.slurm_tree import Switch, block_fabric, tree_fabric
from app.importers.source import Document, Here, read_at, refused
from app.importers.texts import only_document
from models.base import Frozen, Name

TYPES = ("tree", "block", "flat", "ring", "torus3d")
_Size = Annotated[int, Field(ge=1, le=1_000_000)]


class _TreeSwitch(Frozen):
    switch: Name
    children: str | None = None
    nodes: str | None = None


class _Tree(Frozen):
    switches: tuple[_TreeSwitch, ...] = Field(min_length=1)


class _Block(Frozen):
    block: Name
    nodes: str | None = None


class _Blocks(Frozen):
    block_sizes: tuple[_Size, ...] = ()
    blocks: tuple[_Block, ...] = Field(min_length=1)


class _Topology(Frozen):
    topology: Name
    cluster_default: bool = False
    tree: _Tree | None = None
    block: _Blocks | None = None
    flat: Any = None
    ring: Any = None
    torus3d: Any = None


def slurm_yaml(files: Sequence[tuple[str, bytes]]) -> Fabric:
    """The fabric of the default topology of one file."""
    if len(files) != 1:
        remedy = "Import one cluster at a time, or write the switches of all buildings into one file."
        raise refused(files[1][0], f"{len(files)} files of a topology", allowed="one file", remedy=remedy)
    document = only_document(*files[0])
    number, topology = _default(document)
    pointer = f"/{number}"
    notes = [f"{document.name}: the topology {topology.topology!r} is used"]
    if topology.tree is not None:
        return tree_fabric(_switches(document, topology.tree, pointer), name=topology.topology, notes=notes)
    if topology.block is not None:
        blocks = [
            Switch(one.block, one.nodes or "", "", Here(document, f"{pointer}/block/blocks/{index}"))
            for index, one in enumerate(topology.block.blocks)
        ]
        where = Here(document, f"{pointer}/block/block_sizes")
        return block_fabric(blocks, topology.block.block_sizes, name=topology.topology, where=where, notes=notes)
    kind = next((kind for kind in ("ring", "torus3d", "flat") if getattr(topology, kind) is not None), "nothing")
    remedy = "Give the network as a tree, or state pools in the overlay and import the links from CSV."
    raise document.refused(f"{pointer}/{kind}",
                           f"the topology {topology.topology!r} is {kind}, which is no tree of places",
                           allowed="tree or block", remedy=remedy)  # fmt: skip


def _switches(document: Document, tree: _Tree, pointer: str) -> list[Switch]:
    return [
        Switch(one.switch, one.nodes or "", one.children or "", Here(document, f"{pointer}/tree/switches/{index}"))
        for index, one in enumerate(tree.switches)
    ]


def _default(document: Document) -> tuple[int, _Topology]:
    """The first topology that is the default, or the only one."""
    values = document.value
    if not isinstance(values, list) or not values:
        raise document.refused("", "is no list of topologies", allowed="items with `topology` and `tree` or `block`",
                               remedy="Give a topology.yaml, or the output of scontrol show topoconf.")  # fmt: skip
    read = [read_at(_Topology, document, f"/{index}", value) for index, value in enumerate(values)]
    for index, one in enumerate(read):
        types = [kind for kind in TYPES if getattr(one, kind) not in (None, False)]
        if len(types) != 1:
            what = f"the topology {one.topology!r} has {len(types)} types: {', '.join(types) or 'none'}"
            raise document.refused(f"/{index}", what, allowed="exactly one of tree, block, flat, ring and torus3d",
                                   remedy="Correct the topology.")  # fmt: skip
    chosen = [index for index, one in enumerate(read) if one.cluster_default] or list(range(len(read)))
    if len(chosen) > 1 and not read[chosen[0]].cluster_default:
        raise document.refused("", f"has {len(read)} topologies and none is the default",
                               allowed="cluster_default: true on one", remedy="Mark the one to import.")  # fmt: skip
    return chosen[0], read[chosen[0]]
