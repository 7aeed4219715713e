"""Slurm's trees and blocks, however they were written: switches with hostlists become units and hosts.

Source: topology.conf(5) and topology.yaml(5) of Slurm 26.11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from app.hostlists import FORM, unfold
from app.importers.fabric import MAX_UNITS, Fabric, FabricBuilder, Host, Unit, tiers
from app.importers.source import beyond, from_error, refused, repeated
from models.errors import PlannerError

MAX_NAME = 64  # of a switch, topology.yaml(5)


@dataclass(frozen=True)
class Switch:
    """A switch or block with the hostlists of what hangs below it."""

    name: str
    nodes: str
    children: str
    where: object


def tree_fabric(switches: Sequence[Switch], *, name: str, notes: Sequence[str] = ()) -> Fabric:
    """The fabric of a `topology/tree`: levels are counted from the hosts, because Slurm's have no names."""
    by_name = _by_name(switches)
    children = _children(switches)
    parents = _parents(by_name, children)
    heights = _heights(by_name, children)
    builder = FabricBuilder(levels=tiers(max(heights.values(), default=-1) + 1), notes=list(notes))
    for one in switches:
        builder.add_unit(Unit(one.name, f"tier-{heights[one.name]}", parents.get(one.name), one.where))
    for one in switches:
        for host in _unfolded(one.nodes, one):
            builder.add_host(Host(host, one.name, one.where))
    return builder.build(name)


def block_fabric(
    blocks: Sequence[Switch], sizes: Sequence[int], *, name: str, where: object, notes: Sequence[str] = ()
) -> Fabric:
    """The fabric of a `topology/block`: larger blocks are runs of consecutive ones, as BlockSizes say."""
    _by_name(blocks)
    ratios = _ratios(sizes, where)
    builder = FabricBuilder(levels=tiers(len(ratios) + 1), notes=list(notes))
    for index, one in enumerate(blocks):
        above = [_run(blocks, index, ratio) for ratio in ratios]
        for tier, unit in enumerate([one.name, *above]):
            parent = above[tier] if tier < len(above) else None
            builder.add_unit(Unit(unit, f"tier-{tier}", parent, one.where))
        for host in _unfolded(one.nodes, one):
            builder.add_host(Host(host, one.name, one.where))
    return builder.build(name)


def _ratios(sizes: Sequence[int], where: object) -> list[int]:
    """Base blocks in each larger block.

    >>> _ratios([30, 120], "")
    [4]
    """
    for before, size in pairwise(sizes):
        ratio = size // before if before > 0 else 0
        if ratio * before != size or ratio < 2 or ratio & (ratio - 1):
            raise refused(where, f"block size {size} is not {before} times a power of two", code="contradiction",
                          allowed="each size a power of two times the one before",
                          remedy="Correct the block sizes.")  # fmt: skip
    return [size // sizes[0] for size in sizes[1:]]


def _run(blocks: Sequence[Switch], index: int, ratio: int) -> str:
    first = index // ratio * ratio
    last = min(first + ratio, len(blocks)) - 1
    return f"{blocks[first].name}..{blocks[last].name} ({ratio} blocks)"


def _by_name(switches: Sequence[Switch]) -> Mapping[str, Switch]:
    seen: dict[str, Switch] = {}
    for one in switches:
        if not one.name or len(one.name) > MAX_NAME or not one.name.isprintable():
            raise refused(one.where, f"{one.name[:80]!r} cannot name a switch", code="bad-pattern",
                          allowed=f"1 to {MAX_NAME} printable characters", remedy="Correct the name.")  # fmt: skip
        if seen.setdefault(one.name, one) is not one:
            raise repeated(one.where, f"{one.name!r} was already defined at {seen[one.name].where}", "name")
    return seen


def _unfolded(text: str, one: Switch, limit: int = 1_000_000) -> tuple[str, ...]:
    try:
        return unfold(text, limit=limit)
    except PlannerError as error:
        raise from_error(one.where, error, allowed=FORM) from None


def _children(switches: Sequence[Switch]) -> dict[str, tuple[str, ...]]:
    """The switches directly below each; as many in all as there may be switches."""
    children: dict[str, tuple[str, ...]] = {}
    total = 0
    for one in switches:
        children[one.name] = _unfolded(one.children, one, MAX_UNITS)
        total += len(children[one.name])
        if total > MAX_UNITS:
            raise beyond(one.where, f"more than {MAX_UNITS:,} children", MAX_UNITS, "Import a part of the cluster.")
    return children


def _parents(by_name: Mapping[str, Switch], children: Mapping[str, Sequence[str]]) -> dict[str, str]:
    parents: dict[str, str] = {}
    for name, below in children.items():
        for child in below:
            if child not in by_name:
                raise refused(by_name[name].where, f"{name!r} has the child {child!r}, which is not defined",
                              code="contradiction", allowed="names of switches",
                              remedy="Define it, or remove it.")  # fmt: skip
            if parents.setdefault(child, name) != name:
                raise refused(by_name[name].where, f"{child!r} is a child of {parents[child]!r} and of {name!r}",
                              code="contradiction", allowed="one parent",
                              remedy="Describe the network as a tree.")  # fmt: skip
    return parents


def _heights(by_name: Mapping[str, Switch], children: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Levels between a switch and its hosts, found from the leaves."""
    heights: dict[str, int] = {}
    try:
        for name in TopologicalSorter(children).static_order():
            heights[name] = max((heights[child] + 1 for child in children[name]), default=0)
    except CycleError as error:
        name = next(one for one in by_name if one in error.args[1])
        raise refused(by_name[name].where, f"{name!r} lies above itself", code="contradiction", allowed="a tree",
                      remedy="Remove the child that closes the circle.") from None  # fmt: skip
    return heights
