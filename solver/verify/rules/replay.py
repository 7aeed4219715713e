"""The rule on the whole plan in continuous time: with links shared max-min fairly it ends no later than it says.

Judges `Metrics.shared_replay_s`. A plan whose routes, timelines or schedules do not belong together is convicted by the
rules on these, and cannot be replayed.
"""

from collections.abc import Iterator, Mapping

from solver.verify.case import Case, Finding, Rule, exceeds, link_name, unequal
from solver.verify.joint_replay import replay_case


def replay_confirms(case: Case) -> Iterator[Finding]:
    """All routes at once end within the iteration time, no edge carries more than it can, and the stated time is it."""
    if not _belongs_together(case):
        return
    found, stated = replay_case(case), case.plan.metrics
    if exceeds(found.iteration_s, stated.iteration_s):
        yield Finding(
            "metrics", f"iteration_s {stated.iteration_s:.9g}, with shared links it takes {found.iteration_s:.9g}"
        )
    if stated.shared_replay_s is not None:
        yield from unequal("metrics", "shared_replay_s", stated.shared_replay_s, found.iteration_s)
    for edge in found.edges:
        if exceeds(edge.peak_utilisation, 1.0):
            name = link_name(edge.link, edge.reverse)
            yield Finding(name, f"carries {edge.peak_utilisation:.6g} times its capacity")


def _belongs_together(case: Case) -> bool:
    """Whether every route has its pools and a complete timeline of the configuration's stages."""
    used = case.configuration
    routes = case.route_by_id.keys()
    if not routes == case.timeline_by_route.keys() == case.pools_by_route.keys():
        return False
    placed = used.rank_of_stages
    stages = range(used.degrees.num_stages)
    return (
        all(one.problem.placement == placed for one in case.timeline_by_route.values())
        and all(one.stage in stages for one in case.plan.exchanges)
        and not any(case.schedule_objections.values())
    )


FAMILY: Mapping[str, Rule] = {"replay-confirms": replay_confirms}
