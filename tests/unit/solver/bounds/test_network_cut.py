"""What distance costs at least: nothing where a building holds the job, else the cheaper of exchanges and messages."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from models.catalogue import named_entry
from models.request import PlanRequest
from solver.bounds import network_cut
from solver.bounds.cuts import cuts
from solver.bounds.leaving_messages import LeavingMessages
from solver.bounds.work import lower_bounds
from solver.configurations.enumerate import Space, enumerate_space
from solver.context import Context
from solver.cost.columns import ZERO1
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import portfolio_timing
from solver.placement.capacity_groups import bundles_by_row
from solver.search.tasks import PATTERNS
from tests.build_job import FIXED, context_of, job

FAR: dict[str, Any] = {"capacity_bytes_per_s": 1e10, "latency_s": 5e-2}


def bound_of(dp: int, link: dict[str, Any], **request: Any) -> float:
    """Least bound over the shardings of one configuration of 4 ranks and tp 2 on two buildings of 32 GPUs."""
    context = context_of(job(allowed={**FIXED, "dp": [dp], "sharding": ["zero1"]}, link=link, **request))
    bounds = lower_bounds(context, enumerate_space(context.request))
    return float(bounds.iteration_s.min())


def test_a_job_that_fits_into_one_building_has_no_distance() -> None:
    near: dict[str, Any] = {"capacity_bytes_per_s": 1e13, "latency_s": 1e-6}
    assert bound_of(4, FAR) == bound_of(4, near)


@pytest.mark.parametrize(("name", "values"), [("latency_s", (1e-6, 1e-2, 5e-2)), ("capacity_bytes_per_s", (1e13, 1e9))])
def test_the_farther_and_thinner_the_more(name: str, values: tuple[float, ...]) -> None:
    found = [bound_of(8, {**FAR, name: value}) for value in values]
    assert all(after >= before for before, after in itertools.pairwise(found))
    assert found[-1] > found[0]


def test_it_is_the_cheaper_of_exchanges_and_messages() -> None:
    """Messages double with the batch, gradients do not: they take over where the batch is large."""
    thin = {"capacity_bytes_per_s": 5e9, "latency_s": 0.0}
    found = [bound_of(8, thin, batch=batch) for batch in (128, 256, 512, 1024)]
    more = [after - before for before, after in itertools.pairwise(found)]
    assert more[1] == pytest.approx(2.0 * more[0])
    assert more[2] < 1.5 * more[1]


WIDE: dict[str, Any] = {"capacity_bytes_per_s": 1e14, "latency_s": 1e-3}


@pytest.mark.parametrize("num_buildings", [2, 3])
@pytest.mark.parametrize("num_microbatches", [4, 8])
def test_thin_links_rest_before_the_first_message_and_after_the_last(
    num_buildings: int, num_microbatches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = {**FIXED, "pp": [2 * num_buildings], "dp": [2], "sharding": ["zero1"]}
    link = {"capacity_bytes_per_s": 1e9, "latency_s": 5e-3}
    hosts = (1,) * num_buildings
    context = context_of(job(hosts=hosts, batch=2 * num_microbatches, allowed=allowed, link=link))
    space = enumerate_space(context.request)
    (bound_s,) = lower_bounds(context, space).iteration_s
    candidates = placements(context, configuration_of(context, space, 0), PATTERNS)
    timed = [evaluate(context, one, lambda problem: portfolio_timing(problem, None)) for one in candidates]
    assert bound_s <= min(one.iteration_s for one in timed if one is not None)
    monkeypatch.setattr(network_cut, "beside_messages_s", lambda price, _: np.zeros(len(price.columns)))
    assert lower_bounds(context, space).iteration_s < bound_s - 0.01


@pytest.mark.parametrize("batch", [256, 1024])
def test_replicas_that_do_not_cross_exchange_in_as_many_places_as_they_need(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four buildings with room for one replica each, or for one rank of all replicas."""
    link = {"capacity_bytes_per_s": 1e9, "latency_s": 1e-3}
    allowed = {**FIXED, "pp": [4], "dp": [4], "sharding": ["zero1"]}
    context = context_of(job(hosts=(1,) * 4, batch=batch, allowed=allowed, link=link))
    space = enumerate_space(context.request)
    bounds_s = lower_bounds(context, space).iteration_s
    for row, bound_s in enumerate(bounds_s):
        configuration = configuration_of(context, space, row)
        candidates = placements(context, configuration, PATTERNS)
        timed = [evaluate(context, one, lambda problem: portfolio_timing(problem, None)) for one in candidates]
        assert bound_s <= min(one.iteration_s for one in timed if one is not None)
    monkeypatch.setattr(LeavingMessages, "groups_for_all", property(lambda one: np.ones_like(one.columns.dp)))
    assert (lower_bounds(context, space).iteration_s < 0.95 * bounds_s).all()


def test_slow_cards_count_where_links_are_wide() -> None:
    found = [bound_of(8, WIDE, pool={"nic_bytes_per_s": rate}) for rate in (5e10, 5e9, 5e8)]
    assert found[0] < found[1] < found[2]


def test_a_connection_has_no_more_than_its_planes() -> None:
    """With plain ECMP each has one of them, with a flow per queue pair they all have all."""
    one, all_of_them = (
        bound_of(
            8, {"capacity_bytes_per_s": 2e11, "latency_s": 1e-3, "planes": 256, "load_balancing": [method]}, batch=512
        )
        for method in ("ecmp", "ecmp_qp_scaling")
    )
    assert one > all_of_them


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ({"capacity_bytes_per_s": 1e14}, 5e10),
        ({"capacity_bytes_per_s": 3.2e11, "planes": 32, "load_balancing": ["ecmp"]}, 1e10),
        ({"capacity_bytes_per_s": 1e14, "technology": "tcp", "latency_s": 0.1}, 64 * 4 * 2**20 / 0.2),
        ({"capacity_bytes_per_s": 1e14, "latency_s": 0.1}, 2**31 / 0.2),
    ],
)
def test_a_connection_has_a_card_planes_and_a_window(link: dict[str, Any], expected: float) -> None:
    context = context_of(job(link={"latency_s": 1e-4, **link}))
    (cut,) = cuts(context)
    card = 5e10 * context.stack.scale_out_efficiency.value
    assert cut.limits.exchange_bytes_per_s == pytest.approx(min(expected, card))


def test_borders_are_those_of_places_buildings_and_regions() -> None:
    places: list[dict[str, Any]] = [{"id": f"r{r}", "level": "region"} for r in range(2)]
    places += [{"id": f"b{b}", "level": "building", "parent": f"r{b // 2}"} for b in range(4)]
    places += [{"id": f"z{z}", "level": "zone", "parent": f"b{z // 2}"} for z in range(8)]
    pools = [
        {"id": f"p{z}", "place": f"z{z}", "gpu": "H100-SXM-80G", "num_hosts": 1, "nic_bytes_per_s": 5e10}
        for z in range(8)
    ]
    links = [
        {"id": "l", "from_place": "r0", "to_place": "r1", "capacity_bytes_per_s": 1e11, "latency_s": 1e-2},
    ]
    request = job(allowed={})
    cluster = {"name": "regions", "places": places, "pools": pools, "links": links}
    context = context_of(type(request).model_validate({**request.model_dump(), "cluster": cluster}))
    found = list(cuts(context))
    assert [len(one.rate_g) for one in found] == [8, 4, 2]
    assert found[-1].nearest_s == pytest.approx(1e-2)
    assert found[-1].exchange_rates.tolist() == [np.inf, np.inf, pytest.approx(1e11)]


def test_portions_and_the_whole_give_the_same_bounds() -> None:
    context = context_of(job(allowed={}, link=FAR))
    space = enumerate_space(context.request)
    rows = np.arange(0, len(space), max(len(space) // 500, 1))
    whole = _seconds(context, space.take(rows))
    parts = [_seconds(context, space.take(some)) for some in np.array_split(rows, 7)]
    assert np.allclose(np.concatenate(parts), whole, rtol=1e-12)


def _seconds(context: Context, space: Space) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return lower_bounds(context, space).iteration_s


@pytest.mark.parametrize(("together", "held"), [(1, [6, 7]), (2, [6, 6]), (4, [4, 4]), (5, [5, 5]), (8, [0, 0])])
def test_places_hold_only_what_shares_them_whole(together: int, held: list[int]) -> None:
    context = context_of(job(hosts=(6, 7)))
    one = np.array([1])
    assert bundles_by_row(context.request.cluster.pools, (0, 1), 8 * one, one, together * one).tolist() == [held]


def test_a_configuration_without_a_placement_has_an_endless_bound() -> None:
    request = PlanRequest.model_validate(named_entry("examples", "mixtral-five-zones"))
    context = context_of(request)
    space = enumerate_space(request)
    one = space.columns
    full = np.flatnonzero(
        (one.num_gpus == 1280) & (one.pp == 16) & (one.cp == 4) & (one.ep == 8) & (one.sharding == ZERO1)
    )
    some = space.take(full[:: max(len(full) // 24, 1)])
    bounds_s = lower_bounds(context, some).iteration_s
    for row, bound_s in enumerate(bounds_s.tolist()):
        if bound_s == np.inf:
            configuration = configuration_of(context, some, row)
            assert not list(placements(context, configuration, ("replicas_whole", "in_order", "priced")))
    assert 0 < np.isinf(bounds_s).sum() < len(bounds_s)
