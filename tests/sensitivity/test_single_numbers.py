"""Change every kind of number in a plan, one at a time, up and down: the judge notices all but those named here.

A field that turns up here as unnoticed needs a rule, or a line in FREE that says why it is nobody's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from models.figures import ConvergencePoint
from models.plan import Alternative, Plan
from solver.verify.judge import LIMITS, judge
from tests.build_costs import Forgery
from tests.build_plan import build_plan
from tests.build_request import build_request

Path = tuple[str | int, ...]

CHOICES = "the planner may choose it within limits that other tests push to"
DERIVED = "no limit knows it; the rules that derive figures from it do, on plans of the planner"
HINTS = "a hint to the scheduler; the schedule and the exchanges are judged themselves"
HISTORY = "how the search went cannot be seen from the plan"
SAFE_SIDE = "less optimism than the physics allow"
COUNSEL = "counsel to a person; nothing of the plan rests on it, and tests of the planner recompute it"
ABSENT = "zero here, and halving it leaves zero"
FREE = {
    "timelines.*.other_sharing.stagger_s": ABSENT,
    "timelines.*.problem.ranks.*.activation_budget_bytes": HINTS,
    "timelines.*.problem.stages.*.gradient_sync_s": HINTS,
    "timelines.*.problem.options.time_limit_s": HINTS,
    "timelines.*.problem.options.relative_gap": HINTS,
    "timelines.*.problem.options.seed": HINTS,
    "timelines.*.problem.options.workers": HINTS,
    "timelines.*.schedule.seconds": HISTORY,
    "exchanges.*.overlap_s": SAFE_SIDE,
    "transport.*.num_ranks": CHOICES,
    "transport.*.chunk_bytes": CHOICES,
    "transport.*.num_slices": DERIVED,
    "transport.*.num_queue_pairs": CHOICES,
    "transport.*.num_outstanding": CHOICES,
    "transport.*.expected_s": CHOICES,
    "transport.*.effective_bytes_per_s": SAFE_SIDE,
    "link_loads.*.num_background_flows": HISTORY,
    "time.tensor_parallel_s": ABSENT,
    "time.context_parallel_s": ABSENT,
    "time.expert_parallel_s": ABSENT,
    "time.pipeline_s": ABSENT,
    "time.data_parallel_s": ABSENT,
    "proof.speed_of_light_s": SAFE_SIDE,
    "proof.num_configurations": HISTORY,
    "proof.num_pruned": HISTORY,
    "proof.num_explored": HISTORY,
    "alternatives.*.degrees.tp": HISTORY,
    "alternatives.*.degrees.cp": HISTORY,
    "alternatives.*.degrees.ep": HISTORY,
    "alternatives.*.degrees.pp": HISTORY,
    "alternatives.*.degrees.dp": HISTORY,
    "alternatives.*.degrees.vpp": HISTORY,
    "convergence.*.elapsed_s": HISTORY,
    "convergence.*.lower_bound_s": HISTORY,
    "one_building_s": COUNSEL,
}


def with_history(plan: Plan) -> Plan:
    """The plan with what came second, how the search went, and its time without distance."""
    time_s = plan.metrics.iteration_s
    second = Alternative(
        degrees=plan.configuration.degrees.model_copy(update={"dp": 2 * plan.configuration.degrees.dp}),
        sharding="zero1",
        recompute="none",
        family="one_way",
        crossing="dp_out",
        iteration_s=1.25 * time_s,
        slower_by=0.25,
        why_second="data parallel",
    )
    points = (
        ConvergencePoint(elapsed_s=1.0, incumbent_s=None, lower_bound_s=0.5 * time_s),
        ConvergencePoint(elapsed_s=2.0, incumbent_s=time_s, lower_bound_s=0.75 * time_s),
    )
    return plan.model_copy(update={"alternatives": (second,), "convergence": points, "one_building_s": 0.75 * time_s})


def numbers(value: Any, path: Path = ()) -> Iterator[tuple[Path, float]]:
    """Every number of a JSON document with its path."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from numbers(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from numbers(one, (*path, index))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


def changed(document: dict[str, Any], path: Path, new: float) -> Plan | None:
    """The plan with one number replaced; None where the vocabulary itself refuses it."""
    copy = deepcopy(document)
    at: Any = copy
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = new
    try:
        return Plan.model_validate(copy)
    except ValidationError:
        return None


def kind_of(path: Path) -> str:
    """The path with every index as a star."""
    return ".".join("*" if isinstance(step, int) else step for step in path)


def test_only_free_numbers_can_be_changed_unnoticed():
    request = build_request()
    in_turns = Forgery(messages_take_turns=True, staggered=True)
    document = with_history(build_plan(request, forgery=in_turns)).model_dump(
        mode="json",
        exclude={"verdict", "baselines", "prediction"},  # derived, and convicted in test_real_plan.py
    ) | {"verdict": {"accepted": True, "rules_checked": []}}
    noticed: set[tuple[str, bool]] = set()
    tried: set[tuple[str, bool]] = set()
    for path, old in numbers(document):
        bigger, smaller = (old + 1, old - 1) if isinstance(old, int) else (1.5 * old or 1.0, old / 2)
        for new in (bigger, smaller):
            kind = (kind_of(path), new > old)
            if kind in noticed:
                continue
            plan = changed(document, path, new)
            tried.add(kind)
            if plan is None or not judge(request, plan, rules=LIMITS).accepted:
                noticed.add(kind)
    assert len(tried) > 150
    assert {kind for kind, _ in tried - noticed} == FREE.keys()
