"""The paths of stage messages between places: those of least latency, the widest ones, or split over several.

`hops.py` times them, and the evaluation keeps the fastest of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.transport import MessageSplit
from solver.arrays import FloatArray
from solver.context import Context
from solver.network.split import Parts, Step, part_by_edge, step_facts
from solver.network.topology import PathFacts, Topology
from solver.transport.ring import STEP_BYTES, Ring, on_nearest_paths, split_steps, stated_split, widest_ring
from solver.transport.routing import bytes_by_edge

MOST_ROUNDS = 3  # times that ways are split again: between regions, between buildings, and what is left
FULLEST = 1.0 - 1e-6  # of the fullest edge's time: the gap of the programme


@dataclass(frozen=True)
class MessagePaths:
    """Paths from place to place and the part of a message that each takes; by default one, of least latency."""

    topology: Topology
    split: Mapping[Step, Parts] = field(default_factory=dict)

    def parts(self, source: str, target: str) -> Parts:
        """Paths with their parts."""
        return self.split.get((source, target)) or ((self.topology.path(source, target), 1.0),)

    def edges(self, source: str, target: str) -> tuple[tuple[int, float], ...]:
        """Every edge on the way, with the part of a message that it carries."""
        return tuple(part_by_edge([self.parts(source, target)]).items())

    def facts(self, source: str, target: str) -> PathFacts:
        """All paths as one."""
        return step_facts(self.topology, (source, target), self.parts(source, target))

    def stated(self, used: Iterable[Step]) -> tuple[MessageSplit, ...]:
        """The splits of these ways, as a plan states them."""
        return tuple(
            stated_split(self.topology, step, self.split[step]) for step in sorted(set(used) & self.split.keys())
        )


def widest_paths(context: Context, num_queues: Counter[Step], free_e: FloatArray) -> MessagePaths | None:
    """Each way on the one path on which its bytes, edge after edge, take the least time; None if it is the plain one.

    A path of least latency may leave by a narrow link where a wide one is a little longer.
    """
    plain = on_nearest_paths(context.topology, sorted(num_queues))
    if context.topology.edges_with_detour.isdisjoint(plain.load):
        return None
    return _other_than(context.topology, plain, widest_ring(context, plain, free_e).parts)


def split_paths(context: Context, num_queues: Counter[Step], free_e: FloatArray) -> MessagePaths | None:
    """The split under which so many queues on each way leave the fullest edge emptiest, of the ways that do not take
    it their own fullest, and so on; None if it is the plain one.
    """
    plain = on_nearest_paths(context.topology, sorted(num_queues))
    if context.topology.edges_with_detour.isdisjoint(plain.load):
        return None
    size_of = {way: STEP_BYTES * num_queues[way] for way in plain.steps}
    found = split_steps(context, plain, free_e, tuple(size_of.values()))
    if found is None:
        return None
    parts_of = _emptied_in_order(context, free_e, size_of, dict(zip(plain.steps, found, strict=True)))
    return _other_than(context.topology, plain, [parts_of[way] for way in plain.steps])


def _other_than(topology: Topology, plain: Ring, parts: Sequence[Parts]) -> MessagePaths | None:
    """These parts of all ways, as far as they are others; None if none is."""
    ways = zip(plain.steps, plain.parts, parts, strict=True) if parts else ()
    split = {way: other for way, simple, other in ways if other != simple}
    return MessagePaths(topology, split) if split else None


def _emptied_in_order(
    context: Context, free_e: FloatArray, size_of: Mapping[Step, float], parts_of: dict[Step, Parts]
) -> dict[Step, Parts]:
    """Ways that do not take the fullest edge split again, beside those that do and on other edges, and so on.

    One programme leaves them no more than what the fullest edge takes, though less may be possible.
    """
    settled = set[Step]()
    for _ in range(MOST_ROUNDS):
        fill_e = bytes_by_edge(((parts_of[way], size) for way, size in size_of.items()), len(free_e)) / free_e
        fullest_s = {
            way: max(fill_e[edge] for edge in part_by_edge([parts_of[way]])) for way in size_of.keys() - settled
        }
        limit_s = max(fullest_s.values()) * FULLEST
        settled |= {way for way, one in fullest_s.items() if one >= limit_s}
        others = tuple(way for way in size_of if way not in settled)
        if not others:
            break
        before = ((parts_of[way], size) for way, size in size_of.items() if way in settled)
        carried = bytes_by_edge(before, len(free_e))
        ring = Ring(others, tuple(parts_of[way] for way in others))
        elsewhere = np.where(fill_e < limit_s, free_e, 0.0)
        found = split_steps(context, ring, elsewhere, tuple(size_of[way] for way in others), carried)
        if found is None:
            break
        parts_of = parts_of | dict(zip(others, found, strict=True))
    return parts_of
