"""The space of configurations, its layer split and its bounds."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.catalogue import named_entry
from models.request import PlanRequest
from solver.bounds.relaxation import refined_bound_s
from solver.bounds.screening import screening_bounds
from solver.bounds.work import lower_bounds, speed_of_light_s
from solver.configurations.enumerate import BY_GPU_TYPE, Space, enumerate_space
from solver.configurations.framework import within_framework
from solver.configurations.layers import layers_per_stage
from solver.configurations.pricing import Shares, StageCosts
from solver.configurations.unusual import with_every_degree
from solver.cost.stage import StageCost
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import portfolio_timing
from tests.build_job import ARCHITECTURE, FIXED, context_of, job
from tests.build_request import build_request


@pytest.mark.parametrize("num_places", [1, 2, 3, 5])
def test_a_building_more_takes_no_configuration_away(num_places: int) -> None:
    allowed = {**FIXED, "tp": [1, 2], "sharding": ["zero1", "hsdp", "fsdp"]}
    spaces = [enumerate_space(job(hosts=(4,) * number, allowed=allowed)) for number in (num_places, num_places + 1)]
    fewer, more = ({tuple(row) for row in _rows(space).tolist()} for space in spaces)
    assert fewer
    assert fewer <= more


def test_a_v_folds_as_often_as_the_request_names() -> None:
    allowed = {**FIXED, "vpp": [2, 3, 4], "family": ["v"]}
    assert set(enumerate_space(job(hosts=(4,), allowed=allowed)).columns.vpp.tolist()) == {2, 4}
    opened = {name: value for name, value in allowed.items() if name != "vpp"}
    assert set(enumerate_space(job(hosts=(4,), allowed=opened)).columns.vpp.tolist()) == {2}


def test_every_degree_leaves_none_out() -> None:
    moe = {"num_experts": 9, "experts_per_token": 2, "expert_ffn_hidden_size": 4096}
    model = {**ARCHITECTURE, "num_layers": 90, "moe": moe}
    every = with_every_degree(job(allowed={"tp": [1]}, workload={"architecture": model, "sequence_length": 4096}))
    assert every is not None
    allowed = every.constraints.allowed
    assert allowed.ep == (1, 3, 9)
    assert allowed.pp == tuple(range(1, 91))
    assert (allowed.cp or ())[-1] == 4096
    assert allowed.tp == (1,)


@pytest.mark.parametrize(("framework", "inside"), [(None, False), ("torchtitan", True), ("megatron-core", True)])
def test_a_framework_shares_experts_inside_a_copy_of_the_state(framework: str | None, inside: bool) -> None:
    moe = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 4096}
    allowed = {**FIXED, "ep": [1, 8], "dp": [8], "sharding": ["zero1", "hsdp", "fsdp"]}
    workload = {"architecture": {**ARCHITECTURE, "moe": moe}}
    asked = job(hosts=(4, 4), allowed=allowed, workload=workload, constraints={"framework": framework})
    one = enumerate_space(within_framework(asked)).columns
    copies = one.dp // np.maximum(one.shard_group, 1)
    wide = (copies > 1) & (one.ep > one.shard_group * one.cp)
    assert ((copies > 1) & (one.ep == 1)).any()
    assert wide.any() != inside


@pytest.mark.parametrize("framework", [None, "torchtitan", "megatron-core"])
def test_a_framework_ties_embeddings_and_repeats_heads_as_it_can(framework: str | None) -> None:
    """What the torchtitan export refuses is no choice of a search for torchtitan."""
    attention = {**ARCHITECTURE["attention"], "num_kv_heads": 2}
    model = {**ARCHITECTURE, "attention": attention, "tied_embeddings": True}
    asked = job(allowed={}, workload={"architecture": model}, constraints={"framework": framework})
    space = enumerate_space(within_framework(asked))
    limited = framework == "torchtitan"
    assert set(space.columns.tp) == ({1, 2} if limited else {1, 2, 4, 8})
    assert (set(space.columns.pp) == {1}) == limited
    used, profile = configuration_of(context_of(asked), space, len(space) - 1), asked.constraints.framework
    for name in ("tp", "pp") if profile is not None else ():
        degrees = used.degrees.model_copy(update={"tp": 1, "pp": 1, name: 8})
        other = used.model_copy(update={"degrees": degrees})
        assert (name in dict(profile.lacks(other, asked.workload))) == limited


@pytest.mark.parametrize(
    ("framework", "length", "pairs"),
    [
        (None, 5000, {(1, 1), (4, 1), (8, 1), (1, 2), (4, 2), (8, 2)}),
        ("megatron-core", 5000, {(1, 1), (4, 1), (8, 1), (1, 2), (4, 2)}),
        ("torchtitan", 5000, {(1, 1), (4, 1), (8, 1)}),
        ("torchtitan", 5120, {(1, 1), (4, 1), (8, 1), (1, 2), (4, 2), (8, 2)}),
        ("megatron-core", 12289, {(1, 1)}),
    ],
)
def test_tokens_are_split_as_the_framework_needs(
    framework: str | None, length: int, pairs: set[tuple[int, int]]
) -> None:
    """Megatron by tp cp and 2 cp, torchtitan the tokens of a micro-batch by 2 tp cp and 128 cp."""
    allowed = {**FIXED, "tp": [1, 4, 8], "cp": [1, 2], "pp": [1]}
    asked = job(allowed=allowed, workload={"sequence_length": length}, constraints={"framework": framework})
    one = enumerate_space(within_framework(asked)).columns
    assert set(zip(one.tp.tolist(), one.cp.tolist(), strict=True)) == pairs


def test_micro_batches_of_a_framework_may_divide_where_sequences_do_not() -> None:
    allowed = {**FIXED, "tp": [8], "pp": [1], "micro_batch_sequences": [1, 2, 8]}
    asked = job(allowed=allowed, workload={"sequence_length": 4097}, constraints={"framework": "torchtitan"})
    assert set(enumerate_space(within_framework(asked)).columns.micro_batch) == {8}


@pytest.mark.parametrize(
    ("optimizer", "sharding", "copies"), [("adam", {1}, {1, 2}), ("muon", {1}, {1}), ("sgd", {0}, None)]
)
def test_a_framework_shards_the_optimizers_that_it_can(
    optimizer: str, sharding: set[int], copies: set[int] | None
) -> None:
    asked = job(allowed={}, workload={"optimizer": {"name": optimizer}}, constraints={"framework": "megatron-core"})
    one = enumerate_space(within_framework(asked)).columns
    assert set(one.sharding.tolist()) == sharding
    assert copies is None or set((one.dp // one.shard_group).tolist()) == copies


@pytest.mark.parametrize(
    ("changes", "degrees"),
    [
        ({}, {1, 2, 4, 8}),
        ({"ffn_hidden_size": 14332}, {1, 2, 4}),
        ({"moe": {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 1410}}, {1, 2}),
        (
            {
                "moe": {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 1408},
                "definition": {"linear_bias": True},
            },
            {1},
        ),
    ],
)
def test_a_framework_splits_widths_evenly(changes: dict[str, Any], degrees: set[int]) -> None:
    architecture = {**ARCHITECTURE, **changes}
    asked = job(allowed={}, workload={"architecture": architecture}, constraints={"framework": "megatron-core"})
    assert set(enumerate_space(within_framework(asked)).columns.tp) == degrees


def test_enumeration_holds_no_second_copy_of_the_space() -> None:
    document = job(hosts=(64,) * 8, batch=1024, allowed={}).model_dump(mode="json")
    for number, pool in enumerate(document["cluster"]["pools"]):
        pool["gpu"] = ("H100-SXM-80G", "B200-SXM")[number % 2]
    request = PlanRequest.model_validate(document)
    tracemalloc.start()
    space = enumerate_space(request)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(space) > 100_000
    assert peak_bytes < 2 * _rows(space).nbytes


def test_many_places_are_no_reason_to_try_copies_that_divide_no_replicas() -> None:
    """Rows times places once took gigabytes, though a batch of 64 has few numbers of replicas."""
    request = job(hosts=(1,) * 300, batch=64, allowed={"sharding": ["zero1", "hsdp"]})
    tracemalloc.start()
    space = enumerate_space(request)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    one = space.columns
    assert set((one.dp // one.shard_group).tolist()) == {1, 2, 4, 8, 16, 32, 64}
    assert peak_bytes < 3 * _rows(space).nbytes


def _rows(space: Space) -> npt.NDArray[np.int64]:
    columns = [getattr(space.columns, field.name) for field in fields(space.columns)]
    return np.stack([*columns, space.family, space.layer_split], axis=1)


@given(st.integers(1, 200), st.integers(1, 40), st.floats(0, 3), st.floats(0, 3))
@settings(deadline=None)
def test_the_split_hands_out_every_layer(layers: int, stages: int, first: float, last: float) -> None:
    stages = min(stages, layers)
    split = layers_per_stage(layers, stages, first_extra=first, last_extra=last)
    assert len(split) == stages
    assert sum(split) == layers
    assert min(split) >= 0
    assert min(split[:-1], default=1) >= 1, "only the last stage may have no layers"
    assert max(split[1:-1], default=0) - min(split[1:-1], default=0) <= 1


def test_vector_and_scalar_split_agree() -> None:
    context = context_of(job(allowed={}))
    space = enumerate_space(context.request).take(np.arange(0, 4000, 37))
    price = StageCosts(context, next(iter(context.gpu_classes.values())), space.columns)
    shares = Shares.of(price, space.family)
    for row in range(len(space)):
        configuration = configuration_of(context, space, row)
        starts = np.cumsum([0, *configuration.layers_per_stage])
        for stage in range(configuration.degrees.num_stages):
            assert shares.start(np.full(len(space), stage))[row] == starts[stage]


def test_units_that_configurations_share_are_those_of_each() -> None:
    context = context_of(job(allowed={}))
    space, gpu_class = enumerate_space(context.request), next(iter(context.gpu_classes.values()))
    rows = np.random.default_rng(0).integers(0, len(space), 200)
    together = StageCosts(context, gpu_class, space.columns.take(rows)).parts
    for at, row in enumerate(rows.tolist()):
        alone = StageCosts(context, gpu_class, space.columns.take(np.array([row]))).parts
        for one, all_rows in zip(alone, together, strict=True):
            for unit in fields(StageCost):
                assert getattr(one, unit.name)[0] == pytest.approx(getattr(all_rows, unit.name)[at], rel=1e-12)
    assert 0 < len(context.known.parts) < len(rows)


def test_ranks_between_the_ends_are_light_or_heavy() -> None:
    context = context_of(job(allowed={}, workload={"architecture": {**ARCHITECTURE, "num_layers": 23}}))
    space = enumerate_space(context.request)
    shapes = np.stack([space.columns.pp, space.columns.vpp, space.family])
    space = space.take(np.unique(shapes, axis=1, return_index=True)[1])
    price = StageCosts(context, next(iter(context.gpu_classes.values())), space.columns)
    light, heavy, num_light = Shares.of(price, space.family).inner_ranks()
    num_checked = 0
    for row in np.flatnonzero(space.columns.pp > 2).tolist():
        configuration = configuration_of(context, space, row)
        layers = [0] * configuration.degrees.pp
        for stage, count in enumerate(configuration.layers_per_stage):
            layers[configuration.rank_of_stage(stage)] += count
        inner = sorted(layers[1:-1])
        assert inner[0] == light[row], configuration
        assert inner[: num_light[row]] == [light[row]] * int(num_light[row]), configuration
        assert inner[num_light[row] :] == [heavy[row]] * (len(inner) - int(num_light[row])), configuration
        num_checked += 1
    assert num_checked > 10


def test_every_configuration_obeys_the_divisibility_rules() -> None:
    request = job(allowed={})
    columns = enumerate_space(request).columns
    assert len(columns) > 1000
    assert np.all(
        columns.dp * columns.micro_batch * columns.num_microbatches == request.workload.global_batch_sequences
    )
    assert np.all(columns.tp * columns.cp * columns.pp * columns.dp <= 64)
    assert np.all(columns.pp * columns.vpp <= 16)
    assert set(np.unique(columns.tp)) == {1, 2, 4, 8}


@pytest.mark.parametrize("name", ["tp", "pp", "dp", "micro_batch_sequences"])
def test_a_fixed_degree_is_kept(name: str) -> None:
    columns = enumerate_space(job(allowed={name: [4]})).columns
    attribute = {"micro_batch_sequences": "micro_batch"}.get(name, name)
    assert set(np.unique(getattr(columns, attribute))) == {4}


def test_bounds_never_exceed_the_time_of_any_schedule_we_can_find() -> None:
    """On a sample of configurations, placements and generators: every bound <= replayed time."""
    context = context_of(job(allowed={}, batch=48))
    space = enumerate_space(context.request)
    bounds = lower_bounds(context, space)
    rows = np.flatnonzero(bounds.fits)
    chosen = np.random.default_rng(7).choice(rows, size=60, replace=False)
    cheap, timed = screening_bounds(context, space).bound_s, 0
    for row in chosen:
        configuration = configuration_of(context, space, int(row))
        relaxed = refined_bound_s(context, [configuration], 0.0)
        for candidate in placements(context, configuration, ("replicas_whole", "ranks_whole")):
            for names in (("one_f_one_b", "interleaved"), ("greedy",), ("zb_h1", "gpipe")):
                found = evaluate(context, candidate, lambda problem, names=names: portfolio_timing(problem, names))
                if found is not None:
                    timed += 1
                    assert cheap[row] <= found.iteration_s * (1 + 1e-9)
                    assert bounds.iteration_s[row] <= found.iteration_s * (1 + 1e-9)
                    assert relaxed <= found.iteration_s * (1 + 1e-9)
    assert timed > 60
    assert speed_of_light_s(context) <= bounds.iteration_s.min()


def test_what_fits_into_no_memory_is_left_out() -> None:
    huge = {"architecture": "llama-3.1-405b"}
    context = context_of(job(allowed=FIXED, workload=huge))
    assert not lower_bounds(context, enumerate_space(context.request)).fits.any()


def test_a_mixed_fleet_may_have_any_small_number_of_ranks_where_layers_follow_the_type() -> None:
    mixed = enumerate_space(PlanRequest.model_validate(named_entry("examples", "llama-70b-mixed-gpus")))
    by_type = mixed.layer_split == BY_GPU_TYPE
    assert set(range(2, 17)) <= set(mixed.columns.pp[by_type].tolist())
    assert 7 not in mixed.columns.pp[~by_type]


def test_a_rank_or_two_per_building_are_tried() -> None:
    request = job(hosts=(4, 4, 4), allowed={"tp": [1], "cp": [1]})
    assert {3, 6} <= set(enumerate_space(request).columns.pp.tolist())


def test_buildings_without_gpus_do_not_change_which_ranks_are_tried() -> None:
    request = job(hosts=(4,), allowed={"tp": [1], "cp": [1]})
    empty = [{"id": f"empty{number}", "level": "building"} for number in range(4)]
    document = request.model_dump(mode="json")
    document["cluster"]["places"] += empty
    more = PlanRequest.model_validate(document)
    tried, with_more = (set(enumerate_space(one).columns.pp.tolist()) for one in (request, more))
    assert tried == with_more


@pytest.mark.parametrize("count", range(2, 9))
def test_one_building_more_takes_no_number_of_ranks_away(count: int) -> None:
    fewer, more = (job(hosts=(4,) * number, allowed={"tp": [1], "cp": [1]}) for number in (count - 1, count))
    assert set(enumerate_space(fewer).columns.pp.tolist()) <= set(enumerate_space(more).columns.pp.tolist())


def test_more_of_the_fastest_gpus_take_no_number_of_ranks_away() -> None:
    document = job(hosts=(4, 2), allowed={"tp": [8], "cp": [1], "vpp": [1]}).model_dump(mode="json")
    document["cluster"]["pools"][1]["gpu"] = "B200-SXM"
    tried = []
    for num_hosts in (2, 4, 9):
        document["cluster"]["pools"][1]["num_hosts"] = num_hosts
        tried.append(set(enumerate_space(PlanRequest.model_validate(document)).columns.pp.tolist()))
    assert 5 in tried[0]
    assert tried[0] <= tried[1] <= tried[2]


@pytest.mark.parametrize(("hosts", "odd"), [((1, 2), 3), ((2, 3), 5)])
def test_a_fleet_of_three_or_five_times_a_power_of_two_is_used_whole(hosts: tuple[int, ...], odd: int) -> None:
    """Batch and layers divide by powers of two alone: the ranks of the pipeline have to bring the other factor."""
    workload = {"architecture": {**ARCHITECTURE, "num_layers": 32}}
    request = job(hosts=hosts, allowed={"cp": [1], "vpp": [1]}, workload=workload)
    columns = enumerate_space(request).columns
    assert int(columns.num_gpus.max()) == context_of(request).usable_gpus == 8 * sum(hosts)
    assert odd in columns.pp[columns.num_gpus == 8 * sum(hosts)]


def test_pipelines_that_may_not_cross_lie_where_every_pin_of_all_replicas_does() -> None:
    pins = [{"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": place} for place in ("campus", "west")]
    apart = {"pipeline_may_cross_buildings": False}
    free, pinned, some = (
        enumerate_space(build_request(constraints=apart | {"pins": own}))
        for own in ([], pins, [pins[0], pins[1] | {"num_replicas": 1}])
    )
    assert free.columns.num_gpus.max() == 32
    assert pinned.columns.num_gpus.max() == 8, "west has eight"
    assert some.columns.num_gpus.max() == 32, "other replicas may be elsewhere"
    alone = enumerate_space(build_request(constraints=apart | {"forbidden_places": ["east", "north"]}))
    assert len(pinned) >= len(alone) > 0


def test_pins_in_two_buildings_leave_pipelines_that_may_not_cross_no_configuration() -> None:
    pins = [
        {"first_pipeline_rank": rank, "last_pipeline_rank": rank, "place": place}
        for rank, place in enumerate(("east", "west"))
    ]
    assert len(enumerate_space(build_request(constraints={"pins": pins}))) > 0
    assert not len(enumerate_space(build_request(constraints={"pins": pins, "pipeline_may_cross_buildings": False})))
