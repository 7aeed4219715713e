"""The trace tells the plan truly and obeys the format: named tracks, slices that nest, memory that returns to zero."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from app.exporters.chrome_trace import chrome_trace, memory_over_time
from models.request import PlanRequest
from tests.unit.app.fake_solver import PROBLEM, SCHEDULE, tiny_plan
from tests.unit.models.bad_requests import good_request


def _events(**kinds: Any) -> list[dict[str, Any]]:
    request = PlanRequest.model_validate(good_request())
    events: list[dict[str, Any]] = json.loads(chrome_trace(tiny_plan(2.0, ("east-z1", "west-z1")), request))[
        "traceEvents"
    ]
    return [one for one in events if all(one.get(key) == value for key, value in kinds.items())]


def test_a_process_is_a_building_when_the_request_is_known() -> None:
    names = {one["args"]["name"] for one in _events(ph="M", name="process_name")}
    assert names == {"building east", "building west", "transfers"}


def test_a_process_is_the_place_without_the_request() -> None:
    events = json.loads(chrome_trace(tiny_plan(2.0, ("east-z1", "west-z1"))))["traceEvents"]
    names = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert "building east-z1" in names


def test_every_operation_and_transfer_is_a_slice_with_its_times() -> None:
    slices = {(one["name"], one["cat"]): (one["ts"], one["dur"]) for one in _events(ph="X")}
    assert len(slices) == 12 + 2
    assert slices["1F0", "F"] == (1.5e6, 1.0e6)
    assert slices["0F1", "transfer"] == (2.0e6, 0.5e6)


def test_slices_of_a_track_never_overlap() -> None:
    tracks = defaultdict(list)
    for one in _events(ph="X"):
        tracks[one["pid"], one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
    for spans in tracks.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


def test_every_track_is_named() -> None:
    named = {(one["pid"], one["tid"]) for one in _events(ph="M", name="thread_name")}
    assert {(one["pid"], one["tid"]) for one in _events(ph="X")} == named


def test_memory_is_held_from_forward_to_input_gradient() -> None:
    first_rank = memory_over_time(SCHEDULE.ranks[0], PROBLEM)
    assert first_rank[:4] == [(0.0, 8.0), (1.0, 16.0), (5.0, 8.0), (6.0, 8.0)]
    assert max(held for _, held in first_rank) == SCHEDULE.ranks[0].peak_memory_bytes
    assert first_rank[-1][1] == 0.0


@pytest.mark.parametrize("rank", [0, 1])
def test_memory_is_a_counter_per_rank(rank: int) -> None:
    assert _events(ph="C", name=f"activation memory r0 rank {rank}")
