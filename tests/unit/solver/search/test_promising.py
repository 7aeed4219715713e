"""What is worth improving: the best placement, and others by the bound of their own pipelines."""

from __future__ import annotations

import pytest

from models.request import PlanRequest
from solver.configurations.enumerate import BY_GPU_TYPE, enumerate_space
from solver.context import Context
from solver.evaluation.by_type import typed_placements
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.scheduling import Schedulers
from solver.objective import Goal
from solver.search.incumbent import Incumbent
from solver.search.promising import Promising, placement_of
from tests.build_job import context_of, job

NUM_RANKS = 4


@pytest.fixture(scope="module")
def context() -> Context:
    """Two hosts each of two GPU types in two buildings: loops of four ranks, two of them on each type."""
    allowed = {"tp": [4], "cp": [1], "pp": [NUM_RANKS], "dp": [2], "vpp": [2], "micro_batch_sequences": [1]}
    document = job(hosts=(2, 2), batch=16, allowed={**allowed, "layer_split": ["by_gpu_type"]}).model_dump(mode="json")
    for pool, gpu in zip(document["cluster"]["pools"], ("H100-SXM-80G", "B200-SXM"), strict=True):
        pool["gpu"] = gpu
    return context_of(PlanRequest.model_validate(document))


@pytest.fixture(scope="module")
def found(context: Context) -> list[Evaluation]:
    """All placements of the loops and V-shaped pipelines, with quick schedules."""
    schedulers, space = Schedulers(context, lambda: 0.0, lambda: False), enumerate_space(context.request)
    assert set(space.layer_split.tolist()) == {BY_GPU_TYPE}
    candidates = [
        one for row in range(len(space)) for one in typed_placements(context, configuration_of(context, space, row))
    ]
    return [one for candidate in candidates if (one := evaluate(context, candidate, schedulers.quick)) is not None]


@pytest.fixture
def promising(context: Context, found: list[Evaluation]) -> Promising:
    every = Promising(Incumbent(context, Goal.of(context)), lambda: 0.0)
    for one in found:
        every.add(one, one.iteration_s)
    return every


def test_each_placement_has_its_turn_once_the_best_and_then_the_most_promising(promising: Promising) -> None:
    first = promising.take(2)
    others = promising.take(1000)
    places = [placement_of(one.candidate) for one in first + others]
    assert len(set(places)) == len(places)
    assert promising.take(1) == []
    assert first[0].iteration_s == min(one.iteration_s for one in first + others)
    likely = [
        bound_s + 0.25 * (one.iteration_s - bound_s)
        for one in first[1:] + others
        if (bound_s := one.pipeline_bound_s + one.optimizer_s)
    ]
    assert likely == sorted(likely)


def test_the_best_of_some_placements_come_first(promising: Promising) -> None:
    some = promising.take(5)
    times_s = [one.iteration_s for one in promising.best_of(some, 3)]
    assert times_s == sorted(one.iteration_s for one in some)[:3]


def test_what_the_judge_rejected_is_forgotten(promising: Promising) -> None:
    (first,) = promising.take(1)
    promising.drop(first)
    assert promising.best_of([first], 1) == []


def test_one_placement_of_each_shape_is_reordered_and_once(promising: Promising) -> None:
    chosen = promising.take_to_reorder(1000)
    shapes = [placement_of(one.candidate)[0] for one in chosen]
    assert len(shapes) == len(set(shapes)) > 1
    assert promising.take_to_reorder(1000) == []
