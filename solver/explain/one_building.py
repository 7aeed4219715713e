"""What distance costs: the same configuration with all its GPUs in one building.

Owns the request without distance. Never searches: the configuration is the plan's, only its placement is made anew.
"""

from __future__ import annotations

from models.cluster import Cluster, Place
from models.plan import Configuration
from models.request import PlanRequest
from models.schedule import PipelineProblem
from solver.context import Context
from solver.evaluation.draft import Draft, draft
from solver.evaluation.places import placements
from solver.evaluation.scheduling import Scheduler, Timing
from solver.evaluation.where import crossing_of
from solver.placement.units import building_of
from solver.verify.pipeline_shape import PipelineOrder, shape_of
from solver.verify.replay import replay_shape

BUILDING = "all-in-one-building"


def one_building_s(context: Context, found: Draft, scheduler: Scheduler) -> float | None:
    """Iteration time of the draft's configuration when every pool stands in one building, zones and racks as they are.

    Never above the draft's own: with nothing between buildings the same order could still run as it does.
    """
    if crossing_of(context, found.candidate) == "none":
        return found.iteration_s
    near = Context(_without_distance(context), context.stack)
    configuration = found.candidate.configuration
    times = [one.iteration_s for one in _drafts(near, configuration, _or_same_order(found, scheduler))]
    return min([*times, found.iteration_s]) if times else None


def _drafts(near: Context, configuration: Configuration, scheduler: Scheduler) -> list[Draft]:
    timed = [draft(near, one, scheduler) for one in placements(near, configuration, ("replicas_whole", "ranks_whole"))]
    return [one for one in timed if one is not None]


def _without_distance(context: Context) -> PlanRequest:
    """The usable pools in one building: zones keep their uplinks, what joined buildings is gone."""
    request, cluster = context.request, context.request.cluster
    outer = {place.id for place in cluster.places if place.level in ("region", "building")}
    home = {place.id: BUILDING if place.id in outer else building_of(cluster, place.id) for place in cluster.places}
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
    limits = {"pins": (), "forbidden_places": (), "max_cross_building_bytes_per_iteration": None}
    return request.model_copy(
        update={
            "cluster": Cluster.model_validate(near.model_dump()),
            "constraints": request.constraints.model_copy(update=limits),
        }
    )


def _or_same_order(found: Draft, scheduler: Scheduler) -> Scheduler:
    """The scheduler, or the draft's own order where nothing takes turns on a link any more and that is faster."""

    def best(problem: PipelineProblem) -> Timing | None:
        timing = scheduler(problem)
        shape = shape_of(problem)
        for order in {id(one.order): one.order for one in found.timings}.values() if not shape.num_channels else ():
            alone = PipelineOrder(order.rank_ops, ())
            same = Timing(problem, alone, replay_shape(shape, alone), "same order")
            timing = same if timing is None or same.end_s < timing.end_s else timing
        return timing

    return best
