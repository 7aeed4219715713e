"""What changes are worth: intervals that longer searches do not contradict, and plans carried over that are plans."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from benchmarks.what_ifs import answered, contradictions, request, variant
from models.errors import InvalidRequest
from models.outcome import Planned
from models.questions import WhatIf, WhatIfAnswer
from models.robust import Robust
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.carried_over import carried_over
from solver.questions.searches import RunHooks, SearchRuns, changed, with_profile
from solver.questions.side_by_side import SharedGoal, Side, SideComparison
from solver.verify.judge import judge
from tests.build_request import build_request
from tests.counted import work_clock


def _asked(variants: list[dict[str, Any]], limit_s: float, **parts: Any) -> WhatIfAnswer:
    options = {"time_limit_s": limit_s, "workers": 1, "relative_gap": 0.0}
    request = build_request(**parts, options=options).model_dump(mode="json")
    question = WhatIf.model_validate({"request": request, "variants": variants, "options": {"time_limit_s": limit_s}})
    return ask(question, clock=work_clock())


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))])
def test_a_long_run_never_contradicts_the_intervals_of_a_short_one(seed: int) -> None:
    random = Random(seed)
    objective = random.choice([{}, {"kind": "cost_per_token"}, {"kind": "fewest_gpus", "target_iteration_s": 0.4}])
    variants = [variant(random, number) for number in range(5)]
    short, long = (_asked(variants, limit_s, objective=objective) for limit_s in (3.0, 12.0))
    assert short.unit == long.unit
    assert list(contradictions(short, long)) == []


@pytest.mark.parametrize("seed", range(3))
def test_the_requests_of_the_benchmark_are_requests(seed: int) -> None:
    random = Random(seed)
    base = request(random)
    answer = answered(base, [variant(random, 0)], 1.0)
    assert answer.unit
    worse = answer.model_copy(update={"lower_bound": (answer.value or 1.0) * 2.0, "value": answer.value or 1.0})
    assert list(contradictions(answer, worse)), "a bound above a plan is found"


def test_the_interval_is_that_of_both_sides() -> None:
    """[LB0 - T1, T0 - LB1], but for what more or less of something never does."""
    answer = _asked([{"name": "twice the batch", "changes": [
        {"pointer": "/workload/global_batch_sequences", "op": "multiply", "value": 2}]}], 20.0)  # fmt: skip
    (gain,) = answer.gains
    assert answer.unit == "s/million tokens", "an iteration of another batch is another amount of work"
    assert (answer.value, answer.lower_bound, gain.value, gain.lower_bound) != (None,) * 4
    assert gain.least == pytest.approx(answer.lower_bound - gain.value)
    assert gain.most == pytest.approx(answer.value - gain.lower_bound)


def test_a_time_at_a_confidence_is_compared_as_such() -> None:
    twice = {"pointer": "/cluster/links/*/capacity_bytes_per_s", "op": "multiply", "value": 2.0}
    asked = {"objective": {"kind": "time_at_confidence", "confidence": 0.9}}
    answer = _asked([{"name": "wider", "changes": [twice]}], 6.0, **asked)
    assert (answer.unit, answer.gains[0].direction) == ("s/iteration", None)
    assert answer.plan is not None
    assert answer.value is not None
    assert answer.value > answer.plan.iteration_s, "that of nine runs in ten, not that of every second one"


def test_a_change_of_nothing_changes_nothing() -> None:
    """What no plan depends on is decided without a search of its own."""
    same = {"pointer": "/cluster/source", "value": "another survey"}
    answer = _asked([{"name": "survey", "changes": [same]}], 4.0)
    (gain,) = answer.gains
    assert (gain.verdict, gain.least, gain.most) == ("changes nothing", 0.0, 0.0)
    assert (gain.value, gain.lower_bound) == (answer.value, answer.lower_bound), "no more is proven than of the base"


def test_what_bounds_more_bounds_less_and_a_plan_with_less_is_one_with_more() -> None:
    """Nine times the way between buildings, and a ninth: no interval is empty of what the others prove."""
    at = "/cluster/links/*/capacity_bytes_per_s"
    variants = [{"name": f"times {by:g}", "changes": [{"pointer": at, "op": "multiply", "value": by}]}
                for by in (1 / 9, 1 / 3, 3.0, 9.0)]  # fmt: skip
    answer = _asked(variants, 5.0)
    sides = [*answer.gains[:2], answer, *answer.gains[2:]]
    values, bounds = [one.value for one in sides], [one.lower_bound for one in sides]
    assert None not in values
    assert None not in bounds
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds, reverse=True)


def test_more_gains_nothing_at_worst_and_less_at_best() -> None:
    at = "/cluster/links/*/capacity_bytes_per_s"
    answer = _asked([{"name": name, "changes": [{"pointer": at, "op": "multiply", "value": factor}]}
                     for name, factor in (("more", 4.0), ("less", 0.25))], 12.0)  # fmt: skip
    more, less = answer.gains
    assert (more.direction, less.direction) == ("more", "less")
    assert more.least is not None and more.least >= 0.0  # noqa: PT018
    assert less.most is not None and less.most <= 0.0  # noqa: PT018


def test_a_world_without_a_plan_says_why() -> None:
    answer = _asked([{"name": "tp 3", "changes": [{"pointer": "/constraints/allowed/tp", "value": [3]}]}], 6.0)
    (gain,) = answer.gains
    assert (gain.status, gain.verdict, gain.least) == ("infeasible", "no plan", None)
    assert gain.reasons[0].pointer == "/constraints/allowed/tp"


def test_objectives_that_cannot_be_subtracted_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot be subtracted"):
        _asked([{"name": "cost", "changes": [{"pointer": "/objective/kind", "value": "cost_per_token"}]}], 6.0)


@pytest.mark.parametrize("factor", [1.0, 0.05])
def test_a_plan_carried_over_is_judged_in_the_changed_world(factor: float) -> None:
    base = with_profile(build_request(options={"time_limit_s": 5.0, "workers": 1}))
    outcome = plan(base)
    assert isinstance(outcome, Planned)
    document = {"pointer": "/cluster/links/*/capacity_bytes_per_s", "op": "multiply", "value": factor}
    question = WhatIf.model_validate({"request": base, "variants": [{"name": "v", "changes": [document]}]})
    world = changed(base, question.variants[0].changes)
    found = carried_over(world, outcome.plan, lambda: 0.0)
    assert found is not None
    assert judge(world, found.plan).accepted
    assert found.plan.configuration == outcome.plan.configuration
    if factor == 1.0:
        assert found.plan.metrics.iteration_s <= outcome.plan.metrics.iteration_s * 1.05


def test_a_question_that_is_stopped_keeps_what_it_has() -> None:
    heard: list[WhatIfAnswer] = []
    variants = [variant(Random(number), number) for number in range(3)]
    question = WhatIf.model_validate({"request": build_request(), "variants": variants})
    answer = ask(question, found=heard.append, cancelled=lambda: bool(heard) and heard[-1].value is not None)
    assert answer.value is not None
    assert "not_tried" in [one.status for one in answer.gains]
    assert not answer.complete


def test_what_a_plan_like_the_base_cannot_do_others_may() -> None:
    """Sixteen GPUs of a replica are not there, which proves nothing of smaller ones."""
    base = with_profile(build_request(constraints={"allowed": {"tp": [8], "pp": [2]}}))
    world = with_profile(build_request(constraints={"max_gpus": 8}))
    question = WhatIf.model_validate({"request": base, "variants": [{"name": "v", "changes": [{"pointer": "/x/y"}]}]})
    compared = SideComparison(SearchRuns(base, RunHooks.of(question, lambda: False, work_clock())),
                              SharedGoal.of([base]))  # fmt: skip
    outcome = plan(
        base.model_copy(update={"options": base.options.model_copy(update={"time_limit_s": 2.0})}), clock=work_clock()
    )
    compared.base = Side(outcome)
    assert isinstance(outcome, Planned)
    assert compared.near(world, 3.0).outcome is None


def test_a_world_that_arithmetic_refuses_has_no_plan_carried_over_into_it() -> None:
    """Without links nothing joins the buildings of a region: the plan timed there would cross at the rate of cards."""
    document = build_request(options={"time_limit_s": 2.0, "workers": 1}).model_dump(mode="json")
    document["cluster"]["places"].append({"id": "all", "level": "region"})
    for place in document["cluster"]["places"]:
        if place["level"] == "building":
            place["parent"] = "all"
    links = [{"pointer": f"/cluster/links/{one['id']}", "op": "remove"} for one in document["cluster"]["links"]]
    variants = [{"name": "no links", "changes": links}]
    parts = {"request": document, "options": {"time_limit_s": 6.0}}
    gain = ask(WhatIf.model_validate({**parts, "variants": variants}), clock=work_clock()).gains[0]
    assert (gain.verdict, gain.value, gain.reasons[0].code) == ("no plan", None, "links-missing")
    robust = ask(Robust.model_validate({**parts, "scenarios": variants}), clock=work_clock())
    assert (robust.outcome, robust.figures[1].status, robust.figures[1].best_s) == ("infeasible", "infeasible", None)
