"""Rules on what a plan says of training frameworks: each is named once, and runs what its profile has.

Times of other frameworks' schedules are not judged: those schedules are not stated.
"""

from collections.abc import Iterator, Mapping

from models.framework import FrameworkProfile
from models.plan import RunnableBy
from solver.verify.case import Case, Finding, Rule, differs, exceeds
from solver.verify.frameworks import frameworks_of, unsupported_schedules


def runnable_by(case: Case) -> Iterator[Finding]:
    """Where it is stated, of every known framework: whether it runs the plan, as planned or otherwise, and the time."""
    stated, known = case.plan.runnable_by, frameworks_of(case.request)
    if not stated:
        return
    if [one.framework for one in stated] != [one.name for one in known]:
        yield Finding(
            "runnable_by", f"names {[one.framework for one in stated]}, known are {[one.name for one in known]}"
        )
        return
    for one, profile in zip(stated, known, strict=True):
        yield from (Finding(f"runnable_by {one.framework}", detail) for detail in _wrong(case, one, profile))


def _wrong(case: Case, one: RunnableBy, profile: FrameworkProfile) -> Iterator[str]:
    plan = case.plan
    unsupported = [detail for _, detail in profile.lacks(plan.configuration, case.request.workload)]
    otherwise = any(unsupported_schedules(profile, plan.configuration, plan.timelines))
    if one.runs and unsupported:
        yield f"is said to run it, but {unsupported[0]}"
    if not one.runs and not unsupported and not otherwise:
        yield "is said not to run it, but has all of it"
    if one.as_planned != (one.runs and not otherwise):
        yield f"as_planned is {one.as_planned}, its profile says otherwise"
    if (one.reasons == ()) != one.as_planned:
        yield "states reasons where it runs the plan as planned, or none where it does not"
    if one.iteration_s is not None and not one.runs:
        yield f"takes {one.iteration_s:.9g} s, but does not run it"
    if one.as_planned and (one.iteration_s is None or differs(one.iteration_s, plan.metrics.iteration_s)):
        yield f"takes {one.iteration_s} s, as planned it is {plan.metrics.iteration_s:.9g}"
    best = one.best
    if best is not None:
        if one.iteration_s is not None and exceeds(best.iteration_s, one.iteration_s):
            yield f"its best takes {best.iteration_s:.9g} s, the plan {one.iteration_s:.9g}"
        lacking = profile.lacks(best.configuration, case.request.workload)
        yield from (f"its best: {detail}" for _, detail in lacking)


FAMILY: Mapping[str, Rule] = {"runnable-by": runnable_by}
