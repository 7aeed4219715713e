"""No partition over two buildings takes less than its bound, wherever its ranks lie and however they are ordered."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from models.plan import Configuration
from models.request import PlanRequest
from solver.bounds.crossing_groups import GroupCrossings
from solver.bounds.cuts import cuts
from solver.bounds.typed_pipelines import Partition, PartitionPipelines
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placement_problem, pooled
from solver.evaluation.scheduling import portfolio_timing
from solver.placement.problem import RouteCount
from solver.placement.routes import merged
from tests.build_job import ARCHITECTURE, context_of

GPUS = ("H100-SXM-80G", "A100-SXM-80G")
MODEL: dict[str, Any] = {**ARCHITECTURE, "num_layers": 8, "hidden_size": 2048, "ffn_hidden_size": 8192}
EXPERTS = {"num_experts": 4, "experts_per_token": 2, "expert_ffn_hidden_size": 4096, "moe_layer_stride": 3}
LINKS: dict[str, dict[str, Any]] = {
    "thin": {"capacity_bytes_per_s": 3e9, "latency_s": 1e-5},
    "far": {"capacity_bytes_per_s": 4e9, "latency_s": 1e-2, "loss_probability": 1e-5},
    "far and wide": {"capacity_bytes_per_s": 4e10, "latency_s": 2e-2},
    "thin one way": {"capacity_bytes_per_s": 2e10, "reverse_capacity_bytes_per_s": 2e9, "latency_s": 1e-3},
}
SHAPES = [("one_way", 4, 1), ("v", 4, 2), ("v", 3, 2), ("loop", 3, 2), ("loop", 4, 2)]
SCHEDULERS = [partial(portfolio_timing, names=names) for names in (("greedy",), ("one_f_one_b", "interleaved"))]


def buildings(
    places: str, link: str, family: str, num_ranks: int, vpp: int, **more: Any
) -> tuple[Context, Configuration]:
    """A job on buildings with a host of either GPU type each, two replicas of four GPUs a stage."""
    pools = [
        {"id": f"{place}{gpu}", "place": place, "gpu": gpu, "num_hosts": 1, "nic_bytes_per_s": 5e10}
        for place in places
        for gpu in GPUS
    ]
    allowed = {"tp": [4], "cp": [1], "ep": [1], "dp": [2], "pp": [num_ranks], "vpp": [vpp], "recompute": ["none"]}
    request = {
        "workload": {"architecture": {**MODEL, **more}, "sequence_length": 4096, "global_batch_sequences": 12},
        "cluster": {
            "name": "two",
            "places": [{"id": place, "level": "building"} for place in places],
            "pools": pools,
            "links": [
                {"id": one + other, "from_place": one, "to_place": other, "planes": 4, **LINKS[link]}
                for one, other in itertools.combinations(places, 2)
            ],
        },
        "constraints": {
            "allowed": {
                **allowed,
                "family": [family],
                "layer_split": ["by_gpu_type"],
                "micro_batch_sequences": [1],
                "sharding": ["zero1"],
            }
        },
    }
    context = context_of(PlanRequest.model_validate(request))
    return context, configuration_of(context, enumerate_space(context.request), 0)


def placed(
    context: Context, configuration: Configuration, gpu_r: list[str], places: str = "ab", most: int = 10**6
) -> Iterator[Candidate]:
    """Every way of ranks on these types to lie: each in one building, or a replica in either of two; or so many."""
    building_u, room = context.geography.building_u, placement_problem(context, configuration).capacity_u
    groups = {(places[building_u[number]], one.gpu): number for number, one in enumerate(context.capacity_groups)}
    each = itertools.combinations_with_replacement(places, 2)
    ways = list(itertools.product(map("".join, each), repeat=len(gpu_r)))
    for number in np.random.default_rng(7).permutation(len(ways))[:most].tolist():
        where = ways[number]
        replicas = [
            tuple(groups[own[replica], gpu] for own, gpu in zip(where, gpu_r, strict=True)) for replica in range(2)
        ]
        used = np.bincount(np.array(replicas).ravel(), minlength=len(room))
        if (used <= room).all():
            yield Candidate(configuration, pooled(context, configuration, merged([RouteCount(r, 1) for r in replicas])))


@pytest.mark.parametrize(("family", "num_ranks", "vpp"), SHAPES)
@pytest.mark.parametrize(
    ("more", "link"),
    [
        *(pytest.param({}, link, id=f"dense-{link}") for link in LINKS),
        *(pytest.param({"moe": EXPERTS}, link, id=f"experts-{link}") for link in ("far", "thin one way")),
        *(pytest.param({"moe": EXPERTS}, link, id=f"experts-{link}", marks=pytest.mark.slow)
          for link in ("thin", "far and wide")),
    ],
)  # fmt: skip
def test_no_placement_of_a_partition_is_faster_than_its_bound(
    more: dict[str, Any], link: str, family: str, num_ranks: int, vpp: int
) -> None:
    context, configuration = buildings("ab", link, family, num_ranks, vpp, **more)
    pipelines, near = (PartitionPipelines.of(context, [configuration]) for _ in range(2))
    near.crossings.clear()
    random, num_raised = np.random.default_rng(5), 0
    for _ in range(4):
        gpu_r = random.permutation([0, 0, 1, 1])[:num_ranks].tolist()
        layers_r = vpp + random.multinomial(8 - num_ranks * vpp, random.dirichlet(np.ones(num_ranks)))
        partition: Partition = tuple(gpu_r), tuple(layers_r.tolist())
        stages = next(pipelines.stages(*partition))
        shared = configuration.model_copy(update={"layers_per_stage": stages})
        names = [next(iter(pipelines.gpus[gpu].names)) for gpu in gpu_r]
        found = [evaluate(context, one, how) for one in placed(context, shared, names) for how in SCHEDULERS]
        least_s = min(one.iteration_s for one in found if one is not None)
        bound_s = pipelines.bound_s(partition, float("inf"))
        assert bound_s <= least_s * (1 + 1e-9), f"{partition} {bound_s} {least_s}"
        assert pipelines.bound_s(partition, bound_s / 2.0) <= bound_s * (1 + 1e-9)
        num_raised += bound_s > near.bound_s(partition, float("inf")) * 1.001
    assert num_raised or link == "far and wide"  # there ranks exchange between the buildings


@pytest.mark.parametrize(("family", "num_ranks", "vpp"), SHAPES)
@pytest.mark.parametrize("link", ["thin", "far", "thin one way"])
def test_no_placement_over_three_buildings_is_faster(link: str, family: str, num_ranks: int, vpp: int) -> None:
    """Of 400 ways to lie: each building holds a rank of either type."""
    context, configuration = buildings("abc", link, family, num_ranks, vpp)
    pipelines, near = (PartitionPipelines.of(context, [configuration]) for _ in range(2))
    types = [gpu.names for gpu in pipelines.gpus]
    pipelines.crossings.extend(
        GroupCrossings.of(context, [configuration], cut, types, pipelines.hops.hop_s) for cut in cuts(context)
    )
    near.crossings.clear()
    partition: Partition = (0, 0, 1, 1)[:num_ranks], (2, 2, 2, 2) if num_ranks == 4 else (3, 3, 2)
    shared = configuration.model_copy(update={"layers_per_stage": next(pipelines.stages(*partition))})
    names = [next(iter(pipelines.gpus[gpu].names)) for gpu in partition[0]]
    some = placed(context, shared, names, "abc", 400)
    found = [evaluate(context, one, how) for one in some for how in SCHEDULERS]
    least_s = min(one.iteration_s for one in found if one is not None)
    bound_s = pipelines.bound_s(partition, float("inf"))
    assert bound_s <= least_s * (1 + 1e-9)
    assert bound_s > near.bound_s(partition, float("inf")) * 1.0001 or link != "far"
