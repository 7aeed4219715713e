"""Buildings that nothing stated joins: what would join them, to see whether it is in the way, and ways out to offer."""

from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any, Literal

from models.question_parts import Change
from models.request import PlanRequest
from solver.diagnostics.joins import links_missing, names_of
from solver.diagnostics.rule import gbit, gpus_by_building

OFFERED_BYTES_PER_S = 5e10  # of a link that is offered: one wave of 400 Gb/s, the least that is sold for this
Way = tuple[Literal["wish", "hardware"], str, tuple[Change, ...]]


def are_missing(request: PlanRequest) -> bool:
    """Whether the request is refused because nothing stated joins its buildings."""
    return any(links_missing(request))


def in_a_row(request: PlanRequest, capacity_bytes_per_s: float, **more: Any) -> tuple[Change, ...]:
    """Changes that add a link from each building with GPUs to the next one."""
    taken = {link.id for link in request.cluster.links}
    free = (name for number in count() if (name := f"added-{number}") not in taken)
    return tuple(
        Change(
            pointer="/cluster/links",
            op="add",
            value={
                "id": next(free),
                "from_place": one,
                "to_place": other,
                "capacity_bytes_per_s": capacity_bytes_per_s,
                **more,
            },
        )
        for one, other in pairwise(gpus_by_building(request))
    )


def ways_out(request: PlanRequest) -> Iterator[Way]:
    """Where links are missing, what may be said or bought instead; what is given up comes first."""
    if not are_missing(request):
        return
    text = 'set cluster.fabric to "separate": no pipeline and no data parallelism between buildings that nothing joins'
    yield "wish", text, (Change(pointer="/cluster/fabric", value="separate"),)
    links = in_a_row(request, OFFERED_BYTES_PER_S)
    what = "a link" if len(links) == 1 else f"{len(links):,} links, each to the next building,"
    buildings = names_of(list(gpus_by_building(request)))
    yield "hardware", f"{what} of {gbit(OFFERED_BYTES_PER_S)} between {buildings}", links
