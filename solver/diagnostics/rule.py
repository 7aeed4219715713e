"""What a rule of the linter is, and what many of them ask about a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from models.cluster import PlaceId
from models.diagnostic import Diagnostic, Severity
from models.request import PlanRequest
from solver.network.places import ancestors_of, buildings_of, usable_pools

Found = tuple[str, str]  # JSON Pointer, and what was found with its numbers
Find = Callable[[PlanRequest], Iterator[Found]]
MOST_LISTED = 12  # numbers in a sentence: a request may list 64, which nobody reads
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


def gpus_by_place(request: PlanRequest) -> Counter[PlaceId]:
    """GPUs that a plan may use in every place, with all places inside it."""
    held, around = Counter[PlaceId](), ancestors_of(request.cluster)
    for pool in usable_pools(request):
        held.update(dict.fromkeys(around[pool.place], pool.num_free_gpus))
    return held


def forbidden_with_gpus(request: PlanRequest, inside: str) -> str:
    """Which places to allow again, as a remedy: those with free GPUs, inside a place if one is named; empty if none."""
    around, forbidden = ancestors_of(request.cluster), request.constraints.forbidden_places
    gpus = Counter[tuple[str, ...]]()
    for pool in request.cluster.pools:
        if not inside or inside in around[pool.place]:
            gpus[tuple(place for place in forbidden if place in around[pool.place])] += pool.num_free_gpus
    holding = [
        f"{' and '.join(map(repr, places))} ({number:,} GPUs)" for places, number in gpus.items() if places and number
    ]
    more = f" or others ({len(holding) - MOST_LISTED} more)" if len(holding) > MOST_LISTED else ""
    return f"leave {' or '.join(holding[:MOST_LISTED])}{more} out of constraints.forbidden_places" if holding else ""


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


def listed(numbers: Sequence[int]) -> str:
    """The first few numbers, and how many more there are."""
    more = len(numbers) - MOST_LISTED
    return f"{list(numbers[:MOST_LISTED])}{f' and {more} more' if more > 0 else ''}"
