"""Layers shared out by what they take: nobody shares them out better."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import Configuration, Degrees
from solver.configurations.by_type import TypeCost, layer_shares
from solver.configurations.layers import share_layers

RANK = st.tuples(st.floats(0.1, 4.0), st.floats(0.0, 5.0), st.integers(0, 2), st.integers(0, 6))


def slowest_s(shares: tuple[int, ...], ranks: list[tuple[float, float, int, int]]) -> float:
    return max(end + count * each for count, (each, end, _, _) in zip(shares, ranks, strict=True))


@given(st.integers(0, 12), st.lists(RANK, min_size=1, max_size=4))
@settings(deadline=None, max_examples=300)
def test_no_other_share_is_quicker(num_layers: int, ranks: list[tuple[float, float, int, int]]) -> None:
    least, most = [one[2] for one in ranks], [one[3] for one in ranks]
    found = share_layers(num_layers, [one[0] for one in ranks], [one[1] for one in ranks], least=least, most=most)
    ways = itertools.product(*(range(low, high + 1) for low, high in zip(least, most, strict=True)))
    times = [slowest_s(way, ranks) for way in ways if sum(way) == num_layers]
    if found is None:
        assert not times
        return
    assert sum(found) == num_layers
    assert all(low <= count <= high for low, count, high in zip(least, found, most, strict=True))
    assert slowest_s(found, ranks) <= min(times) * (1 + 1e-12)


def test_equal_ranks_get_equal_shares_and_the_last_ones_more() -> None:
    assert share_layers(11, (1.0,) * 4, (0.0,) * 4, least=(1,) * 4, most=(11,) * 4) == (2, 3, 3, 3)


def test_fewer_micro_batches_in_flight_leave_memory_for_layers_on_fast_ranks() -> None:
    """Two fast ranks with memory for half of what usual schedules hold there, two slow ones with plenty."""
    fast = TypeCost(
        1.0, 0.0, 0.0, layer_bytes=1.0, first_bytes=0.0, last_bytes=0.0, held_bytes=1.0, capacity_bytes=24.0
    )
    slow = replace(fast, layer_s=3.0, capacity_bytes=1e3)
    configuration = Configuration.model_construct(
        degrees=Degrees(tp=1, cp=1, pp=4, dp=1), family="one_way", micro_batch_sequences=1, num_microbatches=16,
        sharding="zero1", recompute="none",
    )  # fmt: skip
    found = list(layer_shares(configuration, [fast, fast, slow, slow], 24))
    assert [sum(one.layers_per_stage) for one in found] == [24] * len(found)
    assert len(found) > 1
    times = [one.slowest_s for one in found]
    assert times == sorted(times, reverse=True)
    assert found[-1].layers_per_stage[0] > found[0].layers_per_stage[0]
