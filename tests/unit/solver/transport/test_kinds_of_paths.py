"""What joins two pools is one fact for search and judge: full rate inside a place, a stream where a link is TCP."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from models.transport import Connection
from solver.planner import plan
from solver.verify.judge import judge

CARD = 5e10
DEGREES = {"tp": [8], "cp": [1], "vpp": [1]}


def request_of(pools: dict[str, tuple[str, str]], links: list[dict[str, Any]], **allowed: list[int]) -> PlanRequest:
    """Llama 8B on one host a pool; `pools` are GPU type and place by name, places are buildings of one region."""
    buildings = sorted({place for _, place in pools.values()} | {one["from_place"] for one in links})
    return PlanRequest.model_validate(
        {
            "workload": {"architecture": "llama-3.1-8b", "sequence_length": 4096, "global_batch_sequences": 16},
            "cluster": {
                "name": "kinds of paths",
                "places": [{"id": "r", "level": "region"}]
                + [{"id": one, "level": "building", "parent": "r"} for one in buildings],
                "pools": [
                    {"id": name, "place": place, "gpu": gpu, "num_hosts": 1, "nic_bytes_per_s": CARD}
                    for name, (gpu, place) in pools.items()
                ],
                "links": links,
            },
            "constraints": {"allowed": {**DEGREES, **allowed}},
            "options": {"time_limit_s": 5, "workers": 1, "reproducible": True},
        }
    )


def chain(**kinds: dict[str, Any]) -> list[dict[str, Any]]:
    """Links from one building to the next, named by their ends."""
    return [
        {
            "id": ends,
            "from_place": ends[0],
            "to_place": ends[1],
            "capacity_bytes_per_s": 1e11,
            "latency_s": 1e-3,
            **kind,
        }
        for ends, kind in kinds.items()
    ]


def planned(request: PlanRequest) -> Plan:
    outcome = plan(request, clock=lambda: 0.0)  # counted work alone ends it
    assert isinstance(outcome, Planned), outcome
    assert judge(request, outcome.plan).violations == ()
    return outcome.plan


@pytest.mark.parametrize("pp", [2, 4])
def test_pools_of_one_place_pass_messages_as_one_pool_does(pp):
    """A pool split in pieces is the same cluster: each rank on a piece of its own, or two ranks on each."""
    apart = planned(request_of({f"p{n}": ("H100-SXM-80G", "a") for n in range(pp)}, [], pp=[pp], dp=[1]))
    request = request_of({"p": ("H100-SXM-80G", "a")}, [], pp=[pp], dp=[1]).model_dump(mode="json")
    request["cluster"]["pools"][0]["num_hosts"] = pp
    assert apart.metrics.iteration_s == pytest.approx(planned(PlanRequest.model_validate(request)).metrics.iteration_s)


def test_two_gpu_types_of_one_place_make_a_pipeline():
    pools = {"new": ("B200-SXM", "a"), "old": ("H100-SXM-80G", "a")}
    found = planned(request_of(pools, [], pp=[2], dp=[1]))
    assert {pool for route in found.placement.routes for pool in route.pools} == {"new", "old"}
    assert [one.tier for one in found.transport if one.dimension == "pp"] == ["building"]
    assert not found.message_transports


def test_a_path_with_one_tcp_link_is_a_stream_from_end_to_end():
    ends = {"one": ("H100-SXM-80G", "a"), "other": ("H100-SXM-80G", "c")}
    for one, other in itertools.product(("roce", "infiniband", "tcp"), repeat=2):
        links = chain(ab={"technology": one}, bc={"technology": other})
        for degrees in ({"pp": [2], "dp": [1]}, {"pp": [1], "dp": [2]}):
            across = connections(planned(request_of(ends, links, **degrees)))
            assert {kind.reliability == "tcp" for kind in across.values()} == {"tcp" in (one, other)}


def connections(found: Plan) -> dict[tuple[str, str], Connection]:
    """Of messages by pools, of exchanges by the places of the narrowest step of every kind."""
    messages = {(one.from_pool, one.to_pool): one.connection for one in found.message_transports}
    rings = {(one.from_place, one.to_place): one.connection for ring in found.exchange_rings for one in ring.transports}
    return messages | rings


@pytest.mark.parametrize("degrees", [{"pp": [4], "dp": [1]}, {"pp": [1], "dp": [4]}])
def test_every_kind_of_path_has_its_own_transport(degrees):
    """Streams on one link and queue pairs on the next, sprayed where receivers reorder: each pair of places its own."""
    kinds = {
        "ab": {"technology": "tcp"},
        "bc": {"planes": 8, "load_balancing": ["spray"], "out_of_order_receivers": True, "loss_probability": 1e-4},
        "cd": {"planes": 8, "load_balancing": ["ecmp"], "loss_probability": 1e-5},
    }
    found = planned(request_of({f"p{one}": ("H100-SXM-80G", one) for one in "abcd"}, chain(**kinds), **degrees))
    by_pair = {(one[-1], other[-1]): kind for (one, other), kind in connections(found).items()}
    assert {kind.reliability == "tcp" for pair, kind in by_pair.items() if "a" in pair} == {True}
    assert {kind.reliability == "tcp" for pair, kind in by_pair.items() if "a" not in pair} == {False}
    assert all(kind.load_balancing != "spray" for pair, kind in by_pair.items() if "d" in pair)


def test_loss_costs_an_exchange_time():
    pools = {"one": ("H100-SXM-80G", "a"), "other": ("H100-SXM-80G", "b")}
    times = [
        planned(request_of(pools, chain(ab={"loss_probability": loss}), pp=[1], dp=[2])).exchanges[0].shared_s
        for loss in (0.0, 1e-5, 1e-4, 1e-3)
    ]
    assert times == sorted(times)
    assert times[-1] > 1.1 * times[0]
