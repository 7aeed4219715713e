"""In which order a ring leads through its places: it decides how often steps cross the narrow links.

On a tree of links a walk around it crosses each link once in each direction; any other order crosses some more often.
The walk comes to a place first on its way out and last on its way back: a ring that takes every other place on the way
back has no far step at its end.
"""

from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import depth_first_order, minimum_spanning_tree

from solver.arrays import FloatArray
from solver.context import Context
from solver.network.paths import link_graph
from solver.network.topology import Topology
from solver.transport.ring import ring_of

FEWEST = 4  # places: up to three have one order, there or back
LEAST_GAIN = 0.01  # of the time on the fullest link, below which the farthest step decides
Walk = Mapping[str, int]  # steps of it until a place counts; places of other islands may have the same


def ring_order(context: Context, places: tuple[str, ...]) -> tuple[str, ...]:
    """These places in the order of a ring: as they are given, or as a walk around the links comes to them, whichever
    leaves the fullest link emptier, or has the nearer steps.
    """
    if len(places) < FEWEST:
        return places
    return context.known.rings.once(places, lambda: _best(context, places))


def _best(context: Context, places: tuple[str, ...]) -> tuple[str, ...]:
    topology = context.topology
    walks = context.known.rings.once((), lambda: _walks(topology))
    best, (least_s, least_delay_s) = places, _measured(topology, places)
    for walk in walks:
        order = tuple(sorted(places, key=walk.__getitem__))
        fullest_s, delay_s = _measured(topology, order)
        emptier = fullest_s < least_s * (1.0 - LEAST_GAIN)
        nearer = fullest_s <= least_s * (1.0 + LEAST_GAIN) and delay_s < least_delay_s
        if emptier or nearer:
            best, least_s, least_delay_s = order, fullest_s, delay_s
    return best


def _measured(topology: Topology, places: tuple[str, ...]) -> tuple[float, float]:
    """Seconds per byte on the fullest edge, and those of the farthest step, on the paths of least latency."""
    ring = ring_of(topology, list(places))
    fullest_s = max(part / topology.edges[edge].capacity_bytes_per_s for edge, part in ring.load.items())
    return fullest_s, max(topology.path_facts(*step).latency_s for step in ring.steps)


def _walks(topology: Topology) -> list[Walk]:
    """Around the tree of the widest edges and that of the nearest, all on the way out or half on the way back."""
    narrow, far = -topology.capacity_bytes_per_s, topology.latency_s
    trees = [_spanning_tree(topology, _ranked(*keys)) for keys in ((narrow, far), (far, narrow))]
    return [_walk(topology, tree, half_back=half_back) for tree in trees for half_back in (False, True)]


def _ranked(first: FloatArray, second: FloatArray) -> FloatArray:
    """Edges numbered by one quantity, then by another."""
    _, number = np.unique(np.stack((first, second)), axis=1, return_inverse=True)
    return np.asarray(1.0 + number.ravel())


def _spanning_tree(topology: Topology, weight: FloatArray) -> csr_matrix:
    """Pairs of places that the tree of least weight joins, island by island."""
    graph, size = link_graph(topology), len(topology.places)
    values = weight[graph.lightest(weight)]
    return minimum_spanning_tree(csr_matrix((values, graph.columns, graph.row_starts), shape=(size, size)))


def _walk(topology: Topology, tree: csr_matrix, *, half_back: bool) -> Walk:
    """Steps until depth first search comes to a place, or with `half_back`, until it leaves one of odd depth."""
    found: dict[str, int] = {}
    for start, place in enumerate(topology.places):
        if place.id in found:
            continue
        order, before = (one.tolist() for one in depth_first_order(tree, start, directed=False))
        depth, size = {start: 0}, dict.fromkeys(order, 1)
        for index in order[1:]:
            depth[index] = depth[before[index]] + 1
        for index in reversed(order[1:]):
            size[before[index]] += size[index]
        for number, index in enumerate(order):
            inside = size[index] - 1 if half_back and depth[index] % 2 else 0
            found[topology.places[index].id] = 2 * (number + inside) - depth[index]
    return found
