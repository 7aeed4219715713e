"""What a search remembers of an evaluation: routes share what is equal, and no times of single operations are kept."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from models.request import PlanRequest
from solver.configurations.enumerate import BY_GPU_TYPE, enumerate_space
from solver.evaluation.by_type import typed_placements
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.scheduling import portfolio_timing
from tests.build_job import context_of, job

NUM_BUILDINGS = 24
MOST_ORDER_BYTES_PER_OPERATION = 16  # an order names each once on its rank; some have messages


def evaluated(batch: int) -> Evaluation:
    """Loops of 4 ranks, every rank over 6 buildings or so of one of two GPU types."""
    allowed = {"tp": [8], "cp": [1], "pp": [4], "dp": [24], "vpp": [4], "micro_batch_sequences": [1]}
    document = job(hosts=(3, 3, 5, 5) * (NUM_BUILDINGS // 4), batch=batch, allowed=allowed).model_dump(mode="json")
    for number, pool in enumerate(document["cluster"]["pools"]):
        pool["gpu"] = ("H100-SXM-80G", "B200-SXM")[number % 2]
    context = context_of(PlanRequest.model_validate(document))
    space = enumerate_space(context.request)
    row = int(np.flatnonzero(space.layer_split == BY_GPU_TYPE)[0])
    candidate = next(typed_placements(context, configuration_of(context, space, row)))
    found = evaluate(context, candidate, lambda problem: portfolio_timing(problem, ("greedy",)))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def found() -> Evaluation:
    return evaluated(24 * 16)


def test_routes_share_equal_hops(found: Evaluation) -> None:
    hops = [hop for one in found.timed for hop in one.way.problem.hops]
    assert len(found.timed) > 10
    assert len({id(hop) for hop in hops}) == len(set(hops)) < len(hops)


def test_routes_share_the_delays_inside_places(found: Evaluation) -> None:
    inside = [hop for delays in found.hops for hop in delays if hop.link is None]
    assert len({id(hop) for hop in inside}) == len(set(inside)) < len(inside) / 2


def test_more_micro_batches_add_their_places_in_the_orders_alone(found: Evaluation) -> None:
    twice = evaluated(24 * 32)
    added = sum(one.num_operations for one in twice.problems) - sum(one.num_operations for one in found.problems)
    grown_bytes = len(pickle.dumps(twice)) - len(pickle.dumps(found))
    assert len(twice.timed) == len(found.timed)
    assert grown_bytes < MOST_ORDER_BYTES_PER_OPERATION * added
