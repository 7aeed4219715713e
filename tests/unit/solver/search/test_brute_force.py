"""The search against every share of layers on every placement of every configuration, through one evaluator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Configuration
from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placement_problem, pooled
from solver.evaluation.scheduling import portfolio_timing
from solver.placement.problem import RouteCount
from solver.placement.routes import merged
from solver.planner import plan
from tests.build_job import ARCHITECTURE, context_of, job

SMALL: dict[str, Any] = {
    "tp": [4],
    "cp": [1],
    "pp": [2, 4],
    "vpp": [1],
    "micro_batch_sequences": [1],
    "recompute": ["none"],
    "sharding": ["zero1"],
}
NARROW: dict[str, Any] = {"workload": {"architecture": {**ARCHITECTURE, "num_layers": 6}}}
LINKS = {"near": {}, "far": {"latency_s": 0.02, "capacity_bytes_per_s": 2e10}}


def everywhere(context: Context, configuration: Configuration) -> Iterator[tuple[RouteCount, ...]]:
    """Every way to put the ranks of all replicas into capacity groups that have the capacity."""
    problem = placement_problem(context, configuration)
    routes = list(itertools.product(range(problem.num_capacity_groups), repeat=problem.num_ranks))
    for chosen in itertools.combinations_with_replacement(routes, problem.num_replicas):
        taken = [sum(route.count(u) for route in chosen) for u in range(problem.num_capacity_groups)]
        if all(need <= room for need, room in zip(taken, problem.capacity_u, strict=True)):
            yield merged([RouteCount(route, 1) for route in chosen])


def shares(context: Context, configuration: Configuration) -> Iterator[Configuration]:
    """The configuration as it is, or by GPU type with any layers for every rank, its chunks equal but for one."""
    if configuration.layer_split == "even":
        yield configuration
        return
    num_stages, num_layers = configuration.degrees.num_stages, context.job.num_layers
    for cuts in itertools.combinations(range(1, num_layers), num_stages - 1):
        layers = tuple(end - begin for begin, end in itertools.pairwise((0, *cuts, num_layers)))
        chunks: dict[int, list[int]] = {}
        for stage, share in enumerate(layers):
            chunks.setdefault(configuration.rank_of_stage(stage), []).append(share)
        if any(max(own) - min(own) > 1 for own in chunks.values()):
            continue
        yield configuration.model_copy(update={"layers_per_stage": layers})


def one_type_each(context: Context, routes: tuple[RouteCount, ...]) -> bool:
    """All replicas of a rank are on one GPU type."""
    ranks = zip(*(route.capacity_groups for route in routes), strict=True)
    return all(len({context.capacity_groups[u].gpu for u in groups_p}) == 1 for groups_p in ranks)


def all_times_s(context: Context) -> Iterator[float]:
    """Everything there is, with every generator."""
    space = enumerate_space(context.request)
    for row in range(len(space)):
        configuration = configuration_of(context, space, row)
        for routes in everywhere(context, configuration):
            if configuration.layer_split == "by_gpu_type" and not one_type_each(context, routes):
                continue
            for shared in shares(context, configuration):
                candidate = Candidate(shared, pooled(context, shared, routes))
                found = evaluate(context, candidate, lambda problem: portfolio_timing(problem, None))
                if found is not None:
                    yield found.iteration_s


def asked(
    link: str, *gpus: str, hosts: tuple[int, ...] = (1, 1), vocabulary: int = 32_000, **allowed: Any
) -> PlanRequest:
    """Eight GPUs per building and type."""
    options = {"relative_gap": 0.0, "time_limit_s": 30.0, "reproducible": True}
    request = job(hosts=hosts, batch=4, allowed=SMALL | allowed, link=LINKS[link], options=options, **NARROW)
    document = request.model_dump(mode="json")
    for pool, gpu in zip(document["cluster"]["pools"], gpus, strict=True):
        pool["gpu"] = gpu
    document["workload"]["architecture"]["vocab_size"] = vocabulary
    return PlanRequest.model_validate(document)


def configurations(request: PlanRequest) -> list[Configuration]:
    """Of the whole space."""
    context, space = context_of(request), enumerate_space(request)
    return [configuration_of(context, space, row) for row in range(len(space))]


def holds(request: PlanRequest) -> None:
    """No placement of any configuration beats the plan, and none its bound."""
    least_s = min(all_times_s(context_of(request)))
    outcome = plan(request, clock=lambda: 0.0)
    assert isinstance(outcome, Planned)
    assert outcome.plan.proof.lower_bound_s <= least_s * (1 + 1e-9)
    assert outcome.plan.metrics.iteration_s <= least_s * (1 + 1e-6)


H100, B200, A100 = "H100-SXM-80G", "B200-SXM", "A100-SXM-80G"


@pytest.mark.parametrize("link", LINKS)
def test_one_type(link: str) -> None:
    holds(asked(link, H100, H100))


@pytest.mark.parametrize("link", LINKS)
def test_two_types(link: str) -> None:
    holds(asked(link, H100, B200))


@pytest.mark.parametrize("link", LINKS)
def test_two_types_in_one_building_beside_more_of_the_faster(link: str) -> None:
    """On the faster type alone the ranks are in two buildings."""
    document = asked(link, H100, H100, tp=[8], pp=[2]).model_dump(mode="json")
    pools = document["cluster"]["pools"]
    pools.append(pools[0] | {"id": "slower", "gpu": A100})
    request = PlanRequest.model_validate(document)
    assert "by_gpu_type" in [one.layer_split for one in configurations(request)]
    holds(request)


@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("gpus", [(A100, H100, H100), (A100, H100, B200)])
def test_three_buildings(link: str, gpus: tuple[str, ...]) -> None:
    holds(asked(link, *gpus, hosts=(1, 1, 1), pp=[2, 3]))


@pytest.mark.slow
def test_chunks() -> None:
    holds(asked("near", H100, A100, pp=[2], vpp=[1, 2]))


@pytest.mark.parametrize("link", LINKS)
def test_a_last_stage_without_layers(link: str) -> None:
    request = asked(link, H100, H100, vocabulary=1_000_000, pp=[2, 3, 4])
    assert 0 in [one.layers_per_stage[-1] for one in configurations(request)]
    holds(request)


@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS)
def test_a_last_chunk_without_layers(link: str) -> None:
    holds(asked(link, H100, H100, vocabulary=1_000_000, pp=[2], vpp=[1, 2, 3]))
