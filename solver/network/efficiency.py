"""Measured-efficiency curves: how close a fabric comes to its line rate, by message size and number of participants.

A curve has a latency per step, a saturating rate, chunk pipelining and a protocol for short messages. The constants
are in the catalogue, each with its source.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.transport import Collective
from solver.network.collectives import bus_factor
from solver.network.transfer import chunked_pipeline_s


@dataclass(frozen=True)
class ShortProtocol:
    """Protocol for small payloads: bound by latency, with a rate of its own."""

    below_bytes: float
    base_s: float
    hop_s: float
    rate_fraction: float


@dataclass(frozen=True)
class EfficiencyCurve:
    """T = base + hops * hop_s + W + 2 sqrt(fill_s W), W = bus bytes / (line * plateau).

    `plateau` is the share of the line rate at large messages by number of participants (GPUs inside a scale-up domain,
    nodes outside), straight between the given counts and constant beyond; `rank_penalty` c instead gives 1/(1 + c/n).
    """

    base_s: float
    hop_s: float
    fill_s: float
    plateau: tuple[tuple[int, float], ...]
    rank_penalty: float = 0.0
    short: ShortProtocol | None = None

    def plateau_at(self, num_participants: int) -> float:
        """Share of the line rate that large messages reach."""
        counts, shares = zip(*self.plateau, strict=True)
        share = float(np.interp(num_participants, counts, shares))
        return share / (1.0 + self.rank_penalty / num_participants)

    def seconds(
        self, size_bytes: float, bus_bytes: float, num_hops: float, *, line_rate: float, participants: int
    ) -> float:
        """Time of an operation whose busiest link carries `bus_bytes` over `num_hops` dependent hops."""
        wire_s = bus_bytes / (line_rate * self.plateau_at(participants))
        if self.short is not None and size_bytes < self.short.below_bytes:
            return self.short.base_s + num_hops * self.short.hop_s + bus_bytes / (line_rate * self.short.rate_fraction)
        return self.base_s + num_hops * self.hop_s + chunked_pipeline_s(wire_s, self.fill_s)


@dataclass(frozen=True)
class FabricProfile:
    """The curves of one kind of fabric, fitted once to measurements on it.

    `line_bytes_per_s` is the rate the curves were fitted against: per GPU inside a scale-up domain, per node outside.
    """

    name: str
    line_bytes_per_s: float
    curves: Mapping[str, EfficiencyCurve]  # by collective or algorithm; "*" for the rest
    source: str

    def curve(self, collective: Collective, algorithm: str = "") -> EfficiencyCurve:
        """The curve of an algorithm, else of the collective, else the fabric's general one."""
        for key in (algorithm, collective):
            if key in self.curves:
                return self.curves[key]
        return self.curves["*"]

    def collective_s(
        self,
        collective: Collective,
        size_bytes: float,
        num_ranks: int,
        *,
        num_nodes: int = 1,
        algorithm: str = "",
        line_rate: float | None = None,
    ) -> float:
        """Time of a collective: hops are those of a ring through the participants, 2(n-1) or n-1 of GPUs or nodes."""
        if num_ranks == 1:
            return 0.0
        participants = num_nodes if num_nodes > 1 else num_ranks
        factor = bus_factor(collective, num_ranks)
        return self.curve(collective, algorithm).seconds(
            size_bytes,
            factor * size_bytes,
            factor * participants,
            line_rate=self.line_bytes_per_s if line_rate is None else line_rate,
            participants=participants,
        )

    def line_fraction(self, collective: Collective, size_bytes: float, num_ranks: int, *, num_nodes: int = 1) -> float:
        """Bus bandwidth over line rate for one operation."""
        seconds = self.collective_s(collective, size_bytes, num_ranks, num_nodes=num_nodes)
        return bus_factor(collective, num_ranks) * size_bytes / (seconds * self.line_bytes_per_s)
