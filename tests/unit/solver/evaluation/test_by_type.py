"""Placements by GPU type: ranks of a type in few buildings each."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
import pytest

from models.plan import Configuration
from models.request import PlanRequest
from solver.bounds.kind_costs import kinds_by_name
from solver.bounds.typed_pipelines import PartitionPipelines
from solver.configurations.enumerate import BY_GPU_TYPE, enumerate_space
from solver.context import Context
from solver.evaluation.by_type import (
    ALL_PATTERNS,
    TypedPattern,
    best_partitioned,
    memory_first_placements,
    typed_placements,
)
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import portfolio_timing
from solver.search.tasks import PATTERNS
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
    return [{route.pools[rank] for route in candidate.routes} for rank in range(candidate.configuration.degrees.pp)]


def test_ranks_in_parts_are_in_fewer_buildings(context: Context) -> None:
    wide, parted = placed(context, "types")[0], placed(context, "types_in_parts")[0]
    assert sum(map(len, pools_of_ranks(parted))) < sum(map(len, pools_of_ranks(wide)))


def test_parts_hold_every_replica_of_their_ranks_on_one_type(context: Context) -> None:
    for candidate in placed(context, "types_in_parts"):
        assert sum(route.num_replicas for route in candidate.routes) == 4
        for pools in pools_of_ranks(candidate):
            assert len({context.pools[pool].gpu.name for pool in pools}) == 1


def test_few_micro_batches_get_the_layers_that_the_way_of_one_needs() -> None:
    """Where one micro-batch goes through all ranks, balanced work is not the fastest."""
    allowed = {"tp": [8], "cp": [1], "pp": [2], "dp": [4], "vpp": [1], "micro_batch_sequences": [1]}
    document = job(hosts=(4, 4), batch=4, allowed=allowed).model_dump(mode="json")
    for pool, gpu in zip(document["cluster"]["pools"], ("A100-SXM-80G", "B200-SXM"), strict=True):
        pool["gpu"] = gpu
    context = context_of(PlanRequest.model_validate(document))
    space = enumerate_space(context.request)
    row = int(np.flatnonzero(space.layer_split == BY_GPU_TYPE)[0])
    configuration = configuration_of(context, space, row)

    def times(candidates: Iterable[Candidate]) -> list[float]:
        found = (evaluate(context, one, lambda problem: portfolio_timing(problem, ("greedy",))) for one in candidates)
        return [one.iteration_s for one in found if one is not None]

    balanced_s = min(times(typed_placements(context, configuration)))
    partitioned = list(best_partitioned(context, configuration, 2.0 * balanced_s, time.monotonic))
    assert min(times(partitioned)) < 0.99 * balanced_s
    assert all(sum(one.configuration.layers_per_stage or ()) == context.job.num_layers for one in partitioned)
    assert list(best_partitioned(context, configuration, float("inf"), time.monotonic)) == []


def even_pipeline(gpus: tuple[str, str], *, family: str, microbatch_sequences: int) -> tuple[Context, Configuration]:
    """Four ranks with even layers, eight replicas, in two buildings that are both needed, of unequal size."""
    allowed = {"tp": [4], "cp": [1], "pp": [4], "dp": [8], "vpp": [2], "family": [family], "layer_split": ["even"]}
    allowed |= {"micro_batch_sequences": [microbatch_sequences], "recompute": ["none"]}
    document = job(hosts=(9, 8), batch=2048, allowed=allowed).model_dump(mode="json")
    for pool, gpu in zip(document["cluster"]["pools"], gpus, strict=True):
        pool["gpu"] = gpu
    context = context_of(PlanRequest.model_validate(document))
    return context, configuration_of(context, enumerate_space(context.request), 0)


def test_ranks_that_hold_most_are_where_memory_is() -> None:
    context, configuration = even_pipeline(("H100-SXM-80G", "H200-SXM-141G"), family="loop", microbatch_sequences=32)
    found = next(memory_first_placements(context, configuration))
    assert pools_of_ranks(found) == [{1}, {1}, {0}, {0}]

    def time_s(candidate: Candidate) -> float:
        timed = evaluate(context, candidate, lambda problem: portfolio_timing(problem, ("greedy", "interleaved")))
        return float("inf") if timed is None else timed.iteration_s

    usual = placements(context, configuration, PATTERNS)
    assert time_s(found) < 0.95 * min(map(time_s, usual))


@pytest.mark.parametrize(
    ("gpus", "family", "microbatch_sequences"),
    [
        (("H100-SXM-80G", "A100-SXM-80G"), "loop", 32),
        (("H100-SXM-80G", "H200-SXM-141G"), "v", 32),
        (("H100-SXM-80G", "H200-SXM-141G"), "loop", 1),
    ],
    ids=["same memory", "equally long", "memory for all"],
)
def test_memory_comes_first_only_where_it_matters(
    gpus: tuple[str, str], family: str, microbatch_sequences: int
) -> None:
    context, configuration = even_pipeline(gpus, family=family, microbatch_sequences=microbatch_sequences)
    assert list(memory_first_placements(context, configuration)) == []


def test_types_that_hold_no_whole_rank_have_no_placement(context: Context) -> None:
    """Every island alone holds too few of the ranks."""
    space = enumerate_space(context.request)
    row = int(np.flatnonzero(space.layer_split == BY_GPU_TYPE)[0])
    configuration = configuration_of(context, space, row)
    many = configuration.degrees.model_copy(update={"dp": 64})
    assert list(typed_placements(context, configuration.model_copy(update={"degrees": many}))) == []


def test_placements_whose_pipelines_have_the_least_bounds_are_timed() -> None:
    """Ranks of two types in two regions: in every order of types and regions, the least bounds first."""
    allowed = {"tp": [4], "cp": [1], "pp": [8], "dp": [2], "vpp": [1], "micro_batch_sequences": [1]}
    document = job(hosts=(2, 2, 2, 2), batch=8, allowed=allowed).model_dump(mode="json")
    for pool, gpu in zip(document["cluster"]["pools"], ("A100-SXM-80G", "B200-SXM") * 2, strict=True):
        pool["gpu"] = gpu
    context = context_of(PlanRequest.model_validate(document))
    space = enumerate_space(context.request)
    row = int(np.flatnonzero(space.layer_split == BY_GPU_TYPE)[0])
    configuration = configuration_of(context, space, row)
    pipelines = PartitionPipelines.of(context, [configuration])
    kinds = kinds_by_name(pipelines.gpus)

    def bound_s(candidate: Candidate) -> float:
        own = candidate.configuration
        layers_r = tuple(sum(own.layers_per_stage[stage] for stage in own.stages_of_rank(rank)) for rank in range(8))
        return pipelines.bound_s((tuple(kinds[gpu] for gpu in candidate.gpu_types(context)), layers_r), np.inf)

    timed = list(typed_placements(context, configuration))
    alone = [one for pattern in ALL_PATTERNS for one in typed_placements(context, configuration, (pattern,))]
    assert len({bound_s(one) for one in alone}) > 1, "there is something to choose from"
    assert min(map(bound_s, timed)) == min(map(bound_s, alone))
    assert list(map(bound_s, timed)) == sorted(map(bound_s, timed))
