"""Which building a place lies in, as far as the documents at hand say."""

from __future__ import annotations

from collections.abc import Iterator

from models.request import PlanRequest


def building_of(place: str, request: PlanRequest | None) -> str:
    """The building that holds a place; the place itself when there is no request or no building above it."""
    if request is None:
        return place
    levels = {one.id: one.level for one in request.cluster.places}
    return next((one for one in places_above(place, request) if levels[one] == "building"), place)


def places_above(place: str, request: PlanRequest) -> Iterator[str]:
    """The place and every place that holds it, the nearest first."""
    parents = {one.id: one.parent for one in request.cluster.places}
    here: str | None = place if place in parents else None
    while here is not None:
        yield here
        here = parents[here]
