"""Ranks on slower GPU types: the least pipeline of every choice of them, and no more than that."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from solver.bounds import mixed_pipelines
from solver.bounds.mixed_pipelines import MixedPipelines
from solver.pipeline.bounds import makespan_bound
from solver.pipeline.problem import PipelineShape, shape_of
from tests.pipelines import budget, pipeline

FAR = 1e9


def drawn(seed: int, apart_s: float = 0.0) -> MixedPipelines:
    """3 to 5 ranks with 1 to 3 chunks; slower types take up to 1.5 times as long and have a third of the memory."""
    random = np.random.default_rng(seed)
    num_ranks, chunks = int(random.integers(3, 6)), int(random.integers(1, 4))
    num_stages = num_ranks * chunks
    layout = "loop" if chunks > 1 else "one_way"
    stages = [
        {"forward_s": time_s, "input_grad_s": time_s, "weight_grad_s": time_s, "activation_bytes": 1.0}
        for time_s in random.uniform(1.0, 1.3, num_stages)
    ]
    memory = float(chunks * random.uniform(2.0, 6.0))
    least = shape_of(pipeline(num_ranks, 8, layout=layout, stages=stages, ranks=budget(num_ranks, memory)))
    slower = random.uniform(1.0, 1.5, num_ranks)[least.rank_of_s]
    slow = replace(least, duration_ks=least.duration_ks * slower, budget_r=least.budget_r / 3.0)
    on_slow, on_fast = (slow, slow.budget_r >= chunks), (least, np.ones(num_ranks, dtype=np.bool_))
    num_slow = int(random.integers(1, num_ranks))
    return MixedPipelines(least, on_slow, on_fast, num_slow, update_s=0.5, apart_s=apart_s)


def on(mixed: MixedPipelines, slow_r: tuple[int, ...]) -> PipelineShape:
    """With these ranks on slower types."""
    least, (slow, _) = mixed.least, mixed.slow
    at_r = np.isin(np.arange(least.num_ranks), slow_r)
    at_s = at_r[least.rank_of_s]
    between_s = np.where(np.append(at_s[:-1] != at_s[1:], False), mixed.apart_s, 0.0)
    return replace(
        least,
        latency_s=np.maximum(least.latency_s, between_s),
        duration_ks=np.where(at_s, slow.duration_ks, least.duration_ks),
        budget_r=np.where(at_r, slow.budget_r, least.budget_r),
    )


def least_of_all_s(mixed: MixedPipelines) -> float:
    """Every choice of so many ranks or more, one after the other (seconds)."""
    num_ranks, (_, fits_r) = mixed.least.num_ranks, mixed.slow
    chosen = [
        ranks for number in range(mixed.num_slow, num_ranks + 1) for ranks in combinations(range(num_ranks), number)
    ]
    ends_s = (makespan_bound(on(mixed, slow_r)) if fits_r[list(slow_r)].all() else np.inf for slow_r in chosen)
    return float(min(ends_s)) + mixed.update_s


@pytest.mark.parametrize("apart_s", [0.0, 0.4, 3.0])
@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_least_of_all_choices(seed: int, apart_s: float) -> None:
    mixed = drawn(seed, apart_s)
    expected_s = min(least_of_all_s(mixed), FAR)
    assert mixed.least_s(0.0, FAR, time.monotonic) == pytest.approx(expected_s, rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_with_few_pipelines_it_is_less_but_not_below_what_was_known(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = drawn(seed)
    least_s, known_s = least_of_all_s(mixed), makespan_bound(mixed.least)
    monkeypatch.setattr(mixed_pipelines, "MOST_PIPELINES", 2)
    assert known_s <= mixed.least_s(known_s, FAR, time.monotonic) <= least_s * (1 + 1e-9)


def test_beyond_what_matters_nothing_is_worked_out() -> None:
    mixed = drawn(0)
    high_s = 1.01 * makespan_bound(mixed.least)
    assert mixed.least_s(high_s, high_s, time.monotonic) == high_s


def test_ranks_without_memory_for_a_micro_batch_are_on_no_slower_type() -> None:
    mixed = drawn(0)
    none = replace(mixed, slow=(mixed.slow[0], np.zeros(mixed.least.num_ranks, dtype=np.bool_)))
    assert none.least_s(0.0, FAR, time.monotonic) == FAR
