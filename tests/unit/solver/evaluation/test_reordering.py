"""Reordered ranks keep their pools, types stay together, and no other order and layers have a much lesser bound."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import pytest

from models.plan import Configuration, Proof
from models.request import PlanRequest
from models.statements import PROVEN
from solver.bounds.typed_pipelines import PartitionPipelines
from solver.bounds.work import speed_of_light_s
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.by_type import typed_placements
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.reordering import may_reorder, reordered
from solver.evaluation.report import plan_of
from solver.evaluation.scheduling import portfolio_timing
from solver.search.tasks import PATTERNS
from solver.verify.judge import judge
from tests.build_job import ARCHITECTURE, context_of, job

NUM_RANKS = 4
FLEETS = [
    (("H100-SXM-80G", "B200-SXM"), "one_way"),
    (("A100-SXM-80G", "B200-SXM"), "loop"),
    (("B200-SXM", "A100-SXM-80G"), "loop"),
    (("H100-SXM-80G", "B200-SXM"), "v"),
]


def mixed(gpus: tuple[str, str], family: str, layer_split: str = "by_gpu_type") -> tuple[Context, Configuration]:
    """Four ranks and two replicas on two hosts each of two GPU types, in two buildings far from each other."""
    allowed = {"tp": [4], "cp": [1], "pp": [NUM_RANKS], "dp": [2], "vpp": [1 if family == "one_way" else 2]}
    allowed |= {"micro_batch_sequences": [1], "layer_split": [layer_split], "family": [family], "recompute": ["none"]}
    context = on_types(job(hosts=(2, 2), batch=8, allowed=allowed, link={"latency_s": 2e-2}), gpus)
    return context, configuration_of(context, enumerate_space(context.request), 0)


def on_types(request: PlanRequest, gpus: Sequence[str]) -> Context:
    """The request with a GPU type for each pool."""
    document = request.model_dump(mode="json")
    for pool, gpu in zip(document["cluster"]["pools"], gpus, strict=True):
        pool["gpu"] = gpu
    return context_of(PlanRequest.model_validate(document))


def types_of(context: Context, candidate: Candidate) -> list[str]:
    return [context.pools[pool].gpu.name for pool in candidate.routes[0].pools]


def layers_of_ranks(configuration: Configuration) -> tuple[int, ...]:
    return tuple(
        sum(configuration.layers_per_stage[stage] for stage in configuration.stages_of_rank(rank))
        for rank in range(NUM_RANKS)
    )


def pools_of_ranks(candidate: Candidate) -> list[tuple[tuple[int, int, int], ...]]:
    """What every rank has: the pools of all routes, where it begins in them, and for how many replicas."""
    return [
        tuple((route.pools[rank], route.first_group[rank], route.num_replicas) for route in candidate.routes)
        for rank in range(NUM_RANKS)
    ]


def pipeline_bound_s(
    context: Context, configuration: Configuration, types: Sequence[str], layers: Sequence[int]
) -> float:
    pipelines = PartitionPipelines.of(context, [configuration])
    kinds = {name: kind for kind, gpu in enumerate(pipelines.gpus) for name in gpu.names}
    return pipelines.bound_s((tuple(kinds[one] for one in types), tuple(layers)), float("inf"))


def num_changes(types: Sequence[str], *, is_loop: bool) -> int:
    """How often the GPU type changes along the pipeline, in a loop round it."""
    return sum(here != there for here, there in itertools.pairwise([*types, *types[: 1 if is_loop else 0]]))


@pytest.mark.parametrize(("gpus", "family"), FLEETS)
def test_ranks_keep_what_they_have_and_types_stay_together(gpus: tuple[str, str], family: str) -> None:
    context, configuration = mixed(gpus, family)
    for candidate in typed_placements(context, configuration):
        assert may_reorder(context, candidate)
        for one in reordered(context, candidate, time.monotonic):
            assert sorted(pools_of_ranks(one)) == sorted(pools_of_ranks(candidate))
            assert sum(one.configuration.layers_per_stage) == context.job.num_layers
            changes = num_changes(types_of(context, one), is_loop=family == "loop")
            assert changes == (2 if family == "loop" else 1)


@pytest.mark.parametrize(("gpus", "family"), FLEETS)
def test_no_order_of_the_types_and_no_layers_have_a_much_lesser_bound(gpus: tuple[str, str], family: str) -> None:
    context, configuration = mixed(gpus, family)
    candidate = next(typed_placements(context, configuration))
    known = [candidate, *reordered(context, candidate, time.monotonic)]
    best_s = min(
        pipeline_bound_s(context, configuration, types_of(context, one), layers_of_ranks(one.configuration))
        for one in known
    )
    first, num_layers, vpp = types_of(context, candidate), context.job.num_layers, configuration.degrees.vpp
    orders = [first, first[::-1]] if family != "loop" else [first[at:] + first[:at] for at in range(NUM_RANKS)]
    heads = itertools.product(range(vpp, num_layers), repeat=NUM_RANKS - 1)
    shares = [(*head, num_layers - sum(head)) for head in heads if num_layers - sum(head) >= vpp]
    least_s = min(pipeline_bound_s(context, configuration, order, share) for order in orders for share in shares[::3])
    assert best_s <= 1.02 * least_s


@pytest.mark.parametrize("family", ["one_way", "loop", "v"])
def test_three_types_gain(family: str) -> None:
    """Uneven layers over six ranks, of which the usual placements have the fastest or the slowest type first."""
    allowed = {"tp": [8], "cp": [1], "pp": [6], "dp": [1], "vpp": [1 if family == "one_way" else 2]}
    allowed |= {"micro_batch_sequences": [1], "layer_split": ["by_gpu_type"], "family": [family], "recompute": ["none"]}
    uneven = {"architecture": {**ARCHITECTURE, "num_layers": 31}}
    request = job(hosts=(2, 2, 2), batch=12, allowed=allowed, link={"latency_s": 1e-3}, workload=uneven)
    context = on_types(request, ("B200-SXM", "A100-SXM-80G", "H100-SXM-80G"))
    configuration = configuration_of(context, enumerate_space(context.request), 0)

    def time_s(candidate: Candidate) -> float:
        timed = evaluate(context, candidate, lambda problem: portfolio_timing(problem, None))
        return float("inf") if timed is None else timed.iteration_s

    typed = min(typed_placements(context, configuration), key=time_s)
    assert min(map(time_s, reordered(context, typed, time.monotonic))) < 0.99 * time_s(typed)


@pytest.mark.parametrize(("gpus", "family"), FLEETS)
def test_the_judge_takes_them(gpus: tuple[str, str], family: str) -> None:
    context, configuration = mixed(gpus, family)
    candidate = next(typed_placements(context, configuration))
    least_s = speed_of_light_s(context)
    for one in reordered(context, candidate, time.monotonic):
        timed = evaluate(context, one, lambda problem: portfolio_timing(problem, ("greedy", "interleaved")))
        assert timed is not None
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


def test_even_layers_are_not_reordered() -> None:
    context, configuration = mixed(("H100-SXM-80G", "B200-SXM"), "loop", "even")
    candidates = list(placements(context, configuration, PATTERNS))
    assert candidates
    assert not any(may_reorder(context, one) for one in candidates)
