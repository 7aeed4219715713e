"""Rules on exchanges of gradients between places: rings that lead around, and times and bytes that follow from them.

Judges `Plan.exchange_rings` and the exact times of `Plan.exchanges`. What no exchange could beat is `exchange.py`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from models.transport import Dimension, ExchangeRing
from solver.verify.case import Case, Finding, Rule, differs, load_name, unequal
from solver.verify.exchange_ways import on_links
from solver.verify.exchanges_at_once import earliest_starts, most_at_once
from solver.verify.joint_replay import reserved_bytes_per_s
from solver.verify.rules.message_times import unoffered
from solver.verify.rules.paths import byte_findings, path_faults


def exchange_rings(case: Case) -> Iterator[Finding]:
    """Every stage in several places has one ring, which leads through each of them once, by transports on offer."""
    counted = Counter(stage for ring in case.plan.exchange_rings for stage in ring.stages)
    wanted = set(case.exchanging.shared_stages)
    for stage in sorted(wanted | counted.keys()):
        if counted[stage] != int(stage in wanted):
            yield Finding(f"exchange of stage {stage}", f"has {counted[stage]} rings")
    for number, ring in enumerate(case.plan.exchange_rings):
        faults = list(_faults(case, ring))
        yield from (Finding(f"ring {number}", fault) for fault in faults)
        if not faults and wanted.issuperset(ring.stages):
            yield from (Finding(f"ring {number}", fault) for fault in _transport_faults(case, ring))


def _faults(case: Case, ring: ExchangeRing) -> Iterator[str]:
    """Where a ring does not lead around, or does not visit the places of its stages."""
    starts = [step.from_place for step in ring.steps]
    if [step.to_place for step in ring.steps] != [*starts[1:], starts[0]]:
        yield "its steps do not follow each other"
    if starts[0] != min(starts) or list(ring.stages) != sorted(ring.stages):
        yield f"begins in {starts[0]}, with stage {ring.stages[0]}"
    places = {case.exchanging.places(stage) for stage in ring.stages}
    if places != {frozenset(starts)} or len(set(starts)) < len(starts):
        yield f"visits {', '.join(starts)}"
    for step in ring.steps:
        total = sum(path.part for path in step.paths)
        if differs(total, 1.0):
            yield f"parts from {step.from_place} to {step.to_place} add up to {total:.9g}"
        for path in step.paths:
            yield from path_faults(case, step, path)


def _transport_faults(case: Case, ring: ExchangeRing) -> Iterator[str]:
    """Where its transports are not those of the narrowest step of every kind of path, or not on offer there, or none of
    its exchanges is slowed down for others as it states.
    """
    paths = {kind.narrowest: kind.path for kind in case.exchanging.alike(ring.steps)}
    stated = [(one.from_place, one.to_place) for one in ring.transports]
    if sorted(stated) != sorted(paths):
        yield f"transports of {stated}, the narrowest steps of every kind are {sorted(paths)}"
        return
    for stage in ring.stages:
        _, fewest = case.exchanging.fewest(stage)
        for one in ring.transports:
            if one.connection.num_connections != fewest * case.gpus_per_group:
                yield f"{one.connection.num_connections} connections, stage {stage} has {fewest * case.gpus_per_group}"
    for one in ring.transports:
        yield from unoffered(paths[one.from_place, one.to_place], one.connection)
    if ring.num_at_once > 1 and not any(case.exchanging.on_ring(stage).is_slowed for stage in ring.stages):
        yield f"slows down no exchange for {ring.num_at_once} at once"


def exchange_times(case: Case) -> Iterator[Finding]:
    """Head start, time inside places and time on the links are what physics, ring and transports make of them.

    Every exchange starts as soon as its gradients are ready, its rank's cards are free and the links have its share.
    """
    on_rings = on_links(case.exchanging)
    shares = {stage: found.shares for stage, found in on_rings.items()}
    starts = earliest_starts(case.stage_exchanges, shares, case.configuration.rank_of_stages)
    for one in case.stage_exchanges:
        derived = {
            "overlap_s": case.exchanging.overlap_s(one.stage),
            "private_s": case.exchanging.private_s(one.stage),
            "shared_s": on_rings[one.stage].shared_s if one.stage in on_rings else 0.0,
            "start_s": starts[one.stage],
        }
        for name, value in derived.items():
            yield from unequal(f"exchange of stage {one.stage}", name, getattr(one, name), value)


def ring_bytes(case: Case) -> Iterator[Finding]:
    """Exchange bytes of every link are what the rings of all stages put on it."""
    carried = np.zeros(len(case.network.topology.edges))
    for found in on_links(case.exchanging).values():
        for edge, part in found.load.items():
            carried[edge] += part * found.sent_bytes
    yield from byte_findings(case, "dp", carried, "the rings")


def load_facts(case: Case) -> Iterator[Finding]:
    """A load says its flows once each, who sets its pace, its highest rate, and the flows of others on it."""
    edges = case.network.topology.edges
    reserved, pacing = reserved_bytes_per_s(case), _pacing(case)
    rates = {stage: found.edge_bytes_per_s for stage, found in on_links(case.exchanging).items()}
    fastest = most_at_once(case.plan.exchanges, rates)
    for load, at in case.loads:
        where = load_name(load)
        causes = [flow.cause for flow in load.flows]
        if causes not in (["pp"], ["dp"], ["pp", "dp"]) or any(flow.bytes_per_iteration <= 0 for flow in load.flows):
            yield Finding(where, f"flows of {', '.join(causes)}")
        wanted = tuple(cause for cause in ("pp", "dp") if at in pacing[cause])
        if load.bottleneck != wanted:
            yield Finding(where, f"bottleneck {load.bottleneck}, it sets the pace of {wanted}")
        peak = max((reserved[at] + fastest.get(at, 0.0)) / edges[at].capacity_bytes_per_s, load.mean_utilisation)
        yield from unequal(where, "peak_utilisation", load.peak_utilisation, peak)
        others = int(edges[at].background_bytes_per_s > 0)
        if load.num_background_flows != others:
            yield Finding(where, f"{load.num_background_flows} background flows, the request states {others}")


def _pacing(case: Case) -> Mapping[Dimension, set[int]]:
    """Edges that set the rate of some message or exchange."""
    messages = {edge for one in case.messages.crossing for edge in case.messages.at_once(one).bottlenecks}
    exchanges = {edge for found in on_links(case.exchanging).values() for edge in found.bottlenecks}
    return {"pp": messages, "dp": exchanges}


def loads_in_order(case: Case) -> Iterator[Finding]:
    """Loads stand in the order of the link graph: uplinks place by place, then links, each way up or forward first."""
    order = [edge for _, edge in case.loads]
    if order != sorted(order):
        yield Finding("link_loads", "are not in the order of the cluster")


FAMILY: Mapping[str, Rule] = {
    "exchange-rings": exchange_rings,
    "exchange-times": exchange_times,
    "ring-bytes": ring_bytes,
    "load-facts": load_facts,
    "loads-in-order": loads_in_order,
}
