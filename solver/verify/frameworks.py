"""Training frameworks, and why one does not run the schedules of a plan as they are."""

from collections.abc import Iterable, Iterator

from models.catalogue import entry_names
from models.framework import FrameworkProfile, packaged_framework
from models.plan import Configuration, RouteTimeline
from models.request import PlanRequest
from solver.verify.case import Finding


def frameworks_of(request: PlanRequest) -> tuple[FrameworkProfile, ...]:
    """The framework that the request asks for, then those of the catalogue by name."""
    asked = request.constraints.framework
    known = map(packaged_framework, entry_names("frameworks"))
    first = () if asked is None else (asked,)
    return (*first, *(one for one in known if asked is None or one.name != asked.name))


def unsupported_schedules(
    profile: FrameworkProfile, used: Configuration, timelines: Iterable[RouteTimeline]
) -> Iterator[Finding]:
    """What of the timed schedules the framework's runtime does otherwise."""
    sends = profile.sends(used.family)
    for timeline in timelines:
        where, generator = f"timeline {timeline.route}", timeline.schedule.generator
        if timeline.problem.sends != sends:
            yield Finding(where, f"sends are {timeline.problem.sends}, {profile.name} has {sends} ones")
        if profile.fused_backward and timeline.problem.backward != "fused":
            yield Finding(where, f"{profile.name} cannot split the backward")
        if profile.schedules is not None and generator not in profile.schedules:
            yield Finding(where, f"{profile.name} has no schedule called {generator!r}")
