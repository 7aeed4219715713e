"""Which places can reach each other. A plan lives on one island of the link graph."""

from __future__ import annotations

from solver.network.topology import Topology


def islands(topology: Topology) -> dict[str, int]:
    """Number of the island of every place; places that no link or uplink joins are islands of their own."""
    root = {place.id: place.id for place in topology.places}

    def find(place: str) -> str:
        while root[place] != place:
            root[place] = root[root[place]]
            place = root[place]
        return place

    for edge in topology.edges:
        root[find(edge.from_place)] = find(edge.to_place)
    numbers: dict[str, int] = {}
    return {place: numbers.setdefault(find(place), len(numbers)) for place in root}
