"""Shortest paths over the link graph under any edge weights, for many sources at once, and what paths join at all."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, dijkstra

from models.cluster import PlaceId
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.network.topology import Topology, leaves_building

_NO_PREDECESSOR = -9999  # scipy's mark


@dataclass(frozen=True)
class LinkGraph:
    """Edges in the order of a sparse matrix: by the place they leave, then the one they enter; parallel ones follow
    each other, and `first` is where those of each pair of places begin.
    """

    num_places: int
    order: IntArray
    first: IntArray
    columns: NDArray[np.int32]
    row_starts: NDArray[np.int32]
    pair_of: dict[tuple[int, int], int]

    def lightest(self, weight: FloatArray) -> IntArray:
        """The edge of least weight between each pair of places, the first of equals."""
        order = self.order
        if len(self.first) < len(order):
            pair = np.repeat(np.arange(len(self.first)), np.diff(self.first, append=len(order)))
            order = order[np.lexsort((weight[order], pair))]
        return order[self.first]


def link_graph(topology: Topology) -> LinkGraph:
    """The graph of a topology's edges, for `least_paths` under one weight after another."""
    tails, heads = topology.ends
    order = np.lexsort((heads, tails))
    ends = np.stack((tails[order], heads[order]), axis=1)
    first = np.flatnonzero(np.append(True, (ends[1:] != ends[:-1]).any(axis=1))[: len(order)])
    pairs = ends[first]
    starts = np.searchsorted(pairs[:, 0], np.arange(len(topology.places) + 1))
    number_of = {(tail, head): number for number, (tail, head) in enumerate(pairs.tolist())}
    return LinkGraph(
        len(topology.places), order, first, pairs[:, 1].astype(np.int32), starts.astype(np.int32), number_of
    )


@dataclass(frozen=True)
class Paths:
    """Distances and least-weight paths from some sources; places and edges are the topology's indices."""

    graph: LinkGraph
    sources: tuple[int, ...]
    distance: FloatArray
    predecessor: NDArray[np.int32]
    edges: IntArray

    @cached_property
    def row_of(self) -> dict[int, int]:
        """Source place to row."""
        return {source: row for row, source in enumerate(self.sources)}

    def between(self, source: int, target: int) -> tuple[int, ...]:
        """Edges from source to target; empty if they are the same."""
        before = self.predecessor[self.row_of[source]]
        edges: list[int] = []
        at = target
        while at != source:
            previous = int(before[at])
            if previous == _NO_PREDECESSOR:
                raise ValueError(f"no path leads from place number {source} to place number {target}")
            edges.append(int(self.edges[self.graph.pair_of[previous, at]]))
            at = previous
        return tuple(reversed(edges))

    def length(self, source: int, target: int) -> float:
        """Weight of the path; infinite where there is none."""
        return float(self.distance[self.row_of[source], target])


def islands(topology: Topology) -> dict[PlaceId, int]:
    """Number of the island of every place, on one of which a plan lives; what no link or uplink joins is its own."""
    size = len(topology.places)
    graph = csr_matrix((np.ones(len(topology.edges)), tuple(topology.ends)), shape=(size, size))
    _, numbers = connected_components(graph, directed=False)
    return {place.id: int(number) for place, number in zip(topology.places, numbers, strict=True)}


def leaving_buildings(topology: Topology) -> BoolArray:
    """The edges out of buildings."""
    return np.array([leaves_building(topology, edge) for edge in topology.edges], dtype=bool)


def direct_first(weight: FloatArray, leaving: BoolArray) -> FloatArray:
    """Weights under which a least path leaves as few buildings as any path, and weighs least among those that do.

    >>> direct_first(np.array([1.0, 2.0]), np.array([True, False]))
    array([8., 2.])
    """
    more_than_all = 1.0 + 2.0 * float(weight[np.isfinite(weight)].sum())
    return np.where(leaving, weight + more_than_all, weight)


def least_paths(graph: LinkGraph, weight: FloatArray, sources: tuple[int, ...]) -> Paths:
    """Dijkstra from every source; of parallel edges only the lightest counts, the first of equals.

    Edges of infinite weight lead nowhere.
    """
    edges = graph.lightest(weight)
    # Zero would read as "no edge" in a sparse matrix; the smallest normal number does not change any sum.
    values = np.maximum(weight[edges], np.finfo(np.float64).tiny)
    matrix = csr_matrix((values, graph.columns, graph.row_starts), shape=(graph.num_places, graph.num_places))
    distance, predecessor = dijkstra(matrix, indices=list(sources), return_predecessors=True)
    return Paths(graph, sources, distance, predecessor, edges)
