"""No bound is above the time of any plan: random configurations and placements on mixed types, buildings and zones."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

from models.plan import Configuration
from models.request import PlanRequest
from solver.bounds.relaxation import refined_bound_s
from solver.bounds.screening import screening_bounds
from solver.bounds.work import lower_bounds
from solver.configurations.enumerate import EVEN, enumerate_space
from solver.context import Context
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placement_problem, placements, pooled
from solver.evaluation.scheduling import portfolio_timing
from solver.placement.problem import RouteCount
from solver.placement.routes import merged
from tests.build_job import ARCHITECTURE, context_of

SLACK = 1 + 1e-9
SHORT: dict[str, Any] = {**ARCHITECTURE, "num_layers": 12}


def campus(pools: list[dict[str, Any]], *, oversubscription: float, latency_s: float, **more: Any) -> dict[str, Any]:
    """Two zones in each of two buildings of a region, with a pool in each zone."""
    uplink = {"oversubscription": oversubscription, "latency_s": latency_s, **more}
    places: list[dict[str, Any]] = [{"id": "region", "level": "region"}]
    for building in "ab":
        places.append({"id": building, "level": "building", "parent": "region", "uplink": uplink})
        places += [
            {"id": f"{building}{zone}", "level": "zone", "parent": building, "uplink": uplink} for zone in range(2)
        ]
    zones = ("a0", "a1", "b0", "b1")
    placed = [{"id": f"p{zone}", "place": zone, **pool} for zone, pool in zip(zones, pools, strict=True)]
    return {"name": "campus", "places": places, "pools": placed}


def hosts(gpu: str, count: int, nic_bytes_per_s: float = 5e10) -> dict[str, Any]:
    """A pool of one type."""
    return {"gpu": gpu, "num_hosts": count, "nic_bytes_per_s": nic_bytes_per_s}


def cloud(counts: tuple[int, ...], nic_bytes_per_s: float, **link: Any) -> dict[str, Any]:
    """Buildings with explicit links, two in a region and the others far away."""
    places: list[dict[str, Any]] = [{"id": f"r{region}", "level": "region"} for region in range(2)]
    names = [f"b{number}" for number in range(len(counts))]
    places += [
        {"id": name, "level": "building", "parent": f"r{min(number // 2, 1)}"} for number, name in enumerate(names)
    ]
    pools = [
        {"id": f"p{name}", "place": name, **hosts("H100-SXM-80G", count, nic_bytes_per_s)}
        for name, count in zip(names, counts, strict=True)
    ]
    links = [
        {"id": f"{one}-{other}", "from_place": one, "to_place": other, "capacity_bytes_per_s": 2e10, **link}
        for one, other in itertools.combinations(names, 2)
    ]
    return {"name": "cloud", "places": places, "pools": pools, "links": links}


CASES = {
    "few flows on many planes": (
        SHORT,
        cloud((1, 1, 2), 1e9, latency_s=1.5e-2, planes=32, technology="tcp", load_balancing=["ecmp"]),
    ),
    "streams that loss holds back": (
        SHORT,
        cloud(
            (1, 1, 1), 5e10, latency_s=3e-2, planes=8, technology="tcp", load_balancing=["ecmp"], loss_probability=1e-5
        ),
    ),
    "far and lossy": (
        SHORT,
        cloud((1, 1, 2), 5e10, latency_s=5e-3, planes=16, load_balancing=["ecmp", "dqplb"], loss_probability=1e-4),
    ),
    "two buildings far apart": (SHORT, cloud((2, 2), 5e10, latency_s=2e-2, planes=8, load_balancing=["dqplb"])),
    "three equal buildings in a far line": (SHORT, cloud((1, 1, 1), 5e10, latency_s=8e-3, loss_probability=1e-5)),
    "three types": (
        SHORT,
        campus(
            [hosts("H100-SXM-80G", 1), hosts("B200-SXM", 1), hosts("A100-SXM-40G", 2), hosts("H100-SXM-80G", 1)],
            oversubscription=4.0,
            latency_s=1e-3,
        ),
    ),
    "fast and small beside slow and roomy": (
        SHORT,
        campus(
            [hosts("H100-SXM-80G", 1), hosts("MI300X", 2), hosts("H100-SXM-80G", 1), hosts("MI300X", 1)],
            oversubscription=1.0,
            latency_s=1e-5,
        ),
    ),
    "little memory": (
        SHORT,
        campus(
            [hosts("H100-SXM-80G", 1), hosts("B200-SXM", 1), hosts("H200-SXM-141G", 1), hosts("H100-SXM-80G", 1)],
            oversubscription=4.0,
            latency_s=1e-4,
        ),
    ),
    "one type, thin and far": (
        SHORT,
        campus([hosts("H100-SXM-80G", count) for count in (1, 1, 1, 2)], oversubscription=64.0, latency_s=2e-2),
    ),
    "thin cards of two kinds": (
        SHORT,
        campus([hosts("H100-SXM-80G", 2, rate) for rate in (1e9, 1e9, 3e9, 1e9)], oversubscription=1.0, latency_s=1e-5),
    ),
    "slow cards in one zone": (
        SHORT,
        campus(
            [hosts("H100-SXM-80G", 1, rate) for rate in (5e10, 5e10, 2e9, 5e10)], oversubscription=2.0, latency_s=1e-4
        ),
    ),
}

HEADROOM = {"little memory": 0.85}  # where round trips and seconds in memory bind


def request_of(name: str) -> PlanRequest:
    """The case's job on its campus."""
    architecture, cluster = CASES[name]
    return PlanRequest.model_validate(
        {
            "workload": {"architecture": architecture, "sequence_length": 4096, "global_batch_sequences": 48},
            "cluster": cluster,
            "constraints": {"memory_headroom_fraction": HEADROOM.get(name, 0.1)},
        }
    )


def anywhere(context: Context, configuration: Configuration, random: np.random.Generator) -> Candidate | None:
    """Every stage group somewhere, one replica after another; None when rooms are too small."""
    problem = placement_problem(context, configuration)
    left = np.array(problem.capacity_u)
    if left.sum() < problem.num_ranks * problem.num_replicas:
        return None
    routes = []
    for _ in range(problem.num_replicas):
        slots = np.repeat(np.arange(len(left)), left)
        chosen = random.choice(slots, size=problem.num_ranks, replace=False)
        groups_p = np.sort(chosen) if random.random() < 0.5 else chosen
        np.subtract.at(left, groups_p, 1)
        routes.append(RouteCount(tuple(int(u) for u in groups_p), 1))
    return Candidate(configuration, pooled(context, configuration, merged(routes)))


def times_s(context: Context, configuration: Configuration, random: np.random.Generator) -> list[float]:
    """Times of a configuration on usual placements and anywhere, with the quick generators and a plain one."""
    found = [*placements(context, configuration, ("replicas_whole", "ranks_whole"))]
    found += [one for _ in range(2) if (one := anywhere(context, configuration, random)) is not None]
    return timed_s(context, found)


def timed_s(context: Context, found: list[Candidate]) -> list[float]:
    """Times of candidates, with the quick generators and plain ones."""
    schedulers = [partial(portfolio_timing, names=names) for names in (("greedy",), ("one_f_one_b", "interleaved"))]
    evaluations = [evaluate(context, candidate, scheduler) for candidate in found for scheduler in schedulers]
    return [one.iteration_s for one in evaluations if one is not None]


def violations(name: str, number: int, seed: int) -> tuple[int, list[str]]:
    """How many plans of a case were timed, and those below some bound."""
    context = context_of(request_of(name))
    space, random = enumerate_space(context.request), np.random.default_rng(seed)
    bounds = lower_bounds(context, space)
    ahead_s = screening_bounds(context, space).bound_s
    small = space.columns.num_microbatches * space.columns.pp <= 96
    rows = np.flatnonzero(bounds.fits & small & (space.layer_split == EVEN))  # others follow a placement by type
    spread = rows[space.columns.num_gpus[rows] > 8]
    num_timed, below = 0, []
    for row in random.choice(spread, size=min(number, len(spread)), replace=False).tolist():
        configuration = configuration_of(context, space, row)
        relaxed_s = refined_bound_s(context, [configuration], 0.0)
        times = times_s(context, configuration, random)
        sharper_s = refined_bound_s(context, [configuration], 4.0 * min(times, default=0.0))
        for time_s in times:
            num_timed += 1
            known = {
                "screening_bounds": ahead_s[row],
                "bound": bounds.iteration_s[row],
                "relaxed": relaxed_s,
                "sharper": sharper_s,
            }
            for what, bound_s in known.items():
                if bound_s > time_s * SLACK:
                    below.append(f"{what} {bound_s:.6g} above {time_s:.6g} s: {configuration}")
    return num_timed, below


LONG = {"three types", "fast and small beside slow and roomy"}  # four seconds each; other bounds are tested on them


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in CASES]
)
def test_no_plan_is_faster_than_a_bound(name: str) -> None:
    num_timed, below = violations(name, number=12, seed=11)
    assert num_timed > 20
    assert not below, "\n".join(below[:5])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_plan_of_thousands_is_faster_than_a_bound(name: str) -> None:
    num_timed, below = violations(name, number=400, seed=5)
    assert num_timed > 1000
    assert not below, "\n".join(below[:5])
