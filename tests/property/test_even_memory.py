"""Memory of even pipelines in columns against the stages of one configuration after another."""

from __future__ import annotations

import numpy as np
import pytest

from solver.bounds.bounded import ROUNDING
from solver.bounds.even_memory import RankMemory, ranks_in_memory
from solver.configurations.enumerate import EVEN, Space, enumerate_space
from solver.configurations.pricing import Shares, StageCosts
from solver.configurations.stages import pool_stages
from solver.context import Context
from solver.evaluation.candidate import configuration_of
from tests.build_job import context_of
from tests.property.test_plan_bounds import request_of

CASES = ("little memory", "three types")


def spare_bytes(context: Context, space: Space, row: int, gpu: str) -> list[float]:
    """What every rank of a row has left on a type of GPU once it holds one micro-batch."""
    configuration = configuration_of(context, space, row)
    pool = next(one for one in context.pools if one.gpu.name == gpu)
    stages, limit = pool_stages(context, pool, configuration), context.memory_limit_bytes(pool.gpu)
    held = np.zeros(configuration.degrees.pp)
    for stage, rank in enumerate(configuration.rank_of_stages):
        held[rank] += stages.cost.activation_bytes[stage]
    return [limit - float(stages.static.total_bytes[rank]) - float(held[rank]) for rank in range(len(held))]


@pytest.mark.parametrize("name", CASES)
def test_as_many_ranks_fit_as_are_counted_or_fewer(name: str) -> None:
    context = context_of(request_of(name))
    space, random = enumerate_space(context.request), np.random.default_rng(2)
    even = space.take(np.flatnonzero(space.layer_split == EVEN))
    some = even.take(random.choice(len(even), size=80, replace=False))
    prices = [StageCosts(context, gpu_class, some.columns) for gpu_class in context.gpu_classes.values()]
    shares = Shares.of(prices[0], some.family)
    counted_equal, lacking = 0, 0
    for price in prices:
        limit = context.memory_limit_bytes(price.gpu_class.gpu)
        most, memory = ranks_in_memory([price], shares), RankMemory.of([price], shares)
        for row in range(len(some)):
            spare = spare_bytes(context, some, row, price.gpu_class.gpu.name)
            num_fit = sum(one >= -ROUNDING * limit for one in spare)
            assert num_fit <= most[row]
            counted_equal += num_fit == most[row]
            assert memory.fits[row] or num_fit < len(spare)
            lacking += num_fit < len(spare)
            place = [spare[0], spare[min(1, len(spare) - 1)], spare[max(len(spare) - 2, 0)], spare[-1]]
            assert memory.need_bytes[row] == pytest.approx(limit - min(place))
    assert lacking > 0
    assert counted_equal > 0.9 * len(some) * len(prices)
