"""Frontiers against every configuration by itself: no plan is missed, none is dominated, no bound is above a plan."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from app.exporters.answer_table import answer_table
from app.exporters.report.answer_picture import answer_picture
from models.least import Frontier, FrontierAnswer
from models.outcome import Planned
from models.plan import Plan
from solver.clock import Clock
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.candidate import configuration_of
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.searches import changed, with_profile
from solver.questions.spending import kwh_per_million_tokens, usd_per_million_tokens
from solver.questions.wishes import put
from tests.build_job import FIXED, job
from tests.build_request import build_request, cluster
from tests.counted import work_clock

CLOSE = 1e-6
WATTS = {"test-gpu": 700.0}
NARROW = {"allowed": {"tp": [1, 2], "micro_batch_sequences": [1], "vpp": [1], "sharding": ["zero1"],
                      "recompute": ["none"], "family": ["one_way"], "layer_split": ["even"]}}  # fmt: skip


def small_request(**parts: Any) -> dict[str, Any]:
    """One building of 16 GPUs, few configurations."""
    alone = {**cluster(), "pools": cluster()["pools"][:1], "places": cluster()["places"][:2], "links": []}
    options = {"workers": 1, "relative_gap": 0.0, "time_limit_s": 20.0}
    return build_request(**{"cluster": alone, "constraints": NARROW, "options": options, **parts}).model_dump(
        mode="json"
    )


def _asked(
    request: dict[str, Any], limit_s: float, against: list[str], clock: Clock | None = None, **parts: Any
) -> FrontierAnswer:
    document = {"request": request, "against": against, "max_points": 12, "watts_of_gpu": WATTS, "slowest_times": 100.0,
                "options": {"time_limit_s": limit_s}, **parts}  # fmt: skip
    return ask(Frontier.model_validate(document), clock=clock or work_clock())


ALONE_S = 2.0  # counted; three configurations take all that they are given, and 20 s find no better plan of any


FEW = {"tp": (2,), "cp": (1,), "pp": (1, 2, 4)}  # nine configurations of 2, 4, 8 and 16 GPUs


def with_batch(batch: int, *, few: bool = False) -> dict[str, Any]:
    """The small request with so many sequences, and with few of its configurations alone where asked."""
    request = small_request(constraints={"allowed": {**NARROW["allowed"], **(FEW if few else {})}})
    request["workload"]["global_batch_sequences"] = batch
    return request


@cache
def enumerated(batch: int, *, few: bool = False) -> tuple[Plan, ...]:
    """The best plan of every configuration of the small request, each planned by itself."""
    request = with_batch(batch, few=few)
    request["options"]["time_limit_s"] = ALONE_S
    base = with_profile(build_request(**request))
    context, found = Context.of(base), []
    space = enumerate_space(base)
    for row in range(len(space)):
        one = configuration_of(context, space, row)
        alone = changed(base, [put(f"/constraints/allowed/{name}", [value])
                               for name, value in dict(one.degrees).items()])  # fmt: skip
        outcome = plan(alone, clock=work_clock())
        if isinstance(outcome, Planned):
            found.append(outcome.plan)
    return tuple(found)


SPENT = {
    "gpus": lambda _, one: float(one.metrics.num_gpus),
    "money": lambda base, one: usd_per_million_tokens(base, one),
    "energy": lambda base, one: kwh_per_million_tokens(base, one, WATTS),
    "bytes": lambda _, one: one.metrics.cross_building_bytes,
}
FIELD = {"gpus": "num_gpus", "money": "usd_per_million_tokens", "energy": "kwh_per_million_tokens",
         "bytes": "cross_building_bytes"}  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "few", "limit_s"),
    [
        (8, True, 30.0),
        *(pytest.param(batch, False, limit_s, marks=pytest.mark.slow)
          for batch, limit_s in ((8, 150.0), (12, 300.0), (6, 450.0))),
    ],
)  # fmt: skip
def test_the_frontier_is_that_of_every_configuration_by_itself(batch: int, few: bool, limit_s: float) -> None:
    """With counted seconds, of which small searches take several in one of processor."""
    request = with_batch(batch, few=few)
    base, every = build_request(**request), enumerated(batch, few=few)
    assert len({one.metrics.num_gpus for one in every}) > 3, "there is something to choose from"
    answer = _asked(request, limit_s, ["gpus", "money", "energy"], work_clock())
    for found in answer.frontiers:
        spent = [(one.metrics.iteration_s, SPENT[found.against](base, one)) for one in every]
        told = [(point.iteration_s, getattr(point, FIELD[found.against])) for point in found.points]
        for time_s, amount in spent:
            assert any(t <= time_s * (1 + CLOSE) and a <= amount * (1 + CLOSE) for t, a in told), found.against
        for number, (time_s, amount) in enumerate(told):
            others = told[:number] + told[number + 1 :]
            assert not any(t <= time_s and a <= amount for t, a in others), "none is dominated"
        _bounds_hold(found.points, found.limited, spent)


def _bounds_hold(points: Any, limited: str, spent: list[tuple[float, float]]) -> None:
    """Of the plans that take no more of what is limited, none has less than the bound of what is minimised."""
    for point in points:
        if point.lower_bound is None:
            continue
        for time_s, amount in spent:
            minimised, taken = (amount, time_s) if limited == "iteration_s" else (time_s, amount)
            if taken <= point.limit:
                assert minimised >= point.lower_bound * (1 - CLOSE)


def test_bytes_between_buildings_are_traded_for_time() -> None:
    everywhere = {"constraints": {}, "cluster": cluster()}
    answer = _asked(small_request(**everywhere), 4.0, ["bytes"], max_points=4)
    (found,) = answer.frontiers
    assert found.limited == "bytes"
    sent = [point.cross_building_bytes for point in found.points]
    assert sent == sorted(sent, reverse=True)
    assert sent[-1] == 0.0, "one building sends nothing"
    table = answer_table(answer)
    assert table is not None
    assert len(table.splitlines()) == 1 + len(found.points)
    picture = answer_picture(answer)
    assert picture is not None
    assert picture.count("<circle") == len(found.points)


def test_a_wish_that_all_gpus_be_used_is_given_up_against_gpus_alone() -> None:
    """Three quarters of the GPUs lie in one building; the rest is behind a link that is no use."""
    allowed = {**FIXED, "pp": [1, 2, 6], "sharding": ["zero1"]}
    request = job(hosts=(3, 1), batch=12, pool={"gpus_per_host": 4}, allowed=allowed,
                  link={"capacity_bytes_per_s": 1e8}, constraints={"use_all_gpus": True})  # fmt: skip
    against = {one.against: one for one in _asked(request.model_dump(mode="json"), 20.0, ["gpus", "bytes"]).frontiers}
    assert min(point.num_gpus for point in against["gpus"].points) == 2
    for points in (against["gpus"].points, against["bytes"].points):
        assert all((point.lower_bound or 0.0) <= point.iteration_s * (1.0 + CLOSE) for point in points)
    assert against["gpus"].points[0].iteration_s < against["bytes"].points[0].iteration_s, "as replicas of four GPUs"


def slow_gpus_at(price: float | None) -> dict[str, Any]:
    """A small request beside whose GPUs, at a cent an hour, there are others of half the speed."""
    request = small_request()
    priced = request["cluster"]["pools"][0]
    slower = {"bf16_flops_per_s": 0.5 * priced["gpu"]["bf16_flops_per_s"], "usd_per_gpu_hour": price}
    others = {**priced, "id": "others", "gpu": {**priced["gpu"], "name": "other", **slower}}
    priced["gpu"]["usd_per_gpu_hour"] = 0.01
    request["cluster"]["pools"].append(others)
    request["constraints"]["max_gpus"] = 8
    return request


def test_where_not_all_prices_are_stated_every_plan_is_counted_in_gpu_hours() -> None:
    """Also one that uses priced GPUs alone: its dollars are no match for the bound of the others."""
    request = slow_gpus_at(None)
    (found,) = _asked(request, 6.0, ["money"], max_points=3).frontiers
    assert "a GPU-hour costs 1" in found.detail
    assert found.points
    tokens = build_request(**request).workload.tokens_per_iteration
    for one in found.points:
        gpu_hours = one.num_gpus * one.iteration_s / 3600.0 * 1e6 / tokens
        assert one.usd_per_million_tokens is None
        assert 0.0 < (one.lower_bound or 0.0) <= gpu_hours * (1.0 + CLOSE)
        assert one.relative_gap == pytest.approx(1.0 - (one.lower_bound or 0.0) / gpu_hours)


def test_gpus_that_cost_nothing_are_the_cheap_end() -> None:
    (found,) = _asked(slow_gpus_at(0.0), 6.0, ["money"], max_points=3).frontiers
    assert not found.detail
    fastest, cheapest = found.points[0], found.points[-1]
    assert fastest.iteration_s < cheapest.iteration_s
    assert (fastest.usd_per_million_tokens or 0.0) > 0.0
    assert cheapest.usd_per_million_tokens == 0.0


def test_a_power_that_is_not_known_is_asked_for() -> None:
    (found,) = _asked(small_request(), 3.0, ["energy"], watts_of_gpu={}).frontiers
    assert not found.points
    assert "test-gpu" in found.detail


@pytest.mark.parametrize(("stated", "asked", "watts"), [(500.0, {}, 500.0), (500.0, WATTS, 700.0)])
def test_the_power_is_that_of_the_type_unless_the_question_states_one(
    stated: float, asked: dict[str, float], watts: float
) -> None:
    request = small_request()
    request["cluster"]["pools"][0]["gpu"]["board_power_w"] = stated
    (found,) = _asked(request, 3.0, ["energy"], watts_of_gpu=asked, max_points=2).frontiers
    tokens = build_request(**request).workload.tokens_per_iteration
    for one in found.points:
        kwh = one.num_gpus * one.iteration_s / 3600.0 * watts / 1e3 / tokens * 1e6
        assert one.kwh_per_million_tokens == pytest.approx(kwh)
    assert found.points


def test_a_question_that_is_stopped_keeps_what_it_has() -> None:
    heard: list[FrontierAnswer] = []
    question = Frontier.model_validate({"request": small_request(), "against": ["gpus"], "watts_of_gpu": WATTS})
    answer = ask(question, found=heard.append, cancelled=lambda: len(heard) >= 2)
    assert answer.frontiers[0].points
    assert not answer.complete
