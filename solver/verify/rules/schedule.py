"""Rules on the schedule of every route: what `check_schedule` objects to, under one name per kind of objection.

The checks themselves are those of the pipeline judge, which knows one pipeline and no plan.
"""

from collections.abc import Iterator, Mapping

from solver.verify.case import Case, Finding, Rule

COMPLETENESS = "completeness"
KINDS = (
    COMPLETENESS,
    "missing_operation",
    "missing_transfer",
    "unknown_operation",
    "duplicate",
    "fused",
    "wrong_rank",
    "duration",
    "rank_exclusive",
    "link_exclusive",
    "precedence",
    "blocking_sends",
    "gradient_sync",
    "memory",
    "peak_memory",
    "totals",
)


def rule_of(kind: str) -> Rule:
    """The rule that reports one kind of objection; completeness also takes kinds that have no rule of their own."""

    def rule(case: Case) -> Iterator[Finding]:
        for route, objections in case.schedule_objections.items():
            for objection in objections:
                if objection.rule == kind or (kind == COMPLETENESS and objection.rule not in KINDS):
                    yield Finding(f"route {route}, {objection.where}", objection.detail)

    return rule


FAMILY: Mapping[str, Rule] = {f"schedule-{kind.replace('_', '-')}": rule_of(kind) for kind in KINDS}
