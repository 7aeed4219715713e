"""Each constraint family alone, on instances one can solve by hand: feasible, violated, and at the boundary."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from ortools.sat.python import cp_model

from models.schedule import PipelineProblem
from solver.pipeline.cpsat.families import FAMILIES
from solver.pipeline.cpsat.families.data import add_data
from solver.pipeline.cpsat.families.exclusive import add_links, add_ranks
from solver.pipeline.cpsat.families.memory import add_memory
from solver.pipeline.cpsat.families.order import add_microbatch_order
from solver.pipeline.cpsat.families.value import add_value
from solver.pipeline.cpsat.variables import Instance, Key, Vars, create
from solver.pipeline.problem import shape_of
from solver.pipeline.quantise import quantise
from tests.pipelines import budget, cut, pipeline

Family = Callable[[cp_model.CpModel, Instance, Vars], None]


def instance_of(problem: PipelineProblem, horizon: int = 60) -> Instance:
    return Instance(quantise(shape_of(problem), 1.0), horizon, 0, problem.objective)


def feasible(family: Family, problem: PipelineProblem, fixed: Mapping[Key, int], messages: Mapping[Key, int]) -> bool:
    instance = instance_of(problem)
    model = cp_model.CpModel()
    v = create(model, instance)
    family(model, instance, v)
    for key, value in fixed.items():
        model.add(v.start_ksj[key] == value)
    for key, value in messages.items():
        model.add(v.message_ksj[key] == value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


F, B, W = 0, 1, 2


@pytest.mark.parametrize(("backward_at", "expected"), [(8, True), (5, True), (4, False)])
def test_data_arrives_after_the_latency(backward_at: int, expected: bool) -> None:
    """F0 ends at 1 and arrives at 2, F1 and B1 end at 4, and the gradient arrives at 5."""
    problem = pipeline(2, 1, hops=[cut(0, 1.0)])
    assert feasible(add_data, problem, {(F, 0, 0): 0, (B, 0, 0): backward_at}, {}) is expected


@pytest.mark.parametrize(("second", "expected"), [(2, True), (1, True)])
def test_micro_batches_keep_their_order(second: int, expected: bool) -> None:
    problem = pipeline(1, 2)
    assert feasible(add_microbatch_order, problem, {(F, 0, 0): 0, (F, 0, 1): second}, {}) is expected
    assert not feasible(add_microbatch_order, problem, {(F, 0, 0): 5, (F, 0, 1): 5}, {})


@pytest.mark.parametrize(("backward_at", "expected"), [(5, True), (4, True), (3, False)])
def test_a_rank_does_one_thing_at_a_time(backward_at: int, expected: bool) -> None:
    problem = pipeline(1, 2)
    assert feasible(add_ranks, problem, {(F, 0, 1): 3, (B, 0, 0): backward_at}, {}) is expected


@pytest.mark.parametrize(("second", "expected"), [(4, True), (3, True), (2, False)])
def test_hops_of_one_link_take_turns(second: int, expected: bool) -> None:
    problem = pipeline(3, 1, hops=[cut(0, 0.0, 2.0, "a"), cut(1, 0.0, 2.0, "a")])
    assert feasible(add_links, problem, {}, {(F, 0, 0): 1, (F, 1, 0): second}) is expected


@pytest.mark.parametrize(("context", "forward_at", "expected"), [(1.0, 9, True), (1.0, 8, False), (0.0, 8, True)])
def test_memory_waits_for_what_frees_it(context: float, forward_at: int, expected: bool) -> None:
    """Room for one activation: with a context of a whole one, F1 waits for the end of W0 at 9, else for B0 at 8."""
    stage = {
        "forward_s": 1,
        "input_grad_s": 1,
        "weight_grad_s": 1,
        "activation_bytes": 1,
        "weight_grad_context_bytes": context,
    }
    problem = pipeline(1, 2, stages=[stage], ranks=budget(1, 1))
    fixed = {(F, 0, 0): 0, (B, 0, 0): 7, (W, 0, 0): 8, (F, 0, 1): forward_at}
    assert feasible(add_memory, problem, fixed, {}) is expected


@pytest.mark.parametrize(("second", "expected"), [(9, True), (8, True), (7, False)])
def test_half_a_context_asks_for_one_of_two_releases(second: int, expected: bool) -> None:
    """Budget 2, context 1/2: F2 needs both inputs done, or one of each: B0 at 4, W0 at 7, B1 late."""
    stage = {
        "forward_s": 1,
        "input_grad_s": 1,
        "weight_grad_s": 1,
        "activation_bytes": 1,
        "weight_grad_context_bytes": 0.5,
    }
    problem = pipeline(1, 3, stages=[stage], ranks=budget(1, 2))
    fixed = {(F, 0, 0): 0, (F, 0, 1): 1, (B, 0, 0): 4, (W, 0, 0): 7, (B, 0, 1): 20, (F, 0, 2): second}
    assert feasible(add_memory, problem, fixed, {}) is expected


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_the_value_is_the_last_end_or_the_longest_stay(objective: str) -> None:
    problem = pipeline(2, 1, objective=objective)
    instance = instance_of(problem)
    model = cp_model.CpModel()
    v = create(model, instance)
    for family in FAMILIES:
        family(model, instance, v)
    model.add(v.start_ksj[F, 0, 0] == 3)
    model.minimize(v.value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    assert solver.objective_value == (8 if objective == "makespan" else 5)


def test_the_order_of_the_families_does_not_matter() -> None:
    problem = pipeline(3, 3, ranks=budget(3, 2), hops=[cut(0, 2.0, 1.0, "a"), cut(1, 1.0, 1.0, "a")])
    values = set()
    for seed in range(3):
        families: list[Family] = [add_data, add_microbatch_order, add_ranks, add_links, add_memory, add_value]
        random.Random(seed).shuffle(families)
        instance = instance_of(problem)
        model = cp_model.CpModel()
        v = create(model, instance)
        for family in families:
            family(model, instance, v)
        model.minimize(v.value)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 2
        assert solver.solve(model) == cp_model.OPTIMAL
        values.add(solver.objective_value)
    assert len(values) == 1


@pytest.mark.parametrize(("horizon", "expected"), [(25, True), (24, False)])
def test_a_span_says_nothing_of_when_it_ends(horizon: int, expected: bool) -> None:
    """Rank 0 waits for two messages of 10 and takes 25; rank 1 has a W of 20 and takes 22, but begins at 11."""
    stages = [{"forward_s": 1, "input_grad_s": 1, "weight_grad_s": weight_s} for weight_s in (1, 20)]
    problem = pipeline(2, 1, stages=stages, hops=[cut(0, 10.0)], objective="span")
    instance, model = instance_of(problem, horizon), cp_model.CpModel()
    v = create(model, instance)
    for family in FAMILIES:
        family(model, instance, v)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert (solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)) is expected


@pytest.mark.parametrize(("budget_bytes", "expected"), [(5.0, True), (4.9, False)])
def test_stages_of_a_rank_may_fill_its_memory(budget_bytes: float, expected: bool) -> None:
    """2 and 3 of 5 bytes are no whole numbers of 2^20 parts, and both are held from 1 to 3."""
    stages = [
        {"forward_s": 1, "input_grad_s": 1, "weight_grad_s": 0, "activation_bytes": held_bytes} for held_bytes in (2, 3)
    ]
    problem = pipeline(1, 1, layout="loop", ranks=budget(1, 5.0), stages=stages)
    tight = problem.model_copy(update={"ranks": pipeline(1, 1, ranks=budget(1, budget_bytes)).ranks})
    starts = {(F, 0, 0): 0, (F, 1, 0): 1, (B, 1, 0): 2, (B, 0, 0): 3}
    assert feasible(add_memory, tight, starts, {}) is expected
