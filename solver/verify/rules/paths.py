"""Rules on the paths of stage messages: splits lead where they say, and links carry what the paths put on them.

Judges `Plan.message_splits`, and the pipeline's part of the link loads.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from models.transport import Dimension, MessagePath, MessageSplit
from solver.pipeline.problem import Floats
from solver.verify.case import Case, Finding, Rule, differs, link_name
from solver.verify.joint_replay import stated_bytes
from solver.verify.message_paths import edge_parts

HALF_A_BYTE = 0.5  # bytes are whole


def message_paths(case: Case) -> Iterator[Finding]:
    """A split is stated once, for a way that messages take; its paths join the places and their parts add up to one."""
    ways = {(source.place, target.place) for one in case.network.boundaries for source, target in one.ways}
    counted = Counter((one.from_place, one.to_place) for one in case.plan.message_splits)
    for split in case.plan.message_splits:
        where = f"messages from {split.from_place} to {split.to_place}"
        if counted[split.from_place, split.to_place] > 1:
            yield Finding(where, "are split more than once")
        if (split.from_place, split.to_place) not in ways:
            yield Finding(where, "are split, no stage sends there")
        total = sum(path.part for path in split.paths)
        if differs(total, 1.0):
            yield Finding(where, f"parts add up to {total:.9g}")
        for number, path in enumerate(split.paths):
            yield from (Finding(f"{where}, path {number}", fault) for fault in path_faults(case, split, path))


def path_faults(case: Case, split: MessageSplit, path: MessagePath) -> Iterator[str]:
    """Where a stated path is none of the link graph from source to target."""
    topology, at = case.network.topology, split.from_place
    seen = {at}
    for step in path.steps:
        index = topology.edge_index.get((step.link, step.reverse))
        if index is None or topology.edges[index].from_place != at:
            yield f"{step.link} {'reverse ' if step.reverse else ''}does not lead on from {at}"
            return
        at = topology.edges[index].to_place
        if at in seen:
            yield f"comes to {at} twice"
        seen.add(at)
    if at != split.to_place:
        yield f"ends in {at}"


def pipeline_bytes(case: Case) -> Iterator[Finding]:
    """Pipeline bytes of every link are what the paths of all messages put on it."""
    carried = np.zeros(len(case.network.topology.edges))
    for boundary in case.network.boundaries:
        replicas = case.route_by_id[boundary.route].num_replicas
        size = case.network.boundary_bytes(boundary) * case.configuration.num_microbatches * replicas
        for back in (False, True):
            edges, parts = edge_parts(case, boundary, back=back)
            carried[edges] += size * parts
    yield from byte_findings(case, "pp", carried, "the paths of messages")


def byte_findings(case: Case, cause: Dimension, carried: Floats, carriers: str) -> Iterator[Finding]:
    """Links whose stated bytes of a cause are not those that its carriers put on them."""
    stated = stated_bytes(case, cause)
    for edge, said, derived in zip(case.network.topology.edges, stated.tolist(), carried.tolist(), strict=True):
        if differs(said, derived) and abs(said - derived) > HALF_A_BYTE:
            name = link_name(edge.id, edge.reverse)
            yield Finding(name, f"{said:.9g} B of {cause}, {carriers} put {derived:.9g}")


FAMILY: Mapping[str, Rule] = {"message-paths": message_paths, "pipeline-bytes": pipeline_bytes}
