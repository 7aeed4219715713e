"""The judge with pipelines of its own: what a plan says of all other plans is held against some that the judge makes.

It times the baselines and alternatives again, as plain 1F1B on the configuration and the routes that they state, bounds
them from below, times random configurations of the space, and bounds the whole space. A bound that one of its own
pipelines beats is refuted. What is left is named with what could be confirmed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from numpy.random import default_rng

from models.plan import Alternative, Baseline, Plan
from models.request import PlanRequest
from models.verdict import Unjudged, Verdict, Violation
from solver.verify.case import Case, exceeds
from solver.verify.deep.space import bound_of_space_s, trials
from solver.verify.deep.trial import Trial
from solver.verify.judge import UNREADABLE, judge

NUM_TRIALS = 24  # enough to meet a false bound; each costs some ten milliseconds
MUCH_SLOWER = 1.5  # times our plain 1F1B: no order worth stating is that bad, so the stated time is not the rival's
RULES = ("deep-bound", "deep-rival", "deep-own-bound")


class Rival(NamedTuple):
    """A baseline or an alternative: where it stands, its stated time, that of plain 1F1B over plain ECMP, its bound."""

    pointer: str
    stated_s: float
    own_s: float | None
    bound_s: float


def deep_judge(request: PlanRequest, plan: Plan) -> Verdict:
    """The verdict of all rules, and of the judge's own pipelines; rejected plans are not looked into further."""
    verdict = judge(request, plan)
    if not verdict.accepted:
        return verdict
    case, seed = Case(request, plan), request.options.seed
    rivals = list(_rivals(case))
    sample = list(trials(case, default_rng(seed), NUM_TRIALS))
    own = [time for trial in sample for time in [_time_s(trial)] if time is not None]
    bounded = [trial.bound_s() for trial in sample]
    times = own + [one.own_s for one in rivals if one.own_s is not None]
    space_s = min(bound_of_space_s(case), plan.metrics.iteration_s)
    violations = (*_own_bound(case), *bound_refuted(case, times), *_impossible(rivals))
    return verdict.model_copy(
        update={
            "accepted": not violations,
            "rules_checked": (*verdict.rules_checked, *RULES),
            "violations": violations,
            "unjudged": tuple(
                _refined(one, rivals, own, _confirmed(case, space_s, bounded)) for one in verdict.unjudged
            ),
        }
    )


def _time_s(trial: Trial) -> float | None:
    """What a trial takes; None where it cannot run."""
    try:
        return trial.time_s()
    except UNREADABLE:
        return None


def _rivals(case: Case) -> Iterator[Rival]:
    """Rivals that state what they are."""
    lists: tuple[tuple[str, tuple[Baseline | Alternative, ...]], ...] = (
        ("baselines", case.plan.baselines),
        ("alternatives", case.plan.alternatives),
    )
    for name, rivals in lists:
        for number, one in enumerate(rivals):
            if one.iteration_s is not None and one.configuration is not None and one.routes:
                trial = Trial(case.request, case.plan, one.configuration, one.routes, plain_ecmp=True)
                yield Rival(f"/{name}/{number}", one.iteration_s, _time_s(trial), trial.bound_s())


def _own_bound(case: Case) -> Iterator[Violation]:
    """The plan's own time is not below the judge's bound of its configuration on its routes."""
    plan = case.plan
    bound_s = Trial(case.request, plan, plan.configuration, plan.placement.routes).bound_s()
    if exceeds(bound_s, plan.metrics.iteration_s):
        detail = f"{plan.metrics.iteration_s:.9g} s, its configuration takes {bound_s:.9g} s at least"
        yield Violation(rule="deep-own-bound", where="metrics", detail=detail)


def bound_refuted(case: Case, times_s: list[float]) -> Iterator[Violation]:
    """A bound on the time of all plans is above none of these, which pipelines of the judge take."""
    proof = case.plan.proof
    if case.request.objective.kind == "iteration_time" and times_s and exceeds(proof.lower_bound_s, min(times_s)):
        detail = f"lower_bound_s {proof.lower_bound_s:.9g}, a plain 1F1B of the judge takes {min(times_s):.9g}"
        yield Violation(rule="deep-bound", where="proof", detail=detail)


def _impossible(rivals: list[Rival]) -> Iterator[Violation]:
    """No rival is faster than its configuration can be, or much slower than plain 1F1B runs it."""
    for one in rivals:
        if exceeds(one.bound_s, one.stated_s):
            detail = f"{one.stated_s:.9g} s, its configuration takes {one.bound_s:.9g} s at least"
            yield Violation(rule="deep-rival", where=one.pointer, detail=detail)
        if one.own_s is not None and one.stated_s > MUCH_SLOWER * one.own_s:
            detail = f"{one.stated_s:.9g} s, plain 1F1B takes {one.own_s:.9g} s"
            yield Violation(rule="deep-rival", where=one.pointer, detail=detail)


def _confirmed(case: Case, space_s: float, bounded_s: list[float]) -> str:
    """What the judge can say of a bound: its own for the whole space, and of how many random configurations its own is
    as high; for the others a schedule would have to be looked into, which is not done again."""
    as_high = sum(not exceeds(case.plan.proof.lower_bound_s, one) for one in bounded_s)
    sampled = f" and at least the stated bound for {as_high} of {len(bounded_s)} random configurations"
    return f"the judge itself confirms {space_s:.6g} s of iteration time{sampled if bounded_s else ''}"


def _refined(one: Unjudged, rivals: list[Rival], own: list[float], confirmed: str) -> Unjudged:
    """The reason with what could be confirmed."""
    if one.pointer == "/proof/lower_bound_s":
        tried = f"; of {len(own)} pipelines of its own the fastest takes {min(own):.6g} s" if own else ""
        reason = f"the search is not repeated; {confirmed}{tried}"
        return one.model_copy(update={"reason": reason[:600]})
    if one.pointer in ("/baselines", "/alternatives"):
        mine = [rival for rival in rivals if rival.pointer.startswith(one.pointer)]
        spans = ", ".join(f"{rival.pointer}: {_span(rival)}" for rival in mine)
        return one.model_copy(
            update={"reason": f"timed again where they state what they are; {spans or 'none do'}"[:600]}
        )
    return one


def _span(rival: Rival) -> str:
    own = "its chunks fold or 1F1B does not fit" if rival.own_s is None else f"{rival.own_s:.4g} s as plain 1F1B"
    return f"{rival.stated_s:.4g} s, at least {rival.bound_s:.4g} s, {own}"
