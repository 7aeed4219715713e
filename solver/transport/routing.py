"""Routes of all flows at once, for the least time that the flows add to an iteration.

Phases never coincide, so each is a programme of its own (`path_flow.py`). `flows.py` checks the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.arrays import FloatArray
from solver.network.topology import Topology
from solver.transport.flows import Demand, Phase, Routing, Share
from solver.transport.path_flow import RELATIVE_GAP, Commodities, PathFlow, solve_path_flow
from solver.transport.shortest_paths import shortest_path_routing


def route(
    topology: Topology,
    demands: Sequence[Demand],
    phases: Sequence[Phase],
    *,
    capacity_bytes_per_s: FloatArray | None = None,
) -> Routing:
    """Best split of all demands over paths: min sum_p weight_p max(0, T_p - hidden_p), T_p the fullest edge's time.

    `capacity_bytes_per_s` replaces the topology's capacities, for instance after collisions. Where shortest paths are
    as fast, they stay.
    """
    capacity = topology.capacity_bytes_per_s if capacity_bytes_per_s is None else capacity_bytes_per_s
    shortest = shortest_path_routing(topology, demands, phases, capacity_bytes_per_s=capacity)
    shares: list[Share] = []
    prices: dict[str, FloatArray] = {}
    bound_s = 0.0
    for phase in phases:
        members = _members(demands, phase.name)
        flow = solve_path_flow(_commodities(topology, capacity, demands, members)) if members else None
        shares.extend(_phase_shares(demands, phase.name, members, flow, shortest))
        is_exposed = flow is not None and flow.time_s > phase.hidden_s
        prices[phase.name] = phase.weight * flow.price_e if flow and is_exposed else np.zeros(len(capacity))
        bound_s += phase.weight * max(0.0, (flow.bound_s if flow else 0.0) - phase.hidden_s)
    return Routing(tuple(phases), tuple(demands), tuple(shares), capacity, "optimal", prices, bound_s)


Members = dict[tuple[str, str], list[int]]


def _members(demands: Sequence[Demand], phase: str) -> Members:
    """Demands of a phase that move, by their ends."""
    members: Members = {}
    for index, demand in enumerate(demands):
        if demand.phase == phase and demand.source != demand.target and demand.size_bytes > 0:
            members.setdefault((demand.source, demand.target), []).append(index)
    return members


def _commodities(topology: Topology, capacity: FloatArray, demands: Sequence[Demand], members: Members) -> Commodities:
    return Commodities(
        topology=topology,
        capacity=capacity,
        ends_k=tuple((topology.index_of[source], topology.index_of[target]) for source, target in members),
        size_k=np.array([sum(demands[index].size_bytes for index in indices) for indices in members.values()]),
    )


def _phase_shares(
    demands: Sequence[Demand], phase: str, members: Members, flow: PathFlow | None, shortest: Routing
) -> list[Share]:
    """The optimised shares, unless shortest paths are as fast within the gap."""
    plain = [share for share in shortest.shares if demands[share.demand].phase == phase]
    if flow is None or shortest.phase_s[phase] <= flow.time_s * (1 + RELATIVE_GAP):
        return plain
    moving = [
        Share(index, path, part * demands[index].size_bytes)
        for indices, split in zip(members.values(), flow.split_k, strict=True)
        for path, part in split
        for index in indices
    ]
    routed = {share.demand for share in moving}
    return moving + [share for share in plain if share.demand not in routed]
