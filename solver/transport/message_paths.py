"""The paths of stage messages between places: those of least latency, or split over several.

`hops.py` times them, and the evaluation keeps the faster of both.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from models.transport import MessageSplit
from solver.arrays import FloatArray
from solver.context import Context
from solver.network.split import Parts, Step, part_by_edge, step_facts
from solver.network.topology import PathFacts, Topology
from solver.transport.ring import STEP_BYTES, Ring, split_steps, stated_split


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


def split_paths(context: Context, num_queues: Counter[Step], free_e: FloatArray) -> MessagePaths | None:
    """The split under which so many queues on each way leave the fullest edge emptiest; None if it is the plain one."""
    topology = context.topology
    ways = tuple(sorted(num_queues))
    plain = Ring(ways, tuple(((topology.path(*way), 1.0),) for way in ways))
    if topology.edges_with_detour.isdisjoint(plain.load):
        return None
    found = split_steps(context, plain, free_e, tuple(STEP_BYTES * num_queues[way] for way in ways))
    if found is None or found == plain.parts:
        return None
    split = {way: own for way, own, simple in zip(ways, found, plain.parts, strict=True) if own != simple}
    return MessagePaths(topology, split)
