"""The placement question in index form: how many replicas put which pipeline rank into which unit.

A unit is the free capacity of one GPU type in one building. Owns no solver and no request vocabulary.
Suffixes: p pipeline rank, u and v units.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prices:
    """Seconds that an iteration loses to crossings; what the placement trades off.

    boundary_s[u][v]: once per boundary p | p+1 that any replica crosses from u to v (fill, drain, waiting).
    slot_s[u][v]: time one micro-batch message of one replica occupies the whole path u to v.
    work_s: work of the slowest rank on one micro-batch; messages hide behind it.
    span_s[p]: per further building that the replicas of rank p span (gradient exchange).
    """

    boundary_s: tuple[tuple[float, ...], ...]
    slot_s: tuple[tuple[float, ...], ...]
    work_s: float
    span_s: tuple[float, ...]


@dataclass(frozen=True)
class MinimumReplicas:
    """At least `num_replicas` of rank `rank` sit in one of `units`."""

    rank: int
    units: tuple[int, ...]
    num_replicas: int


@dataclass(frozen=True)
class PlacementProblem:
    """Integer data only a placement needs. The size never depends on the number of replicas."""

    num_ranks: int
    num_replicas: int
    num_microbatches: int
    capacity_u: tuple[int, ...]
    building_u: tuple[int, ...]
    allowed_pu: tuple[tuple[bool, ...], ...]
    prices: Prices
    minimums: tuple[MinimumReplicas, ...] = ()
    ranks_may_cross: bool = True
    replicas_may_cross: bool = True

    @property
    def num_units(self) -> int:
        """Units that exist."""
        return len(self.capacity_u)


@dataclass(frozen=True)
class RouteCount:
    """`num_replicas` replicas put rank p into units[p]."""

    units: tuple[int, ...]
    num_replicas: int


@dataclass(frozen=True)
class PlacementSolution:
    """Routes with counts, the priced objective and whether it is proven least."""

    routes: tuple[RouteCount, ...]
    objective_s: float
    bound_s: float
    proven: bool
