"""What the judge neither derives nor checks, field by field, with the reason.

A rule that derives a field takes it off the list.
"""

from collections.abc import Iterator

from models.plan import RouteTimeline
from models.verdict import Unjudged
from solver.verify.case import Case
from solver.verify.derived import Derived
from solver.verify.facts import Facts
from solver.verify.rules.problems import alike
from solver.verify.rules.totals import usable_light_s

SEARCHED = "the search is not repeated"
RUNS = "schedules of frameworks are not stated; only that each is named once and runs no more than its profile has"
IN_SLOTS = "messages in time slots take the delay of all at once; only that the path offers it and it keeps the pace"
RIVAL = "only that it is not faster than light nor, by time, than the plan; `verify --deep` does more"


def unjudged(case: Case) -> tuple[Unjudged, ...]:
    """Fields of this plan that no rule confirms."""
    return tuple(Unjudged(pointer=pointer, reason=reason) for pointer, reason in _fields(case))


def _fields(case: Case) -> Iterator[tuple[str, str]]:
    plan = case.plan
    light = usable_light_s(case)
    confirmed = light if light <= plan.metrics.iteration_s else 0.0
    kind = case.request.objective.kind
    confirms = f"the judge itself confirms {confirmed:.6g} s of iteration time, the speed of light"
    objective = "" if kind == "iteration_time" else f"; the bound is one of {kind}, in seconds of this plan"
    yield "/proof/lower_bound_s", f"{SEARCHED}; {confirms}{objective}"
    yield "/proof/relative_gap", "follows from the time and /proof/lower_bound_s, which is not judged"
    for name in ("num_configurations", "num_pruned", "num_explored"):
        yield f"/proof/{name}", f"{SEARCHED}; only that none is above num_configurations"
    yield "/convergence", f"{SEARCHED}; only that time goes on, no bound passes its incumbent, and it ends here"
    yield "/baselines", RIVAL
    yield "/alternatives", RIVAL
    yield "/runnable_by", RUNS
    yield "/one_building_s", "its schedule is not stated; only that it lies between the speed of light and the plan"
    yield "/notes", "what the search says of its own answer, in words"
    if _recomputes_nothing(case):
        yield "/configuration/recompute", "none and selective are the same here: attention keeps nothing to recompute"
    for number, way in enumerate(plan.message_transports):
        if way.route is not None:
            for name in ("num_queue_pairs", "reliability"):
                yield f"/message_transports/{number}/connection/{name}", IN_SLOTS
    for number, _ in enumerate(plan.transport):
        yield f"/transport/{number}/reason", "words; every figure of the choice is derived, the road not taken is not"
    known: list[RouteTimeline] = []
    for number, timeline in enumerate(plan.timelines):
        if any(alike(one, timeline) for one in known):
            continue
        known.append(timeline)
        at = f"/timelines/{number}/schedule"
        yield f"{at}/generator", "where an order came from cannot be seen from it"
        yield f"{at}/lower_bound_s", f"{SEARCHED}; only that it is not above the value"


def _recomputes_nothing(case: Case) -> bool:
    """Whether none and selective recomputation cost the same time and memory on every stage."""
    used = case.configuration
    if used.recompute == "full":
        return False
    other = used.model_copy(update={"recompute": "selective" if used.recompute == "none" else "none"})
    derived = Derived(Facts(case.request, case.plan.model_copy(update={"configuration": other})))
    return all(
        getattr(one, name)[0] == getattr(two, name)[0]
        for group in case.groups
        for stage in case.derived.stages_of(group.pipeline_rank)
        for one, two in [(case.derived.stage(group.pool, stage), derived.stage(group.pool, stage))]
        for name in ("forward_s", "input_grad_s", "weight_grad_s", "activation_bytes")
    )
