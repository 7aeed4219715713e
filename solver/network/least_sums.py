"""Least sums of an edge's weight on the ways between places: delays, or times of so many bytes, for many pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from solver.arrays import FloatArray
from solver.network.topology import Topology


def least_sums(topology: Topology, weight: FloatArray, sources: Sequence[str], targets: Sequence[str]) -> FloatArray:
    """The least sum of `weight`, by edge, from each source to each target; infinite where no way leads there."""
    size = len(topology.places)
    lightest = np.lexsort((weight, topology.heads, topology.tails))
    pair, first = np.unique((topology.tails * size + topology.heads)[lightest], return_index=True)
    graph = csr_matrix((weight[lightest][first], np.divmod(pair, size)), shape=(size, size))
    from_, to = ([topology.index_of[place] for place in places] for places in (sources, targets))
    found: FloatArray = dijkstra(graph, indices=from_)[:, to]
    return found
