"""What is worth improving: placements by the bound of their own pipelines, loops with their GPU types moved along."""

from __future__ import annotations

import pytest

from models.plan import Proof
from models.request import PlanRequest
from models.statements import PROVEN
from solver.bounds.work import speed_of_light_s
from solver.configurations.enumerate import BY_GPU_TYPE, enumerate_space
from solver.context import Context
from solver.evaluation.by_type import may_rotate, rotated, typed_placements
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.report import plan_of
from solver.evaluation.scheduling import Schedulers
from solver.objective import Goal
from solver.search.incumbent import Incumbent
from solver.search.promising import Promising, placement_of
from solver.verify.judge import judge
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


def test_each_placement_has_its_turn_once_the_most_promising_first(promising: Promising) -> None:
    first = promising.take(1)
    others = promising.take(1000)
    places = [placement_of(one.candidate) for one in first + others]
    assert len(set(places)) == len(places)
    assert promising.take(1) == []
    likely = [
        bound_s + 0.25 * (one.iteration_s - bound_s)
        for one in first + others
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


def test_loops_alone_are_rotated(promising: Promising) -> None:
    loops = promising.take_to_rotate(1000)
    assert loops
    assert {one.candidate.configuration.family for one in loops} == {"loop"}


def types_of(context: Context, candidate: Candidate) -> list[str]:
    return [context.pools[pool].gpu.name for pool in candidate.routes[0].pools]


def test_rotations_have_the_same_ranks_in_the_same_order_round_the_loop(
    context: Context, found: list[Evaluation]
) -> None:
    loop = next(one.candidate for one in found if may_rotate(one.candidate))
    types = types_of(context, loop)
    moved = [types_of(context, one) for one in rotated(context, loop)]
    assert len(moved) == NUM_RANKS - 1
    assert all(one == types[shift:] + types[:shift] for shift, one in enumerate(moved, start=1))
    for one in rotated(context, loop):
        assert sum(one.configuration.layers_per_stage) == context.job.num_layers


def test_the_judge_takes_rotations(context: Context, found: list[Evaluation]) -> None:
    schedulers = Schedulers(context, lambda: 0.0, lambda: False)
    loop = next(one for one in found if may_rotate(one.candidate))
    for candidate in rotated(context, loop.candidate):
        timed = evaluate(context, candidate, schedulers.quick)
        assert timed is not None
        least_s = speed_of_light_s(context)
        proof = Proof(
            lower_bound_s=least_s,
            relative_gap=1.0 - least_s / timed.iteration_s,
            status="feasible",
            speed_of_light_s=least_s,
            num_configurations=1,
            num_pruned=0,
            num_explored=1,
            proven=PROVEN["iteration_time"],
        )
        verdict = judge(context.request, plan_of(context, timed, proof))
        assert verdict.accepted, verdict.violations[0]
