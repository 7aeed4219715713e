"""The bound of even pipelines in columns is not above exact optima or any schedule, and no more than that of one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.first_schedules import quick_schedule
from models.schedule import PipelineProblem
from solver.bounds.even_pipelines_kernel import UNKNOWN, PipelineRows, pipelines_s
from solver.pipeline.bounds import makespan_bound
from solver.pipeline.problem import shape_of
from tests.pipelines import cut
from tests.property.test_bounds import exact_optima

SLACK = 1 + 1e-9
TIMES = (0.5, 1.0, 1.75, 4.0)
TINY = (("one_way", 2, 1, 2), ("one_way", 2, 1, 3), ("one_way", 3, 1, 2), ("v", 1, 2, 2), ("loop", 2, 2, 1))
LARGER = (("one_way", 4, 1, 6), ("v", 3, 2, 4), ("v", 2, 3, 3), ("loop", 4, 2, 2), ("loop", 3, 3, 4), ("loop", 2, 4, 5))


def one_row(random: np.random.Generator, shape: tuple[str, int, int, int], *, fused: bool) -> PipelineRows:
    """One pipeline of this layout, ranks, chunks and micro-batches, with random costs, shares and memory."""
    family, pp, vpp, m = shape
    num_stages = pp * vpp
    first, last, middle = (int(one) for one in random.integers(1, 3, 3))
    more = int(random.integers(0, max(num_stages - 2, 0) + 1))
    num_layers = first if num_stages == 1 else first + last + (num_stages - 2) * middle + more
    parts = random.choice(TIMES, (5, 4))
    parts[4] = np.minimum(parts[4], 2.0 * parts[3])
    if fused:
        parts[2] = parts[4] = 0.0
    held = parts[3].max() * (first + last + middle * num_stages + more + 2)
    budgets = held * random.choice([0.4, 0.7, 1.0, 2.0, np.inf], 4)
    moe_before = np.cumsum([0, *random.integers(0, 2, num_layers)])
    one = np.ones(1, dtype=np.int64)
    cards_s = float(random.choice([0.0, 1.0, 8.0]))
    return PipelineRows(
        num_microbatches=m * one,
        pp=pp * one,
        vpp=vpp * one,
        folded=np.array([family == "v"]),
        looped=np.array([family == "loop"]),
        first=first * one,
        middle=middle * one,
        num_more=more * one,
        moe_before=moe_before,
        part_cqn=parts[..., None],
        budget_qn=budgets[:, None],
        hop_s=np.array([random.choice([0.0, 0.25, 1.0])]),
        exposed_s=np.zeros(1),
        overlap_s=np.zeros(1),
        cards_s=np.array([cards_s]),
        rank_cards_s=np.array([cards_s * vpp]),
    )


def stages_of(row: PipelineRows) -> list[list[float]]:
    """Five costs of every stage, from the first layers of all stages."""
    pp, vpp, num_layers = int(row.pp[0]), int(row.vpp[0]), len(row.moe_before) - 1
    num_stages, more = pp * vpp, int(row.num_more[0])
    sizes = [int(row.first[0])] + [int(row.middle[0])] * max(num_stages - 2, 0)
    for stage in range(num_stages - 1 - more, num_stages - 1):
        sizes[stage] += 1
    starts = [*[0, *itertools.accumulate(sizes)][:num_stages], num_layers]
    found = []
    for stage, (begin, end) in enumerate(itertools.pairwise(starts)):
        moe = int(row.moe_before[end] - row.moe_before[begin])
        counts = [end - begin - moe, moe, stage == 0, stage == num_stages - 1]
        found.append([float(cost @ counts) for cost in row.part_cqn[..., 0]])
    return found


def problem_of(row: PipelineRows, *, fused: bool, crossed: tuple[int, ...] = (), crossing_s: float = 0.0) -> Any:
    """The same as a pipeline, with exchanges on a link of each rank, and `crossing_s` more on some boundaries; None
    where a rank has no room. Ranks whose budgets the row does not have get infinite ones.
    """
    pp, vpp = int(row.pp[0]), int(row.vpp[0])
    layout = "v" if row.folded[0] else "loop" if row.looped[0] else "one_way"
    ranks = [s % (2 * pp) if s % (2 * pp) < pp else 2 * pp - 1 - s % (2 * pp) for s in range(pp * vpp)]
    ranks = ranks if layout == "v" else [s % pp for s in range(pp * vpp)]
    place = {pp - 2: 2, 1: 1, pp - 1: 3, 0: 0}  # as the kernel asks: the first rank, the last, the second, the other
    stages, held, hops = [], [0.0] * pp, []
    for stage, costs in enumerate(stages_of(row)):
        names = ("forward_s", "input_grad_s", "weight_grad_s", "activation_bytes", "weight_grad_context_bytes")
        link = {"gradient_sync_s": float(row.cards_s[0]), "gradient_sync_link": f"cards {ranks[stage]}"}
        stages.append(dict(zip(names, costs, strict=True)) | link)
        held[ranks[stage]] += max(costs[3], costs[4])
    for stage, (here, there) in enumerate(itertools.pairwise(ranks)):
        boundary = pp - 1 if layout == "loop" and here == pp - 1 else min(here, there)
        if here != there:
            hops.append(cut(stage, float(row.hop_s[0]) + (crossing_s if boundary in crossed else 0.0)))
    budgets = [float(row.budget_qn[place[rank], 0]) if rank in place else np.inf for rank in range(pp)]
    if any(own > budget for own, budget in zip(held, budgets, strict=True)):
        return None
    return PipelineProblem.model_validate(
        {
            "num_microbatches": int(row.num_microbatches[0]),
            "ranks": [{"activation_budget_bytes": None if np.isinf(one) else one} for one in budgets],
            "layout": layout,
            "stages": stages,
            "hops": hops,
            "backward": "fused" if fused else "split_allowed",
        }
    )


def bound_s(row: PipelineRows, crossing_s: float = 0.0) -> float:
    """The bound of the only row, over two groups where crossing takes longer; exchanges wait as those of one stage."""
    exposed = row._replace(exposed_s=row.cards_s)
    return float(pipelines_s(exposed, np.array([crossing_s]), 2, np.array([UNKNOWN]))[0])


def ways_to_cross(row: PipelineRows) -> list[tuple[int, ...]]:
    """Boundaries that a pipeline over two groups crosses: two of a loop, one of another."""
    pp = int(row.pp[0])
    both = list(itertools.combinations(range(pp), 2))
    return both if row.looped[0] else [(rank,) for rank in range(pp - 1)]


def drawn(shapes: tuple[tuple[str, int, int, int], ...], number: int) -> Iterator[tuple[PipelineRows, bool]]:
    """Rows of these shapes whose ranks have room, and whether their backwards are in one piece."""
    random, found = np.random.default_rng(7), 0
    while found < number:
        shape = shapes[int(random.integers(len(shapes)))]
        fused = shape[0] == "v" or bool(random.random() < 0.5)
        row = one_row(random, shape, fused=fused)
        if problem_of(row, fused=fused) is not None:
            found += 1
            yield row, fused


def test_the_bound_is_not_above_exact_optima_and_reaches_some() -> None:
    """A rank with two exchanges sends none here: `exact_optima` puts them in an order for each direction of a link."""
    ratios = []
    for drawn_row, fused in drawn(TINY, 60):
        row = drawn_row if drawn_row.vpp[0] == 1 else drawn_row._replace(cards_s=np.zeros(1), rank_cards_s=np.zeros(1))
        optimum_s = exact_optima(shape_of(problem_of(row, fused=fused)))[0]
        assert bound_s(row) <= optimum_s * SLACK
        ratios.append(bound_s(row) / optimum_s)
    assert np.mean(np.array(ratios) > 1 - 1e-9) > 0.4


def test_the_bound_is_not_above_any_schedule_wherever_the_pipeline_crosses() -> None:
    ratios = []
    for number, (row, fused) in enumerate(drawn(LARGER, 150)):
        crossing_s = float((number % 3) * row.part_cqn[0, 0, 0])
        ways = ways_to_cross(row) if crossing_s else [()]
        problems = [problem_of(row, fused=fused, crossed=way, crossing_s=crossing_s) for way in ways]
        value_s = min(
            quick_schedule(one, names=("greedy", "greedy_depth_first", "gpipe")).makespan_s for one in problems
        )
        assert bound_s(row, crossing_s) <= value_s * SLACK
        ratios.append(bound_s(row, crossing_s) / value_s)
    assert np.mean(ratios) > 0.85


@pytest.mark.parametrize("counted", ["no memory", "memory"])
def test_the_bound_of_one_pipeline_is_no_less_but_for_memory(counted: str) -> None:
    """With memory it may be: forwards before the first gradient count to the last byte here. One exchange counts."""
    larger = 0
    for row, fused in drawn(LARGER, 120):
        plain = row if counted == "memory" else row._replace(budget_qn=np.full((4, 1), np.inf))
        one_s = makespan_bound(shape_of(problem_of(plain, fused=fused)))
        alone = plain._replace(exposed_s=row.cards_s, cards_s=np.zeros(1), rank_cards_s=np.zeros(1))
        larger += pipelines_s(alone, np.zeros(1), 2, np.array([UNKNOWN]))[0] > one_s * SLACK
    assert larger == 0 if counted == "no memory" else larger < 12


def test_rows_without_delays_keep_what_is_known() -> None:
    for row, _ in drawn(LARGER, 5):
        known = pipelines_s(row, np.zeros(1), 2, np.array([3.5]))
        assert known.tolist() == [3.5]
