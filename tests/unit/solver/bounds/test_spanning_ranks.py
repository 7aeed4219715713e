"""The exchanges of two ranks count together only where no way to lie has one rank alone in several groups."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from solver.bounds.cuts import cuts
from solver.bounds.spanning_ranks import PipelineRanks, SpanningRanks
from solver.pipeline.problem import PipelineShape
from tests.build_job import context_of, job

NUM_REPLICAS = 2


def one_may_span(held: tuple[int, ...], num_ranks: int) -> bool:
    """Whether all ranks but one can be whole in groups with so much room, and the last one have a part in two."""
    for whole in itertools.product(range(len(held)), repeat=num_ranks - 1):
        left = np.array(held) - NUM_REPLICAS * np.bincount(whole, minlength=len(held))
        if (left >= 0).all() and (left > 0).sum() > 1:
            return True
    return False


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("num_groups", [2, 3])
def test_two_ranks_exchange_where_none_may_alone(num_groups: int, num_ranks: int) -> None:
    nothing, cut = np.zeros(num_ranks), cuts(context_of(job()))[0]
    shape = PipelineShape.without_links(
        4,
        np.arange(num_ranks),
        np.zeros((3, num_ranks)),
        nothing,
        nothing,
        activation_s=nothing,
        context_s=nothing,
        budget_r=nothing,
    )
    ranks = PipelineRanks(np.zeros(num_ranks, dtype=np.int64), shape, nothing, np.ones(num_ranks), nothing)
    num_both = 0
    for held in itertools.product(range(1, 5), repeat=num_groups):
        if sum(held) < num_ranks * NUM_REPLICAS:
            continue
        over = SpanningRanks(replace(cut, rate_g=np.ones(num_groups)), NUM_REPLICAS, np.array(held)[:, None])
        both = bool((over.least_s(ranks) > 1.0).any())
        assert both == (not one_may_span(held, num_ranks)), held
        num_both += both
    assert num_both or num_ranks < num_groups
