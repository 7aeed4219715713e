"""Robust plans: as good as brute force over all worlds, with a bound that no placement contradicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.errors import InvalidRequest
from models.outcome import Planned
from models.request import PlanRequest
from models.robust import Robust, RobustAnswer
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.scheduling import Schedulers, or_same_order
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.carried_over import no_other
from solver.questions.own_rows import layer_split_of
from solver.questions.robust_bounds import RobustBounds
from solver.questions.row_bounds import PRICED, SCREENED, RowBounds
from solver.questions.scenarios import worlds_of
from solver.questions.searches import changed, with_profile
from solver.search.tasks import placed
from tests.build_request import build_request
from tests.counted import work_clock

CLOSE = 1e-9
FEW = {"tp": [4], "vpp": [1], "micro_batch_sequences": [1], "sharding": ["zero1"], "recompute": ["none"]}
FAR = {"name": "far", "changes": [{"pointer": "/cluster/links/*/latency_s", "value": 0.05}]}
RATE = "/cluster/links/*/capacity_bytes_per_s"
NARROW = {"name": "narrow", "weight": 2.0, "changes": [{"pointer": RATE, "op": "multiply", "value": 0.02}]}
SLOW = {"name": "slow west", "slow_pools": [{"pool": "west-pool", "times": 2.0}]}


def _request(**allowed: Any) -> PlanRequest:
    return with_profile(build_request(
        constraints={"allowed": {**FEW, **allowed}}, options={"time_limit_s": 2.0, "workers": 1, "relative_gap": 0.0}
    ))  # fmt: skip


def _asked(request: PlanRequest, limit_s: float = 8.0, **parts: Any) -> RobustAnswer:
    return ask(_question(request, limit_s, **parts), clock=work_clock())


def _question(request: PlanRequest, limit_s: float = 8.0, **parts: Any) -> Robust:
    return Robust.model_validate({"request": request, "options": {"time_limit_s": limit_s}, **parts})


def test_what_is_shared_out_differently_is_bounded_for_any_layers() -> None:
    """GPUs that are all slower share out layers otherwise, since sending takes as long as before."""
    request = build_request(options={"time_limit_s": 2.0, "workers": 1})
    pools = [{"pool": pool.id, "times": 3.0} for pool in request.cluster.pools]
    question = _question(with_profile(request), scenarios=[{"name": "all slow", "slow_pools": pools}])
    rows = [RowBounds(one.request) for one in worlds_of(question, question.asked)]
    assert len(rows[0]) == len(rows[1])
    apart = np.zeros(len(rows[0]), dtype=np.bool_)
    for one, other in zip(*(layer_split_of(one.context, one.space) for one in rows), strict=True):
        apart |= one != other
    assert apart.any()
    bounds = RobustBounds(rows, lambda times: times.max(axis=0))
    bounds.price(float("inf"), lambda: False)
    for one in rows:
        assert np.all(one.state[apart] == SCREENED)
        assert np.any(one.state[~apart] == PRICED)


def _brute(question: Robust) -> float:
    """The best value over all configurations, their places, and the orders that quick scheduling finds in any world."""
    worlds = worlds_of(question, question.asked)
    contexts = [Context.of(one.request) for one in worlds]
    weights = [one.weight for one in worlds]
    best = float("inf")
    space = enumerate_space(question.asked)
    for row in range(len(space)):
        for candidate in placed(contexts[0], configuration_of(contexts[0], space, row)):
            own = [evaluate(one, candidate, Schedulers(one, lambda: 0.0, lambda: False).quick) for one in contexts]
            for found in own:
                if found is None:
                    continue
                same = or_same_order(found.timings, no_other)
                everywhere = [evaluate(one, candidate, same) for one in contexts]
                if any(one is None for one in everywhere):
                    continue
                times = [one.iteration_s for one in everywhere if one is not None]
                counted = [time_s for time_s, weight in zip(times, weights, strict=True) if weight]
                worst = max(counted)
                mean = sum(time_s * weight for time_s, weight in zip(times, weights, strict=True))
                best = min(best, worst if question.measure == "worst" else mean)
    return best


@pytest.mark.parametrize("measure", ["worst", "expected"])
@pytest.mark.parametrize(
    "scenarios",
    [pytest.param([FAR], marks=pytest.mark.slow), [FAR, NARROW], pytest.param([NARROW], marks=pytest.mark.slow)],
    ids=["far", "far, narrow", "narrow"],
)
def test_no_configuration_does_better_in_all_worlds(measure: str, scenarios: list[Any]) -> None:
    question = _question(_request(pp=[1, 2, 4]), measure=measure, scenarios=scenarios)
    answer, best = ask(question, clock=work_clock()), _brute(question)
    assert answer.value_s is not None
    assert answer.value_s <= best * (1.0 + CLOSE)
    assert answer.lower_bound_s <= best * (1.0 + CLOSE)
    assert answer.lower_bound_s <= answer.value_s


def test_the_value_is_that_of_the_figures_and_the_bound_that_of_the_worlds() -> None:
    for measure in ("worst", "expected"):
        answer = _asked(_request(pp=[1, 2]), measure=measure, scenarios=[FAR, NARROW])
        times = [one.iteration_s for one in answer.figures]
        bounds = [one.lower_bound_s for one in answer.figures]
        weights = [one.weight for one in answer.figures]
        assert sum(weights) == pytest.approx(1.0)
        assert None not in times
        shown = [one for one in times if one is not None]
        mean = sum(a * b for a, b in zip(weights, shown, strict=True))
        assert answer.value_s == pytest.approx(max(shown) if measure == "worst" else mean)
        least = max(bounds) if measure == "worst" else sum(a * b for a, b in zip(weights, bounds, strict=True))
        assert answer.lower_bound_s >= least * (1.0 - CLOSE)
        assert all(a >= b * (1.0 - CLOSE) for a, b in zip(shown, bounds, strict=True))


def test_the_price_is_what_the_request_alone_would_save() -> None:
    request = _request(pp=[1, 2])
    answer = _asked(request, scenarios=[FAR])
    outcome = plan(request, clock=work_clock())
    assert isinstance(outcome, Planned)
    assert answer.least_price_s is not None
    assert answer.most_price_s is not None
    price = (answer.figures[0].iteration_s or 0.0) - outcome.plan.metrics.iteration_s
    assert answer.least_price_s - 1e-6 <= max(price, 0.0) <= answer.most_price_s + 1e-6
    assert answer.request_plan_value_s is None or answer.value_s <= answer.request_plan_value_s * (1.0 + CLOSE)


def test_the_corners_of_ranges_are_worlds() -> None:
    ranges = [{"name": "latency", "pointer": "/cluster/links/*/latency_s", "values": [0.0, 0.02]},
              {"name": "rate", "pointer": "/cluster/links/*/capacity_bytes_per_s", "values": [1e10, 4e11]}]  # fmt: skip
    answer = _asked(_request(pp=[1, 2]), ranges=ranges, with_request=False)
    assert len(answer.figures) == 5
    assert answer.figures[0].weight == 0.0
    assert {one.name for one in answer.figures[1:]} == {
        f"latency {latency}, rate {rate}" for latency in (0.0, 0.02) for rate in (1e10, 4e11)
    }


def test_a_pool_that_straggles_is_slower_in_its_world_alone() -> None:
    request = _request(pp=[1, 2])
    answer = _asked(request, scenarios=[SLOW])
    nominal, slow = answer.figures
    assert slow.lower_bound_s >= nominal.lower_bound_s
    assert slow.iteration_s is not None
    assert nominal.iteration_s is not None
    assert slow.iteration_s >= nominal.iteration_s


def test_a_world_without_a_plan_says_so() -> None:
    nowhere = {"name": "no memory", "changes": [{"pointer": "/cluster/pools/*/gpu/memory_bytes", "value": 1e9}]}
    answer = _asked(_request(pp=[1, 2]), scenarios=[nowhere])
    assert (answer.outcome, answer.value_s) == ("infeasible", None)
    assert answer.figures[1].reasons


def test_a_pool_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidRequest) as raised:
        _asked(_request(), scenarios=[{"name": "x", "slow_pools": [{"pool": "nowhere", "times": 2.0}]}])
    assert raised.value.pointer == "/scenarios/0/slow_pools/0/pool"


def test_a_question_that_is_stopped_keeps_what_it_has() -> None:
    heard: list[RobustAnswer] = []
    answer = ask(
        _question(_request(), scenarios=[FAR]),
        found=heard.append,
        cancelled=lambda: bool(heard) and heard[-1].value_s is not None,
    )
    assert answer.value_s is not None
    assert not answer.complete
    far = answer.figures[1]
    assert (far.status, far.best_s, far.lower_bound_s) == ("planned", far.iteration_s, 0.0), "timed, never searched"


def test_the_bound_is_never_above_a_plan_that_a_longer_question_finds() -> None:
    request = changed(_request(pp=[1, 2, 4]), ())
    short, long = (_asked(request, limit_s, scenarios=[FAR, NARROW, SLOW]) for limit_s in (2.0, 10.0))
    assert long.value_s is not None
    assert short.lower_bound_s <= long.value_s * (1.0 + CLOSE)
    assert short.value_s is None or long.lower_bound_s <= short.value_s * (1.0 + CLOSE)


def test_a_configuration_that_does_not_fit_a_world_has_no_time_there() -> None:
    """Twice the batch takes twice the micro-batches: what was timed with the old ones is no plan of that world."""
    doubled = {"pointer": "/workload/global_batch_sequences", "op": "multiply", "value": 2}
    answer = _asked(_request(pp=[1, 2]), 3.0, scenarios=[{"name": "twice", "changes": [doubled]}])
    own, twice = answer.figures
    assert own.request_plan_s is not None
    assert (twice.status, twice.request_plan_s, answer.plan) == ("planned", None, None)
    assert twice.best_s is not None
    assert twice.lower_bound_s <= twice.best_s
