"""Demands and routings over the link graph, and the independent check that a routing ships what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from models.cluster import PlaceId
from models.transport import Dimension
from solver.arrays import FloatArray


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
    capacity_bytes_per_s: FloatArray
    method: str
    prices_s_per_byte: Mapping[str, FloatArray] = field(default_factory=dict)
    bound_s: float = 0.0

    @cached_property
    def load_bytes(self) -> Mapping[str, FloatArray]:
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
