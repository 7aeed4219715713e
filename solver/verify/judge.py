"""The judge of plans: every rule, from the request and the plan alone.

Shares physics (`solver.cost`, `solver.network`) with the search and nothing else: no generator, no solver, no
discretisation. No figure of a plan is believed.
"""

from collections.abc import Iterator, Mapping
from inspect import isgeneratorfunction
from itertools import islice
from types import ModuleType

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

# Rules that verdicts have called otherwise from the start than their functions are called.
STATED_AS = {"exchange_order": "exchange-turns", "exchange_capacity": "exchange-room",
             "schedule_channels": "schedule-lines"}  # fmt: skip


def rules_of(*modules: ModuleType) -> dict[str, Rule]:
    """The rules of a family, in their order: every public generator of these modules that takes nothing but a case.

    A rule has the name of its function, with hyphens.
    """
    return {
        STATED_AS.get(name, name.replace("_", "-")): value
        for module in modules
        for name, value in vars(module).items()
        if isgeneratorfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
        and value.__annotations__.keys() == {"case", "return"}
    }  # fmt: skip


# What no plan can break, whoever made it and however much slower than possible it is.
LIMITS: dict[str, Rule] = {
    **rules_of(configuration, placement, rank_map, timelines),
    **schedule.FAMILY,
    **rules_of(hops, exchange, transport, links, paths, prices, totals, replay),
}
NEEDS_RINGS = {"exchange-price": LIMITS.pop("exchange-price")}  # those that the plan states
# What follows, figure by figure, from the decisions that the plan states.
DERIVATIONS: dict[str, Rule] = {
    **rules_of(message_times, exchange_times, transport_times),
    **NEEDS_RINGS,
    **rules_of(problems, prediction, statements, runnable),
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
