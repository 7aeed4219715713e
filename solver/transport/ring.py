"""The ring of places that a gradient exchange travels: its steps, and what part of each step takes which path.

The paths are those of least latency, or the fastest split where the graph offers other ways, over links of one kind or
of another; `exchange.py` compares the two.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from models.transport import LinkStep, MessagePath, MessageSplit
from solver.arrays import FloatArray
from solver.context import Context
from solver.network.paths import direct_first, least_paths, leaving_buildings, link_graph
from solver.network.split import Parts, Step, part_by_edge
from solver.network.topology import Edge, Topology
from solver.transport.routing import bytes_by_edge, fullest_s, normalised, route

STEP_BYTES = 1e9  # the split depends on ratios only
LEAST_PART = 1e-3  # a path for less than this is not worth its queue pairs
FULL = 1e-6  # below this part of its rate an edge has nothing left for the exchange


@dataclass(frozen=True)
class Ring:
    """Steps of a ring in order, the parts of each, and how many exchanges are to have room on its links at once."""

    steps: tuple[Step, ...]
    parts: tuple[Parts, ...]
    num_at_once: int = 1

    @cached_property
    def load(self) -> dict[int, float]:
        """What each edge carries when every step sends one unit."""
        return part_by_edge(self.parts)


def ring_of(topology: Topology, places: list[str]) -> Ring:
    """Each place sends to the next one along the path of least latency; no steps where there is one place only."""
    if len(places) == 1:
        return Ring((), ())
    return on_nearest_paths(topology, zip(places, [*places[1:], places[0]], strict=True))


def on_nearest_paths(topology: Topology, steps: Iterable[Step]) -> Ring:
    """These steps, of one ring or of several, each on its path of least latency."""
    every = tuple(steps)
    return Ring(every, tuple(((topology.path(*step), 1.0),) for step in every))


def split_ring(context: Context, plain: Ring, capacity: FloatArray) -> Ring | None:
    """The ring whose fullest edge is emptiest under `capacity`; None where no step has a choice of paths."""
    topology = context.topology
    if topology.edges_with_detour.isdisjoint(plain.load):
        return None
    parts = split_steps(context, plain, capacity, (STEP_BYTES,) * len(plain.steps))
    return None if parts is None or parts == plain.parts else Ring(plain.steps, parts)


def widest_ring(context: Context, plain: Ring, capacity: FloatArray) -> Ring:
    """Every step on the one path on which its bytes take the least time under `capacity`, as it is where none has room.

    So exchanges between other places do not wait for it.
    """
    key = ("widest", plain.steps, capacity.tobytes())
    return context.known.splits.once(key, lambda: _widest(context, plain.steps, capacity))


def split_steps(
    context: Context,
    plain: Ring,
    capacity: FloatArray,
    size_by_step: tuple[float, ...],
    carried: FloatArray | None = None,
) -> tuple[Parts, ...] | None:
    """Parts of steps of these sizes that empty the fullest edge; None where not even the plain paths have room.

    Edges carry `carried` bytes of others, too, or nothing.
    """
    if carried is None:
        carried = np.zeros(len(capacity))
    key = (plain.steps, size_by_step, capacity.tobytes(), carried.tobytes())
    return context.known.splits.once(key, lambda: _optimal_parts(context, plain, capacity, size_by_step, carried))


def _optimal_parts(
    context: Context, plain: Ring, capacity: FloatArray, size_by_step: tuple[float, ...], carried: FloatArray
) -> tuple[Parts, ...] | None:
    """Parts on edges that offer what those of the plain paths offer, or what those of the widest paths do: of the two
    what empties the fullest edge sooner. A narrow link of another kind than the others is thus no reason to take it.
    Where bytes between buildings are limited or minimised, no part takes a detour, which would carry it twice.
    """
    topology, direct = context.topology, context.detours_matter
    widest = widest_ring(context, plain, capacity)
    kinds = [{_kind(topology.edges[edge]) for edge in ring.load} for ring in (plain, widest)]
    rings = [plain] if kinds[1] <= kinds[0] else [plain, widest]
    size_of = dict(zip(plain.steps, size_by_step, strict=True))
    free = _free(topology, capacity)
    found = [_split_of_kinds(topology, ring, free, size_of, carried, direct=direct) for ring in rings]

    def fullest_of(parts: tuple[Parts, ...]) -> float:
        load_e = bytes_by_edge(zip(parts, size_by_step, strict=True), len(capacity))
        return fullest_s(load_e, carried, capacity)

    return min((parts for parts in found if parts is not None), key=fullest_of, default=None)


def _free(topology: Topology, capacity: FloatArray) -> FloatArray:
    """What every edge has left for exchanges, nothing where that is next to nothing."""
    return np.where(capacity > FULL * topology.capacity_bytes_per_s, capacity, 0.0)


def _widest(context: Context, steps: tuple[Step, ...], capacity: FloatArray) -> Ring:
    """Every step on the one path on which its bytes, edge after edge, take the least time."""
    topology = context.topology
    free = _free(topology, capacity)
    seconds = np.divide(1.0, free, out=np.full(len(free), np.inf), where=free > 0.0)
    ends = tuple((topology.index_of[source], topology.index_of[target]) for source, target in steps)
    ranked = direct_first(seconds, leaving_buildings(topology)) if context.detours_matter else seconds
    paths = least_paths(link_graph(topology), ranked, tuple(sorted({source for source, _ in ends})))
    joined = all(np.isfinite(paths.length(*pair)) for pair in ends)
    return Ring(steps, tuple(((paths.between(*pair), 1.0),) for pair in ends)) if joined else Ring((), ())


def _split_of_kinds(
    topology: Topology,
    ring: Ring,
    capacity: FloatArray,
    size_of: dict[Step, float],
    carried: FloatArray,
    *,
    direct: bool,
) -> tuple[Parts, ...] | None:
    """Parts by the multi-commodity flow over edges with room that offer what the paths of a ring offer.

    The ring itself where some of them are streams and others queue pairs, which a split could join in one step.
    """
    kinds = {_kind(topology.edges[edge]) for edge in ring.load}
    retained = [index for index, edge in enumerate(topology.edges) if capacity[index] > 0.0 and _kind(edge) in kinds]
    if not set(ring.load) <= set(retained):
        return None
    if len({edge.technology == "tcp" for edge in map(topology.edges.__getitem__, ring.load)}) > 1:
        return ring.parts
    open_edges = Topology(topology.places, tuple(topology.edges[index] for index in retained))
    best = route(open_edges, size_of, capacity[retained], carried_bytes=carried[retained], direct=direct)
    return tuple(
        normalised([(tuple(retained[edge] for edge in path), part) for path, part in split if part >= LEAST_PART])
        for split in best.split_k
    )


def _kind(edge: Edge) -> tuple[object, ...]:
    """What a transport choice depends on besides rate and delay: one choice must suit every path of a step."""
    return (edge.technology, frozenset(edge.load_balancing), edge.out_of_order_receivers)


def stated_split(topology: Topology, step: Step, parts: Parts) -> MessageSplit:
    """Paths of a step, as a plan states them."""
    edges = topology.edges
    return MessageSplit(
        from_place=step[0],
        to_place=step[1],
        paths=tuple(
            MessagePath(
                part=part, steps=tuple(LinkStep(link=edges[edge].id, reverse=edges[edge].reverse) for edge in path)
            )
            for path, part in parts
        ),
    )
