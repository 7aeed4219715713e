"""No bound exceeds the exact optimum of a small pipeline: every order of ranks and links is tried, none is left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.schedule import PipelineProblem, PipelineRank, layout_placement
from solver.pipeline.bounds import last_ends, makespan_bound, span_bound
from solver.pipeline.portfolio import candidates
from solver.pipeline.problem import Floats, Ints, PipelineOrder, PipelineShape, shape_of
from solver.pipeline.simulate import (
    BrokenOrderError,
    PipelineReplay,
    channel_messages,
    peak_memory_bytes,
    replay_shape,
)
from tests.pipelines import cut


def merges(streams: list[list[int]]) -> Iterator[list[int]]:
    """Every way to shuffle the streams that keeps each in its own order."""
    if not any(streams):
        yield []
    for at, one in enumerate(streams):
        if one:
            rest = [*streams[:at], one[1:], *streams[at + 1 :]]
            yield from ([one[0], *more] for more in merges(rest))


def rank_orders(shape: PipelineShape, rank: int) -> list[Ints]:
    """Orders of a rank in which each F comes before its B, each B before its W, and memory fits."""
    m, orders = shape.num_microbatches, []
    streams = [
        [shape.operation_id(kind, int(stage), j) for j in range(m)]
        for stage in np.flatnonzero(shape.rank_of_s == rank)
        for kind in range(shape.num_kinds)
    ]
    for merged in merges(streams):
        place = {operation: at for at, operation in enumerate(merged)}
        later = shape.num_stages * m
        in_turn = all(place[one] < place.get(one + later, len(merged)) for one in merged)
        order = np.array(merged, dtype=np.int64)
        if in_turn and peak_memory_bytes(shape, order) <= shape.budget_r[rank] * (1 + 1e-9):
            orders.append(order)
    return orders


def channel_orders(shape: PipelineShape) -> list[list[Ints]]:
    """Orders of every channel: messages of one hop and direction stay in order, exchanges come anywhere."""
    m = shape.num_microbatches
    choices = []
    for messages in channel_messages(shape):
        streams: dict[int, list[int]] = {}
        for one in messages.tolist():
            streams.setdefault(one // m if one < shape.num_operations else -one, []).append(one)
        choices.append([np.array(merged, dtype=np.int64) for merged in merges(list(streams.values()))])
    return choices


def last_of_stages(shape: PipelineShape, run: PipelineReplay) -> Floats:
    """End of the last weight gradient of every stage."""
    ends: Floats = run.end.reshape(shape.num_kinds, shape.num_stages, -1)[-1].max(axis=1)
    return ends


def last_of_ranks(shape: PipelineShape, stage_s: Floats) -> Floats:
    """The latest of the stages of every rank."""
    return np.array([stage_s[shape.rank_of_s == rank].max() for rank in range(shape.num_ranks)])


class Optima(NamedTuple):
    """Least makespan, least span, and the least end of the last weight gradient of every stage and of every rank."""

    makespan_s: float
    span_s: float
    stage_s: Floats
    rank_s: Floats


def exact_optima(shape: PipelineShape) -> Optima:
    """The least over all orders at their earliest times."""
    best = [np.array([np.inf])] * 4
    ranks = [rank_orders(shape, rank) for rank in range(shape.num_ranks)]
    for rank_ops in product(*ranks):
        for channel_ops in product(*channel_orders(shape)):
            try:
                run = replay_shape(shape, PipelineOrder(rank_ops, channel_ops))
            except BrokenOrderError:
                continue
            stage_s = last_of_stages(shape, run)
            found = np.array(run.makespan_s), np.array(run.span_s), stage_s, last_of_ranks(shape, stage_s)
            best = list(map(np.minimum, best, found))
    return Optima(float(best[0][0]), float(best[1][0]), best[2], best[3])


TIMES = st.sampled_from([0.0, 0.5, 1.0, 1.75, 4.0])


def stage(draw: st.DrawFn) -> dict[str, float]:
    names = ("forward_s", "input_grad_s", "weight_grad_s")
    memory = {"activation_bytes": 1.0, "weight_grad_context_bytes": draw(st.sampled_from([0.0, 0.5, 1.0, 1.5]))}
    return {**{name: draw(TIMES) for name in names}, **memory}


@st.composite
def small(draw: st.DrawFn) -> PipelineProblem:
    """Two ranks of one stage and two or three micro-batches, three ranks and two, or a V of two and two, fused."""
    ranks, microbatches, chunks = draw(st.sampled_from([(2, 2, 1), (2, 3, 1), (3, 2, 1), (1, 2, 2)]))
    link = draw(st.sampled_from([None, "shared"]))
    hops = [cut(at, draw(TIMES), draw(TIMES), link) for at in range(ranks * chunks - 1)]
    budget = {"activation_budget_bytes": draw(st.sampled_from([None, 1.5, 2.0, 2.5]))}
    if chunks == 2 and budget["activation_budget_bytes"] is not None:
        budget["activation_budget_bytes"] += 1.0
    document: dict[str, Any] = {
        "num_microbatches": microbatches,
        "ranks": [budget] * ranks,
        "layout": "v" if chunks == 2 else "one_way",
        "stages": [stage(draw) for _ in range(ranks * chunks)],
        "hops": hops,
        "backward": "fused" if chunks == 2 else draw(st.sampled_from(["fused", "split_allowed"])),
    }
    return PipelineProblem.model_validate(document)


@settings(max_examples=25, deadline=None)
@given(small())
def test_no_bound_exceeds_the_exact_optimum(problem: PipelineProblem) -> None:
    shape = shape_of(problem)
    optima, (stage_s, rank_s) = exact_optima(shape), last_ends(shape)
    assert np.isfinite(optima.makespan_s)
    assert makespan_bound(shape) <= optima.makespan_s * (1 + 1e-9)
    assert span_bound(shape) <= optima.span_s * (1 + 1e-9)
    assert (stage_s <= optima.stage_s * (1 + 1e-9)).all()
    assert (rank_s <= optima.rank_s * (1 + 1e-9)).all()


@st.composite
def on_shared_channels(draw: st.DrawFn) -> PipelineProblem:
    """Several stages on a rank, messages that take longer than operations, on one link or on one for each boundary."""
    ranks, layout = draw(st.integers(2, 4)), draw(st.sampled_from(["loop", "v"]))
    chunks = 2 if layout == "v" else draw(st.integers(2, 3))
    shared, rank_of = draw(st.booleans()), layout_placement(layout, ranks * chunks, ranks)
    hops = [
        {
            "from_stage": s,
            "to_stage": s + 1,
            "latency_s": draw(st.integers(0, 4)),
            "transfer_s": draw(st.integers(0, 9)),
        }
        | {"link": "far" if shared else f"link {min(here, there)}"}
        for s, (here, there) in enumerate(itertools.pairwise(rank_of))
        if here != there
    ]
    stages = [stage(draw) for _ in rank_of]
    held = [
        sum(
            max(one["activation_bytes"], one["weight_grad_context_bytes"])
            for one, at in zip(stages, rank_of, strict=True)
            if at == r
        )
        for r in range(ranks)
    ]
    document = {
        "num_microbatches": draw(st.integers(2, 6)),
        "ranks": [
            {"activation_budget_bytes": max(one, 1.0) * draw(st.sampled_from([1.0, 1.5, 3.0, 9.0]))} for one in held
        ],
        "layout": layout,
        "stages": stages,
        "hops": hops,
        "backward": draw(st.sampled_from(["fused", "split_allowed"])),
    }
    return PipelineProblem.model_validate(document)


@settings(max_examples=60, deadline=None)
@given(on_shared_channels(), st.sampled_from(["makespan", "span"]))
def test_no_bound_exceeds_a_schedule_on_shared_channels(problem: PipelineProblem, objective: str) -> None:
    shape = shape_of(problem)
    bound_s = makespan_bound(shape) if objective == "makespan" else span_bound(shape)
    found, (least_s, least_r) = list(candidates(shape, objective)), last_ends(shape)
    assert bound_s <= min((one.value_s for one in found), default=np.inf) * (1 + 1e-9)
    for one in found:
        stage_s = last_of_stages(shape, replay_shape(shape, one.order))
        assert (least_s <= stage_s * (1 + 1e-9)).all()
        assert (least_r <= last_of_ranks(shape, stage_s) * (1 + 1e-9)).all()


def test_the_bound_is_the_optimum_where_everything_is_forced() -> None:
    """One micro-batch at a time on two ranks: F, F, B, B with the hop twice, W at the end, three times over."""
    stages = [{"forward_s": 1, "input_grad_s": 1, "weight_grad_s": 0, "activation_bytes": 1}] * 2
    problem = PipelineProblem.model_validate(
        {
            "num_microbatches": 3,
            "ranks": [{"activation_budget_bytes": 1.0}] * 2,
            "stages": stages,
            "hops": [cut(0, 2.0)],
        }
    )
    shape = shape_of(problem)
    assert exact_optima(shape)[0] == pytest.approx(24.0)
    assert makespan_bound(shape) == pytest.approx(24.0)


def test_a_rank_whose_memory_is_full_waits_for_its_first_backward() -> None:
    """Eight forwards fit; the first B is there after twelve forwards and three B: 7 s pass, 64 s of work are left."""
    stage = {"forward_s": 1, "input_grad_s": 1, "weight_grad_s": 1, "activation_bytes": 1}
    tight = PipelineProblem.model_validate(
        {
            "num_microbatches": 8,
            "layout": "loop",
            "ranks": [{"activation_budget_bytes": 8}] * 4,
            "stages": [stage | {"weight_grad_context_bytes": 1}] * 12,
        }
    )
    roomy = tight.model_copy(update={"ranks": tuple(PipelineRank() for _ in range(4))})
    assert makespan_bound(shape_of(tight)) == pytest.approx(15.0 + 64.0)
    assert makespan_bound(shape_of(roomy)) == pytest.approx(75.0)
