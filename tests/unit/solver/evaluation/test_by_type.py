"""Placements by GPU type: ranks of a type in few buildings each."""

from __future__ import annotations

import numpy as np
import pytest

from models.request import PlanRequest
from solver.configurations.enumerate import BY_GPU_TYPE, enumerate_space
from solver.context import Context
from solver.evaluation.by_type import TypedPattern, typed_placements
from solver.evaluation.candidate import Candidate, configuration_of
from tests.build_job import context_of, job

HOSTS = (4, 4, 2, 2, 2, 2, 6, 2)
GPUS = ("H100-SXM-80G", "B200-SXM") * 4


@pytest.fixture(scope="module")
def context() -> Context:
    allowed = {"tp": [8], "cp": [1], "pp": [5], "dp": [4], "vpp": [1], "micro_batch_sequences": [1]}
    document = job(hosts=HOSTS, batch=32, allowed=allowed).model_dump(mode="json")
    for pool, gpu in zip(document["cluster"]["pools"], GPUS, strict=True):
        pool["gpu"] = gpu
    return context_of(PlanRequest.model_validate(document))


def placed(context: Context, pattern: TypedPattern) -> list[Candidate]:
    space = enumerate_space(context.request)
    row = int(np.flatnonzero(space.layer_split == BY_GPU_TYPE)[0])
    return list(typed_placements(context, configuration_of(context, space, row), (pattern,)))


def pools_of_ranks(candidate: Candidate) -> list[set[int]]:
    return [{route.pools[rank] for route in candidate.routes} for rank in range(5)]


def test_ranks_in_parts_are_in_fewer_buildings(context: Context) -> None:
    wide, parted = placed(context, "types")[0], placed(context, "types_in_parts")[0]
    assert sum(map(len, pools_of_ranks(parted))) < sum(map(len, pools_of_ranks(wide)))


def test_parts_hold_every_replica_of_their_ranks_on_one_type(context: Context) -> None:
    for candidate in placed(context, "types_in_parts"):
        assert sum(route.num_replicas for route in candidate.routes) == 4
        for pools in pools_of_ranks(candidate):
            assert len({context.pools[pool].gpu.name for pool in pools}) == 1


def test_types_that_hold_no_whole_rank_have_no_placement(context: Context) -> None:
    """Every island alone holds too few of the ranks."""
    space = enumerate_space(context.request)
    row = int(np.flatnonzero(space.layer_split == BY_GPU_TYPE)[0])
    configuration = configuration_of(context, space, row)
    many = configuration.degrees.model_copy(update={"dp": 64})
    assert list(typed_placements(context, configuration.model_copy(update={"degrees": many}))) == []
