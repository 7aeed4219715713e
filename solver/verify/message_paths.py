"""The paths of stage messages as a plan states them: that of least latency, or the parts of a split.

`rules/paths.py` judges them.
"""

from collections.abc import Iterable

import numpy as np

from models.transport import MessagePath
from solver.network.split import Parts, part_by_edge
from solver.network.topology import Topology
from solver.pipeline.problem import Floats, Ints
from solver.verify.network_facts import Boundary
from solver.verify.reading import Reading


def message_parts(case: Reading, source: str, target: str) -> Parts:
    """Paths from one place to another, with the part of every message that each takes."""
    split = case.message_splits.get((source, target))
    if split is None:
        return ((case.network.topology.path(source, target), 1.0),)
    return parts_of(case.network.topology, split)


def parts_of(topology: Topology, paths: Iterable[MessagePath]) -> Parts:
    """Stated paths by their edges; KeyError where one does not exist."""
    index = topology.edge_index
    return tuple((tuple(index[step.link, step.reverse] for step in path.steps), path.part) for path in paths)


def edge_parts(case: Reading, boundary: Boundary, *, back: bool) -> tuple[Ints, Floats]:
    """Edges that messages over a boundary take, with the part of a message on each."""
    ends = boundary.places[::-1] if back else boundary.places
    carried = part_by_edge([message_parts(case, *ends)])
    return np.array(list(carried), dtype=np.int64), np.array(list(carried.values()), dtype=np.float64)
