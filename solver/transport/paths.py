"""Shortest paths over the link graph under any edge weights, for many sources at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from solver.arrays import FloatArray
from solver.network.topology import Topology

_NO_PREDECESSOR = -9999  # scipy's mark


@dataclass(frozen=True)
class Paths:
    """Distances and least-weight paths from some sources; places and edges are the topology's indices."""

    sources: tuple[int, ...]
    distance: FloatArray
    predecessor: NDArray[np.int32]
    cheapest_edge: dict[tuple[int, int], int]

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
            edges.append(self.cheapest_edge[previous, at])
            at = previous
        return tuple(reversed(edges))

    def length(self, source: int, target: int) -> float:
        """Weight of the path; infinite where there is none."""
        return float(self.distance[self.row_of[source], target])


def least_paths(topology: Topology, weight: FloatArray, sources: tuple[int, ...]) -> Paths:
    """Dijkstra from every source; of parallel edges only the lightest counts, the first of equals.

    Edges of infinite weight do not exist.
    """
    tails, heads = topology.tails, topology.heads
    order = np.lexsort((np.arange(len(weight)), weight, heads, tails))
    order = order[np.isfinite(weight[order])]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (tails[order][1:] != tails[order][:-1]) | (heads[order][1:] != heads[order][:-1])
    retained = order[first]
    # Zero would read as "no edge" in a sparse matrix; the smallest normal number does not change any sum.
    values = np.maximum(weight[retained], np.finfo(np.float64).tiny)
    size = len(topology.places)
    graph = csr_matrix((values, (tails[retained], heads[retained])), shape=(size, size))
    distance, predecessor = dijkstra(graph, indices=list(sources), return_predecessors=True)
    cheapest = dict(
        zip(zip(tails[retained].tolist(), heads[retained].tolist(), strict=True), retained.tolist(), strict=True)
    )
    return Paths(sources, distance, predecessor, cheapest)
