"""Demands and routings over the link graph, and the independent check that a routing ships what was asked.

Owns what a routing is and when it is right. Never finds one and knows no solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from models.cluster import PlaceId
from models.transport import Dimension
from solver.network.topology import Topology

RELATIVE_TOLERANCE = 1e-6  # of sizes and loads: rounding of the solver


@dataclass(frozen=True)
class Phase:
    """Flows of one phase coincide; flows of different phases never do.

    `weight` is how often the phase counts per iteration, `hidden_s` how much of its time compute hides.
    """

    name: str
    weight: float = 1.0
    hidden_s: float = 0.0


@dataclass(frozen=True)
class Demand:
    """Bytes that must get from one place to another within a phase."""

    source: PlaceId
    target: PlaceId
    size_bytes: float
    phase: str
    cause: Dimension


@dataclass(frozen=True)
class Share:
    """Part of a demand that takes one path."""

    demand: int
    edges: tuple[int, ...]
    size_bytes: float


@dataclass(frozen=True)
class Routing:
    """A split of every demand over paths, the time of every phase, and the price of every link.

    `prices_s_per_byte[phase][edge]` is the dual of the capacity row: the seconds of iteration time that one more byte
    on that edge costs. They prove `bound_s`, below which no routing gets. Empty and 0 where nothing was optimised.
    """

    phases: tuple[Phase, ...]
    demands: tuple[Demand, ...]
    shares: tuple[Share, ...]
    capacity_bytes_per_s: NDArray[np.float64]
    method: str
    prices_s_per_byte: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    bound_s: float = 0.0

    @cached_property
    def load_bytes(self) -> Mapping[str, NDArray[np.float64]]:
        """Bytes on each edge, by phase."""
        loads = {phase.name: np.zeros(len(self.capacity_bytes_per_s)) for phase in self.phases}
        for share in self.shares:
            loads[self.demands[share.demand].phase][list(share.edges)] += share.size_bytes
        return loads

    @cached_property
    def phase_s(self) -> Mapping[str, float]:
        """Time to ship a phase: its fullest edge at capacity."""
        return {
            name: float(np.max(load / self.capacity_bytes_per_s, initial=0.0)) for name, load in self.load_bytes.items()
        }

    @property
    def iteration_s(self) -> float:
        """The objective: what the flows add to an iteration, sum of weight * max(0, time - hidden)."""
        return sum(phase.weight * max(0.0, self.phase_s[phase.name] - phase.hidden_s) for phase in self.phases)

    @property
    def transfer_s(self) -> float:
        """Time of all phases, hidden or not; decides between routings that add the same."""
        return sum(phase.weight * self.phase_s[phase.name] for phase in self.phases)

    def bottleneck(self, phase: str) -> int | None:
        """Edge that sets the time of a phase; None when nothing flows."""
        fill = self.load_bytes[phase] / self.capacity_bytes_per_s
        return int(np.argmax(fill)) if fill.size and fill.max() > 0 else None


def routing_faults(topology: Topology, demands: Sequence[Demand], routing: Routing) -> list[str]:
    """Everything that is wrong with a routing; empty when it ships every byte of every demand along real paths.

    Looks at the demands, the shares and the edges alone: paths join source and target edge by edge, bytes are
    conserved, and no phase claims a time in which an edge would carry more than its capacity.
    """
    faults: list[str] = []
    shipped = np.zeros(len(demands))
    load: dict[str, NDArray[np.float64]] = {}
    for number, share in enumerate(routing.shares):
        demand = demands[share.demand]
        faults.extend(f"share {number}: {fault}" for fault in _path_faults(topology, demand, share))
        shipped[share.demand] += share.size_bytes
        phase_load = load.setdefault(demand.phase, np.zeros(len(topology.edges)))
        for edge in share.edges:
            phase_load[edge] += share.size_bytes
    for index, demand in enumerate(demands):
        if abs(shipped[index] - demand.size_bytes) > RELATIVE_TOLERANCE * max(1.0, demand.size_bytes):
            faults.append(f"demand {index}: {shipped[index]:g} of {demand.size_bytes:g} bytes are routed")
    for phase, phase_load in load.items():
        faults.extend(_capacity_faults(topology, routing, phase, phase_load))
    return faults


def _path_faults(topology: Topology, demand: Demand, share: Share) -> list[str]:
    if share.size_bytes < 0:
        return [f"negative size {share.size_bytes:g}"]
    at = demand.source
    for edge in share.edges:
        if topology.edges[edge].from_place != at:
            return [f"edge {topology.edges[edge].id!r} does not leave {at!r}"]
        at = topology.edges[edge].to_place
    return [] if at == demand.target else [f"path ends in {at!r} instead of {demand.target!r}"]


def _capacity_faults(topology: Topology, routing: Routing, phase: str, load: NDArray[np.float64]) -> list[str]:
    allowed = routing.capacity_bytes_per_s * routing.phase_s[phase]
    over = np.flatnonzero(load > allowed * (1 + RELATIVE_TOLERANCE) + 1e-9)
    return [
        f"phase {phase!r}: edge {topology.edges[index].id!r} carries {load[index]:g} of {allowed[index]:g} bytes"
        for index in over
    ]
