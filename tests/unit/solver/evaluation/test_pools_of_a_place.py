"""Pools of one place send together what it exchanges with other places, however its GPUs are divided among them."""

from __future__ import annotations

from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.planner import plan
from solver.verify.judge import judge
from tests.build_job import FIXED, job

ALLOWED = {**FIXED, "tp": [8], "pp": [1], "dp": [8], "sharding": ["ddp"]}
CARDS = 2e9  # bytes per second of a card, which paces the exchange


def planned(pools_of_place: list[list[dict[str, Any]]]) -> Plan:
    """Eight replicas on two buildings of four hosts each, which hold these pools."""
    request = job(hosts=(4, 4), batch=32, allowed=ALLOWED, link={"capacity_bytes_per_s": 1e13},
                  options={"reproducible": True, "time_limit_s": 3.0})  # fmt: skip
    document = request.model_dump(mode="json")
    document["cluster"]["pools"] = [
        {**pool, **own, "id": f"{pool['id']}-{number}"}
        for pool, parts in zip(document["cluster"]["pools"], pools_of_place, strict=True)
        for number, own in enumerate(parts)
    ]
    read = PlanRequest.model_validate(document)
    outcome = plan(read)
    assert isinstance(outcome, Planned)
    assert judge(read, outcome.plan).accepted
    return outcome.plan


def pool(num_hosts: int, nic_bytes_per_s: float = CARDS) -> dict[str, Any]:
    """What is said of a pool of so many hosts."""
    return {"num_hosts": num_hosts, "nic_bytes_per_s": nic_bytes_per_s}


WHOLE = [[pool(4)], [pool(4)]]


@pytest.mark.parametrize(
    "divided",
    [[[pool(2), pool(2)], [pool(4)]], [[pool(2), pool(2)], [pool(1), pool(3)]], [[pool(1)] * 4, [pool(1)] * 4]],
)
def test_a_pool_divided_exchanges_as_the_whole(divided: list[list[dict[str, Any]]]) -> None:
    whole, parts = planned(WHOLE), planned(divided)
    (one,), (other,) = whole.exchanges, parts.exchanges
    assert other.shared_s == pytest.approx(one.shared_s)
    assert parts.metrics.iteration_s == pytest.approx(whole.metrics.iteration_s)


def test_the_slowest_cards_of_a_place_pace_all_of_it() -> None:
    (slow,) = planned([[pool(4, CARDS / 4)], [pool(4)]]).exchanges
    (mixed,) = planned([[pool(3), pool(1, CARDS / 4)], [pool(4)]]).exchanges
    assert mixed.shared_s == pytest.approx(slow.shared_s)
