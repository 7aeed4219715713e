"""What distance costs: the same configuration with all its GPUs in one building.

Without a search: the configuration is the plan's, only its placement is made anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from models.cluster import Cluster, Place
from models.plan import Configuration
from models.request import PlanRequest
from solver.context import Context
from solver.evaluation.candidate import Candidate
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import Scheduler, or_same_order
from solver.evaluation.where import crossing_of
from solver.network.places import buildings_of

BUILDING = "all-in-one-building"
SAME = 1e-9  # relative difference of two times that are taken to be equal


@dataclass(frozen=True)
class OneBuilding:
    """Seconds without distance, or why they are not known."""

    seconds: float | None
    reason: str = ""


def one_building(context: Context, found: Evaluation, scheduler: Scheduler, *, late: Callable[[], bool]) -> OneBuilding:
    """Iteration time of the evaluation's configuration on the same GPUs in one building, its zones as they are.

    Where nothing that was timed there is as fast as the evaluation itself, what distance costs is not known: that the
    same plan would lose nothing is no measurement.
    """
    if crossing_of(context, found.candidate) == "none":
        return OneBuilding(found.iteration_s)
    if late():
        return OneBuilding(None, "no time was left to time the configuration in one building")
    near = Context(_with_these_gpus(without_distance(context), context, found.candidate), context.stack)
    times = _times_s(near, found.candidate.configuration, or_same_order(found.timings, scheduler), late)
    if not times:
        return OneBuilding(None, "no placement of the configuration in one building was found")
    least_s = min(times)
    if least_s > found.iteration_s * (1.0 + SAME):
        return OneBuilding(
            None, f"the best that was timed in one building takes {least_s:.4g} s, longer than the plan itself"
        )
    return OneBuilding(min(least_s, found.iteration_s))


def _with_these_gpus(request: PlanRequest, context: Context, candidate: Candidate) -> PlanRequest:
    """The request with as many free GPUs in every pool as the candidate uses there, and no other pools."""
    used = Counter({context.pools[pool].id: count for pool, count in candidate.gpus_of_pool.items()})
    pools = [
        pool.model_copy(update={"num_reserved_gpus": pool.num_reserved_gpus + pool.num_free_gpus - used[pool.id]})
        for pool in request.cluster.pools
        if used[pool.id]
    ]
    return request.with_cluster(pools=tuple(pools))


def _times_s(
    near: Context, configuration: Configuration, scheduler: Scheduler, late: Callable[[], bool]
) -> list[float]:
    times = []
    for candidate in placements(near, configuration, ("replicas_whole", "ranks_whole")):
        timed = evaluate(near, candidate, scheduler)
        if timed is not None:
            times.append(timed.iteration_s)
        if late():
            break
    return times


def without_distance(context: Context) -> PlanRequest:
    """The request with its usable pools in one building: zones keep their uplinks, what joined buildings is gone."""
    request, cluster = context.request, context.request.cluster
    outer = {place.id for place in cluster.places if place.level in ("region", "building")}
    home = {place: BUILDING if place in outer else building for place, building in buildings_of(cluster).items()}
    places = tuple(
        place.model_copy(update={"parent": BUILDING if place.parent is None or place.parent in outer else place.parent})
        for place in cluster.places
        if place.id not in outer
    )
    links = tuple(
        link
        for link in cluster.links
        if home[link.from_place] == home[link.to_place] and not {link.from_place, link.to_place} & outer
    )
    pools = tuple(
        pool.model_copy(update={"place": BUILDING}) if pool.place in outer else pool for pool in context.pools
    )
    near = cluster.model_copy(
        update={"places": (Place(id=BUILDING, level="building"), *places), "pools": pools, "links": links}
    )
    near_request = request.model_copy(update={"cluster": Cluster.model_validate(near.model_dump())})
    return near_request.with_constraints(pins=(), forbidden_places=(), max_cross_building_bytes_per_iteration=None)
