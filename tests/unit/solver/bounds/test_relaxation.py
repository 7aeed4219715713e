"""Bounds of a configuration's own pipeline, alone and together with those that are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.catalogue import named_entry
from models.plan import Configuration
from models.request import PlanRequest
from solver.bounds.least_hops import MessageDelays, crossings_of, least_hop_s
from solver.bounds.mixed_pipelines import MixedPipelines
from solver.bounds.relaxation import refined_bound_s
from solver.configurations.enumerate import enumerate_space
from solver.configurations.nearness import ranks_by_type
from solver.context import Context
from solver.cost.columns import columns_of_all
from solver.objective import Goal
from solver.search.choice import alike_configurations
from solver.search.frontier import Frontier
from tests.build_job import FIXED, context_of, job

FAR = 1e9
FAR_S = 0.5


def frontier_of(context: Context) -> Frontier:
    """Some priced configurations."""
    frontier = Frontier(context, enumerate_space(context.request), Goal.of(context))
    frontier.load(FAR, planned=False)
    return frontier


def example(name: str, allowed: dict[str, Any]) -> Context:
    """A request of the catalogue, narrowed."""
    request = PlanRequest.model_validate({**named_entry("examples", name), "constraints": {"allowed": allowed}})
    return Context.of(request)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("deepseek-v3-region", {"tp": [1, 2], "cp": [1], "pp": [8], "vpp": [1, 2]}),
        ("llama-70b-mixed-gpus", {"tp": [4, 8], "cp": [1], "pp": [4, 5], "vpp": [1, 2]}),
    ],
)
def test_what_bounds_several_bounds_each(name: str, allowed: dict[str, Any]) -> None:
    context = example(name, allowed)
    frontier, sizes = frontier_of(context), set[int]()
    for indices in frontier.unrefined(FAR, 200)[::20]:
        together = alike_configurations(frontier, indices, FAR)
        high_s = 3.0 * float(frontier.seconds[list(indices)].max())
        alone = [refined_bound_s(context, [one], high_s) for one in together.configurations]
        assert refined_bound_s(context, together.configurations, high_s) <= min(alone) * (1.0 + 1e-9)
        sizes.add(len(indices))
        assert len({alike(one) for one in together.configurations}) == 1
    assert max(sizes) > 1


def alike(one: Configuration) -> tuple[object, ...]:
    """All that configurations bounded together have in common."""
    degrees = one.degrees
    return (degrees.tp, degrees.cp, degrees.pp, degrees.dp, degrees.vpp, one.micro_batch_sequences, one.recompute)


def test_what_waits_is_refined_together_then_with_the_same_experts_then_alone() -> None:
    frontier = frontier_of(example("deepseek-v3-region", {"tp": [1], "cp": [1], "pp": [8], "vpp": [1]}))
    seen = []
    while not seen or len(seen[-1]) > 1:
        (indices,) = frontier.unrefined(FAR, 1)
        seen.append(indices)
        frontier.set_refined(indices)
    together, alone = seen[0], seen[-1]
    assert alone == together[:1]
    assert all(set(others) < set(together) for others in seen[1:])
    for others in seen[1:]:
        assert len({int(frontier.space.columns.ep[frontier.rows[index]]) for index in others}) == 1
    assert all(alone[0] not in indices for indices in frontier.unrefined(FAR, 10))


def test_layers_by_gpu_type_are_refined_without_pipelines_first() -> None:
    allowed = {"tp": [8], "cp": [1], "pp": [5], "layer_split": ["by_gpu_type"]}
    context = example("llama-70b-mixed-gpus", allowed)
    frontier = frontier_of(context)
    refined_s = []
    for is_first in (True, False):
        (indices,) = frontier.unrefined(FAR, 1)
        together = alike_configurations(frontier, indices, FAR)
        assert together.quick == is_first
        assert len(indices) > 1
        high_s = 3.0 * float(frontier.seconds[list(indices)].max())
        refined_s.append(refined_bound_s(context, together.configurations, high_s, quick=together.quick))
        frontier.set_refined(indices)
    assert refined_s[0] < refined_s[1]
    assert len(frontier.unrefined(FAR, 1)[0]) == 1


def test_ranks_on_the_faster_type_alone_exchange_in_fewer_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """One type holds all ranks, in one building: replicas elsewhere have ranks on slower GPUs."""
    allowed = {"tp": [8], "cp": [1], "pp": [2, 4], "layer_split": ["even"], "recompute": ["none"]}
    context = example("llama-70b-mixed-gpus", allowed)
    frontier = frontier_of(context)
    configurations = [frontier.configuration(index) for index in range(len(frontier.rows))]
    parted_s = np.array([refined_bound_s(context, [one], FAR) for one in configurations])
    monkeypatch.setattr(MixedPipelines, "least_s", lambda _, low_s, *_rest: low_s)
    whole_s = np.array([refined_bound_s(context, [one], FAR) for one in configurations])
    columns = columns_of_all(configurations)
    held = ranks_by_type(context.pools, columns.tp, columns.cp, columns.dp)
    is_alone = np.maximum.reduce([*held.values()]) >= columns.pp
    assert is_alone.any()
    assert (parted_s >= whole_s * (1.0 - 1e-9)).all()
    assert (parted_s[is_alone] > 1.001 * whole_s[is_alone]).any()


def test_nothing_beyond_a_refined_bound_is_refined() -> None:
    frontier = frontier_of(example("deepseek-v3-region", {"tp": [1], "cp": [1], "pp": [8], "vpp": [1]}))
    least = int(np.argmin(frontier.bound))
    frontier.set_refined((least,))
    assert all(frontier.bound[one[0]] <= frontier.bound[least] for one in frontier.unrefined(FAR, 10))


def test_far_gpu_types_delay_every_pass() -> None:
    """H100 in one building and A100 in another: round and round with v chunks every pass crosses 2 v - 1 times."""
    context = example("llama-70b-mixed-gpus", {"tp": [8], "cp": [1], "pp": [5], "layer_split": ["by_gpu_type"]})
    frontier = frontier_of(context)
    found = {}
    for index in range(len(frontier.rows)):
        one = frontier.configuration(index)
        found[one.family, one.degrees.vpp] = MessageDelays.of(context, [one])
    apart = {key: delays.turnaround_s for key, delays in found.items()}
    assert apart["loop", 2] > 2.5 * apart["one_way", 1] > 0.0
    assert found["one_way", 1].ahead_s == 0.0
    assert found["loop", 3].held_s > found["loop", 2].held_s > 0.0


def test_one_place_with_both_types_delays_nothing_but_hops() -> None:
    """The same fleet in one building: what lies between two types is a hop like any other."""
    allowed = {"tp": [8], "cp": [1], "vpp": [1], "layer_split": ["by_gpu_type"]}
    near = example("llama-70b-h100-b200-one-building", allowed)
    configuration = frontier_of(near).configuration(0)
    hops_s = (configuration.degrees.pp - 1) * least_hop_s(near, [configuration])
    assert MessageDelays.of(near, [configuration]).turnaround_s == pytest.approx(hops_s)


@pytest.mark.parametrize(("family", "vpp"), [("one_way", 1), ("v", 2), ("loop", 2), ("loop", 4)])
def test_a_far_building_delays_pipelines_that_cannot_stay_out_of_it(family: str, vpp: int) -> None:
    """Two equal buildings far apart, and exchanges between them would take longer than the pipelines."""
    found = []
    for latency_s in (1e-5, FAR_S):
        far = {"latency_s": latency_s, "capacity_bytes_per_s": 1e9}
        allowed = {**FIXED, "pp": [4], "dp": [4], "vpp": [vpp]}
        context = context_of(job(hosts=(2, 2), batch=16, allowed=allowed, link=far))
        frontier = frontier_of(context)
        every = [frontier.configuration(index) for index in range(len(frontier.rows))]
        one = next(one for one in every if one.family == family)
        found.append((refined_bound_s(context, [one], 0.0), refined_bound_s(context, [one], FAR)))
    (near_s, refined_near_s), (relaxed_s, refined_s) = found
    assert relaxed_s == pytest.approx(near_s, rel=0.01)
    assert refined_s > max(crossings_of(one) * FAR_S, refined_near_s)
