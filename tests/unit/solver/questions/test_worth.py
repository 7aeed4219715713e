"""What more is worth: intervals that longer searches do not contradict, what binds first, distance never clipped."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from models.question_parts import Change
from models.request import PlanRequest
from models.worth import Value, Worth, WorthAnswer
from solver.questions import side_by_side
from solver.questions.ask import ask
from solver.questions.resources import Resource, resources_of
from solver.questions.searches import RunHooks, SearchRuns, changed, with_profile
from solver.questions.side_by_side import SharedGoal, Side, SideComparison
from tests.build_job import FIXED, job
from tests.build_report import build_report_plan
from tests.build_request import build_request, cluster
from tests.build_request import link as link_of
from tests.build_request import pool as pool_of
from tests.counted import work_clock
from tests.unit.solver.questions.intervals import CLOSE, agree

EVERYWHERE = {"allowed": {"tp": [2], "pp": [2], "dp": [8]}}  # 32 GPUs, which only all buildings together have


def _asked(
    limit_s: float, *, of: tuple[str, ...] = ("links",), useful_fraction: float = 1.0, **parts: Any
) -> WorthAnswer:
    options = {"time_limit_s": limit_s, "workers": 1, "relative_gap": 0.0}
    request = build_request(**{"options": options, **parts}).model_dump(mode="json")
    question = Worth.model_validate({"request": request, "of": of, "useful_fraction": useful_fraction,
                                     "options": {"time_limit_s": limit_s}})  # fmt: skip
    return ask(question, clock=work_clock())


def _narrow(capacity_bytes_per_s: float, only: str | None = None) -> dict[str, Any]:
    """The cluster with narrow links, or one of them narrow."""
    hardware = cluster()
    for link in hardware["links"]:
        if only in (None, link["id"]):
            link["capacity_bytes_per_s"] = capacity_bytes_per_s
    return hardware


def test_a_value_is_named_after_a_link_whatever_its_length() -> None:
    hardware = cluster()
    for link in hardware["links"]:
        link["id"] = link["id"].ljust(120, "x")
    names = {value.name for value in _asked(0.5, cluster=hardware).values}
    assert {f"link {link['id']}" for link in hardware["links"]} <= names


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow) for seed in range(40)])
def test_a_long_run_never_contradicts_the_intervals_of_a_short_one(seed: int) -> None:
    random = Random(seed)
    parts: dict[str, Any] = {
        "cluster": _narrow(10.0 ** random.uniform(8, 12)),
        "objective": random.choice(
            [{}, {"kind": "cost_per_token"}, {"kind": "fewest_gpus", "target_iteration_s": 0.4}]
        ),
        "constraints": random.choice([{}, EVERYWHERE, {"max_gpus": 16}, {"pipeline_may_cross_buildings": False}]),
    }
    kinds = ("links", "pools", "limits", "distance")
    short, long = (_asked(limit_s, of=kinds, **parts) for limit_s in (3.0, 8.0))
    others = {value.name: value for value in long.values}
    assert others.keys() == {value.name for value in short.values}
    for value in short.values:
        agree(value.useful, others[value.name].useful)
        small, other = value.small, others[value.name].small
        assert (small is None) == (other is None)
        if small is not None and other is not None:
            agree(small, other)
    assert short.in_one_building is not None
    assert long.in_one_building is not None
    agree(short.in_one_building, long.in_one_building)


def test_the_links_that_bind_come_first_and_their_gain_is_proven() -> None:
    answer = _asked(10.0, cluster=_narrow(1e8), constraints=EVERYWHERE, useful_fraction=99.0)
    first = answer.values[0]
    assert (first.name, first.together, first.useful.verdict) == ("all links", True, "gains")
    assert first.plan_held_s is not None and first.plan_held_s > 0  # noqa: PT018
    _is_ranked(answer.values)


def test_a_small_increase_that_is_the_larger_of_the_two_may_gain_more() -> None:
    request = job(hosts=(1, 1), batch=16, allowed={**FIXED, "dp": [2]}, link={"capacity_bytes_per_s": 1e9})
    document = {"request": request.model_dump(mode="json"), "of": ["links"], "small_fraction": 1.0,
                "useful_fraction": 0.01, "options": {"time_limit_s": 4.0}}  # fmt: skip
    (value,) = ask(Worth.model_validate(document), clock=work_clock()).values
    small, useful = value.small, value.useful
    assert small is not None
    assert None not in (small.least, small.most, useful.most)
    assert small.least <= small.most, "an interval"  # type: ignore[operator]
    assert small.most > useful.most  # type: ignore[operator]


@pytest.mark.parametrize("fraction", [0.1, 1.0, 99.0])
@pytest.mark.parametrize("price_s_per_gb", [0.0, 1e-6, 6.25e-4, 10.0])
def test_a_wider_link_saves_no_more_than_transfers_are_exposed(price_s_per_gb: float, fraction: float) -> None:
    plan = build_report_plan()
    loads = tuple(
        load.model_copy(
            update={"flows": tuple(one.model_copy(update={"price_s_per_gb": price_s_per_gb}) for one in load.flows)}
        )
        for load in plan.link_loads
    )
    links = tuple(load.link for load in loads)
    saved_s = Resource("link", "all", "", None, links=links).saved_s(
        plan.model_copy(update={"link_loads": loads}), fraction
    )
    assert saved_s is not None
    assert 0.0 <= saved_s <= plan.time.pipeline_s + plan.time.data_parallel_s
    assert (saved_s > 0.0) == (price_s_per_gb > 0.0)


def test_hosts_that_save_a_building_are_worth_more_than_links() -> None:
    answer = _asked(8.0, of=("links", "pools"), cluster=_narrow(1e8), constraints=EVERYWHERE)
    assert answer.values[0].kind == "hosts", "32 GPUs then fit into one building"
    assert answer.values[0].useful.verdict == "gains"
    _is_ranked(answer.values)


def _is_ranked(values: tuple[Value, ...]) -> None:
    proven = [value.useful.least or 0.0 for value in values]
    assert proven == sorted(proven, reverse=True)


def test_more_gains_nothing_at_worst_and_a_little_no_more_than_much() -> None:
    answer = _asked(8.0, of=("links", "pools", "limits"), constraints={"max_gpus": 16})
    for value in answer.values:
        assert value.useful.least is not None and value.useful.least >= 0.0  # noqa: PT018
        if value.small is not None and value.small.most is not None and value.useful.most is not None:
            assert value.small.most <= value.useful.most * (1.0 + CLOSE)


def test_what_is_given_up_without_a_difference_changes_nothing() -> None:
    answer = _asked(1.5, of=("limits",), constraints={"memory_headroom_fraction": 0.0, "allowed": {"tp": [2]}})
    assert [value.name for value in answer.values] == ["constraints.allowed.tp"]
    one_building = {**cluster(), "pools": cluster()["pools"][:1], "places": cluster()["places"][:2], "links": []}
    near = _asked(1.5, of=("distance",), cluster=one_building).in_one_building
    assert near is not None
    assert (near.verdict, near.least, near.most) == ("changes nothing", 0.0, 0.0)


def test_the_cost_of_distance_is_the_interval_of_two_searches() -> None:
    answer = _asked(8.0, of=("distance",), cluster=_narrow(1e8), constraints=EVERYWHERE)
    near = answer.in_one_building
    assert near is not None
    assert (near.direction, near.verdict) == (None, "gains")
    assert None not in (answer.value, answer.lower_bound, near.value, near.lower_bound)
    assert near.least == pytest.approx(answer.lower_bound - near.value)  # type: ignore[operator]
    assert near.most == pytest.approx(answer.value - near.lower_bound)  # type: ignore[operator]
    assert near.plan is not None
    assert near.plan.crossing == "none"


def test_every_increase_fits_the_request() -> None:
    request = build_request(constraints={"max_gpus": 16, "forbidden_places": ["north"], "pins": [
        {"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "east"}]})  # fmt: skip
    for one in resources_of(request, ("links", "pools", "limits")):
        assert changed(request, one.given_up or one.larger(1.0)) != request  # type: ignore[misc]
        if one.larger is not None:
            assert changed(request, one.larger(0.01)) != request


def test_a_question_that_is_stopped_keeps_what_it_has() -> None:
    heard: list[WorthAnswer] = []
    question = Worth.model_validate({"request": build_request(), "of": ["links"]})
    answer = ask(question, found=heard.append, cancelled=lambda: bool(heard) and heard[-1].value is not None)
    assert answer.value is not None
    assert not answer.complete
    assert {value.useful.status for value in answer.values} == {"not_tried"}


def test_rounding_alone_leaves_no_world_open() -> None:
    exact = build_request(options={"relative_gap": 0.0})
    assert Side(value=1.0, bound=1.0 - 1e-12).is_closed(exact)
    assert not Side(value=1.0, bound=0.999).is_closed(exact)


def test_what_a_request_may_state_no_more_of_is_left_out() -> None:
    of_all = {value.name for value in _asked(0.5).values}
    widest = {value.name for value in _asked(0.5, cluster=_narrow(9e17, "east-north")).values}
    assert widest < of_all


def test_an_unusual_degree_given_up_does_not_bound_the_plans_that_have_it() -> None:
    """Seven ranks for 32 layers are only looked at where they are asked for: the larger world does not have them."""
    places = [{"id": name, "level": "building"} for name in ("east", "west")]
    pool = {"gpu": "H100-SXM-80G", "gpus_per_host": 1, "nic_bytes_per_s": 5e10}
    pools = [{**pool, "id": name, "place": name, "num_hosts": hosts} for name, hosts in (("east", 9), ("west", 16))]
    link = {"id": "ew", "from_place": "east", "to_place": "west", "capacity_bytes_per_s": 1e11, "latency_s": 1e-3}
    request = {
        "workload": {"architecture": "llama-3.1-8b", "sequence_length": 8192, "global_batch_sequences": 64},
        "cluster": {"name": "two", "places": places, "pools": pools, "links": [link]},
        "constraints": {"allowed": {"pp": [7]}},
        "options": {"time_limit_s": 3.0, "workers": 1},
    }
    base = with_profile(PlanRequest.model_validate(request))
    question = Worth.model_validate({"request": request, "options": {"time_limit_s": 60.0}})
    runs = SearchRuns(base, RunHooks.of(question, lambda: False, work_clock()))
    compared = SideComparison(runs, SharedGoal.of([base]))
    compared.plan_base(6.0, lambda: None)
    assert compared.base.value is not None
    beyond = 2.0 * compared.base.value
    free = changed(base, [Change(pointer="/constraints/allowed/pp", op="remove")])
    own = compared.bound_of_less(base, free, beyond)
    assert own is not None
    assert own <= compared.base.value, "all its configurations are its own"
    wider = changed(base, [Change(pointer="/cluster/links/ew/capacity_bytes_per_s", value=2e11)])
    assert compared.bound_of_less(base, wider, beyond) == beyond, "none is"


def test_no_plan_is_carried_over_that_takes_longer_than_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_s, clock, paused = 20.0, work_clock(), []

    def slowly(*_: Any, **__: Any) -> None:
        paused.append(4.0)
        clock.charge(4.0)

    monkeypatch.setattr(side_by_side, "carried_over", slowly)
    request = build_request(options={"time_limit_s": 2.0, "workers": 1}, cluster=_narrow(1e9)).model_dump(mode="json")
    question = Worth.model_validate(
        {"request": request, "of": ["links", "pools"], "options": {"time_limit_s": limit_s}}
    )
    answer = ask(question, clock=clock)
    assert sum(paused) >= 8.0, "it was tried"
    assert answer.elapsed_s <= limit_s + 1.0, "less than a plan that is carried over takes"


def test_dual_prices_promise_no_more_than_is_proven_possible() -> None:
    """A link that paces the messages of a plan: twice as wide, they are hidden before all of their price is saved."""
    places = [{"id": name, "level": "building"} for name in ("x", "y")]
    hardware = {
        "name": "two",
        "places": places,
        "pools": [pool_of("x", 1), pool_of("y", 1)],
        "links": [link_of("wide", "x", "y", latency_s=5e-3, capacity_bytes_per_s=4e9)],
    }
    allowed = {"tp": [4], "cp": [1], "pp": [2], "dp": [2], "vpp": [1], "micro_batch_sequences": [1, 2]}
    options = {"time_limit_s": 3.0, "workers": 1, "reproducible": True}
    request = build_request(cluster=hardware, constraints={"allowed": allowed}, options=options)
    answer = ask(Worth(request=request, of=("links",), options={"time_limit_s": 4.0}), clock=work_clock())
    assert isinstance(answer, WorthAnswer)
    value = answer.values[0]
    assert value.useful.most is not None
    assert value.plan_held_s is not None
    assert 0.0 < value.plan_held_s <= value.useful.most
