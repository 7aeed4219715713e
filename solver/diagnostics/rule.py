"""What a rule of the linter is, and what many of them ask about a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from models.cluster import PlaceId
from models.diagnostic import Diagnostic, Severity
from models.request import PlanRequest
from solver.network.places import buildings_of, usable_pools

Found = tuple[str, str]  # JSON Pointer, and what was found with its numbers
Find = Callable[[PlanRequest], Iterator[Found]]
MOST_ALIKE = 5  # remarks of one rule: a wrong unit in 20,000 links is one mistake
LONGEST_POINTER, LONGEST_DETAIL = 300, 800  # as the model allows


@dataclass(frozen=True)
class Rule:
    """A rule: its name, how grave it is, what to do about it, and how it looks for what its docstring says."""

    name: str
    severity: Severity
    remedies: tuple[str, ...]
    find: Find

    def diagnostics(self, request: PlanRequest) -> Iterator[Diagnostic]:
        """What the rule says of a request: the first few, the last of them telling that there are more."""
        found = list(islice(self.find(request), MOST_ALIKE + 1))
        for number, (pointer, detail) in enumerate(found[:MOST_ALIKE], start=1):
            more = " There are more of this kind." if number == MOST_ALIKE < len(found) else ""
            yield Diagnostic(
                rule=self.name,
                severity=self.severity,
                pointer=pointer[:LONGEST_POINTER],
                detail=detail[: LONGEST_DETAIL - len(more)] + more,
                remedies=self.remedies,
            )


def gpus_by_building(request: PlanRequest) -> dict[PlaceId, int]:
    """GPUs that a plan may use in every building that has some."""
    held, buildings = Counter[PlaceId](), buildings_of(request.cluster)
    for pool in usable_pools(request):
        held[buildings[pool.place]] += pool.num_free_gpus
    return held


def crosses_buildings(request: PlanRequest) -> bool:
    """Whether a plan may use more than one building at all."""
    allowed = request.constraints
    return allowed.pipeline_may_cross_buildings or allowed.data_parallel_may_cross_buildings


def gbit(bytes_per_s: float) -> str:
    """A rate in the unit in which it is sold.

    >>> gbit(5e10), gbit(1.6e12)
    ('400 Gb/s', '12.8 Tb/s')
    """
    bits = bytes_per_s * 8
    return f"{bits / 1e12:,.4g} Tb/s" if bits >= 1e12 else f"{bits / 1e9:,.4g} Gb/s"
