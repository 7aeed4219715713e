"""Which building a place lies in, as far as the documents at hand say.

Owns that look-up for the exporters. Never checks the tree: the request has done that.
"""

from __future__ import annotations

from models.request import PlanRequest


def building_of(place: str, request: PlanRequest | None) -> str:
    """The building that holds a place; the place itself when there is no request or no building above it."""
    if request is None:
        return place
    by_id = {one.id: one for one in request.cluster.places}
    here = by_id.get(place)
    while here is not None:
        if here.level == "building":
            return here.id
        here = by_id.get(here.parent) if here.parent is not None else None
    return place
