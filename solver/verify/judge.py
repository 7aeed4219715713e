"""The judge of plans: every rule, from the request and the plan alone.

Shares physics (`solver.cost`, `solver.network`) with the search and nothing else: no generator, no solver, no
discretisation. No figure of a plan is believed.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from models.plan import Plan
from models.request import PlanRequest
from models.verdict import Verdict, Violation
from solver.verify.case import Case, Finding, Rule
from solver.verify.rules import (
    configuration,
    exchange,
    exchange_times,
    hops,
    links,
    message_times,
    paths,
    placement,
    prediction,
    prices,
    problems,
    rank_map,
    replay,
    runnable,
    schedule,
    statements,
    timelines,
    totals,
    transport,
    transport_times,
)
from solver.verify.unjudged import unjudged

# What no plan can break, whoever made it and however much slower than possible it is.
LIMITS: Mapping[str, Rule] = {
    **configuration.FAMILY,
    **placement.FAMILY,
    **rank_map.FAMILY,
    **timelines.FAMILY,
    **schedule.FAMILY,
    **hops.FAMILY,
    **exchange.FAMILY,
    **transport.FAMILY,
    **links.FAMILY,
    **paths.FAMILY,
    **prices.FAMILY,
    **totals.FAMILY,
    **replay.FAMILY,
}
# What follows, figure by figure, from the decisions that the plan states.
DERIVATIONS: Mapping[str, Rule] = {
    **message_times.FAMILY,
    **exchange_times.FAMILY,
    **transport_times.FAMILY,
    **prices.OF_RINGS,
    **problems.FAMILY,
    **prediction.FAMILY,
    **statements.FAMILY,
    **runnable.FAMILY,
}
RULES: Mapping[str, Rule] = {**LIMITS, **DERIVATIONS}
MAX_FINDINGS_PER_RULE = 25  # of one rule: a wrong column is one mistake
UNREADABLE = (LookupError, ArithmeticError, ValueError)


def judge(request: PlanRequest, plan: Plan, *, rules: Mapping[str, Rule] = RULES) -> Verdict:
    """What the rules say of a plan, and with all of them what they leave out. Its own verdict is not read."""
    case = Case(request, plan)
    violations = tuple(
        Violation(rule=name, where=finding.where[:300], detail=finding.detail[:600])
        for name, rule in rules.items()
        for finding in islice(_findings(rule, case), MAX_FINDINGS_PER_RULE)
    )
    return Verdict(
        accepted=not violations,
        rules_checked=tuple(rules),
        violations=violations[:1000],
        unjudged=unjudged(case) if rules is RULES and not violations else (),
    )


def _findings(rule: Rule, case: Case) -> Iterator[Finding]:
    """The findings of a rule; a plan too broken for the rule to be evaluated breaks it."""
    try:
        yield from rule(case)
    except UNREADABLE as error:
        yield Finding("plan", f"the rule cannot be evaluated: {type(error).__name__}: {error}")
