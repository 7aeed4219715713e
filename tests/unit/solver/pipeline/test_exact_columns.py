"""Machines, streams and waits of a shape."""

from __future__ import annotations

import numpy as np

from solver.pipeline.exact.columns import state_space_of
from solver.pipeline.problem import shape_of
from solver.pipeline.quantise import quantise
from tests.pipelines import budget, cut, pipeline


def test_every_wait_goes_forwards() -> None:
    problem = pipeline(4, 3, hops=[cut(0, 1.0, 1.0, "A"), cut(2, 1.0, 1.0, "A")], ranks=budget(4, 2))
    waits = state_space_of(quantise(shape_of(problem), 0.5).shape).waits
    place = np.empty(2 * 36, dtype=np.int64)
    place[waits.topo] = np.arange(36 + 24)
    assert sorted(waits.topo.tolist()) == list(range(36 + 24)), "operations, then messages of F and B"
    for job in waits.topo:
        for at in range(waits.out_at[job], waits.out_at[job + 1]):
            assert place[waits.out_to[at]] > place[job]
        for at in range(waits.in_at[job], waits.in_at[job + 1]):
            assert place[waits.in_from[at]] < place[job]


def test_room_is_counted_with_the_context_of_waiting_weights() -> None:
    """Budget 2.5: two F and one context of a half; with six contexts nothing more fits."""
    stages = [{"forward_s": 1, "input_grad_s": 1, "weight_grad_s": 1, "activation_bytes": 1.0}] * 2
    problem = pipeline(2, 6, stages=[{**one, "weight_grad_context_bytes": 0.5} for one in stages], ranks=budget(2, 2.5))
    machines = state_space_of(quantise(shape_of(problem), 1.0).shape).machines
    assert machines.capacity[0].tolist() == [2, 2, 1, 1, 0, 0, -1]


def test_two_chunks_on_a_rank_are_relaxed() -> None:
    problem = pipeline(2, 3, chunks=2, ranks=budget(2, 4))
    assert not state_space_of(quantise(shape_of(problem), 0.5).shape).complete


def test_an_own_link_needs_no_machine() -> None:
    state_space = state_space_of(quantise(shape_of(pipeline(4, 3, hops=[cut(1, 1.0, 1.0)])), 0.5).shape)
    assert len(state_space.machines.length) == 4
    assert state_space.complete


def test_links_of_more_than_three_hops_are_relaxed() -> None:
    hops = [cut(at, 1.0, 1.0, "A") for at in range(5)]
    state_space = state_space_of(quantise(shape_of(pipeline(6, 3, hops=hops)), 0.5).shape)
    assert not state_space.complete
    assert [int((count > 0).sum()) for count in state_space.machines.length[6:]] == [3, 2, 3, 2]
