"""Which places can reach each other. A plan lives on one island of the link graph."""

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from solver.network.topology import Topology


def islands(topology: Topology) -> dict[str, int]:
    """Number of the island of every place; places that no link or uplink joins are islands of their own."""
    size = len(topology.places)
    graph = csr_matrix((np.ones(len(topology.edges)), (topology.tails, topology.heads)), shape=(size, size))
    _, numbers = connected_components(graph, directed=False)
    return {place.id: int(number) for place, number in zip(topology.places, numbers, strict=True)}
