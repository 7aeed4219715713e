"""Two plans side by side, and what moves between them, as plain values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import Any

from app.compared import MoveFigures, MoveItem
from models.figures import CAUSES_OF_TIME
from models.plan import Plan
from models.pointers import escaped
from models.statements import bounds_time

MAX_DIFFERENCES = 500  # of two requests; more than that is another cluster, and says so by its name


def comparison(first: Plan, second: Plan) -> dict[str, Any]:
    """Figures, causes of time, GPUs and bytes of both plans with the change from A to B; choices that differ; moves."""
    return {
        "figures": _beside(_figures(first), _figures(second)),
        "time": _beside(_time(first), _time(second)),
        "gpus_of_pool": _beside(first.gpus_of_pool, second.gpus_of_pool),
        "bytes_of_link": _beside(_bytes_of_link(first), _bytes_of_link(second)),
        "configuration": {
            name: {"a": one, "b": other}
            for (name, one), other in zip(_choices(first).items(), _choices(second).values(), strict=True)
            if one != other
        },
        "moves": moves_between(first, second).model_dump(),
        "best_plans_s": _best_plans(first, second),
    }


def predicted(first: Plan, second: Plan, *, same_job: bool) -> dict[str, Any] | None:
    """Error bars of both plans and of their ratio; None where a plan states none, or their profiles differ.

    Of one job and one profile what both plans share cancels: the spread of ln(T_b / T_a) has the differences of the
    common errors and the spreads of the two runs; of different jobs the spreads of their families, too.
    """
    from solver.cost.uncertainty import interval, total_spread  # imports numpy, which takes a while

    one, other = first.prediction, second.prediction
    if one is None or other is None or first.stack_profile != second.stack_profile:
        return None
    if len(one.common_errors) != len(other.common_errors):  # plans of two versions of the profile
        return None
    apart = [a - b for a, b in zip(one.common_errors, other.common_errors, strict=True)]
    families = () if same_job else (one.family_spread, other.family_spread)
    spread = total_spread([*apart, *families], one.run_spread, other.run_spread)
    ratio = interval(other.iteration_s.p50 / one.iteration_s.p50, spread)
    return {
        "a": one,
        "b": other,
        "time_ratio": ratio,
        "b_faster_probability": NormalDist().cdf(-math.log(ratio.p50) / spread) if spread else float(ratio.p50 < 1),
    }


def _best_plans(first: Plan, second: Plan) -> dict[str, float]:
    """What the fastest plan of B's request takes more than that of A's: in [LB_b - T_a, T_b - LB_a], whatever a longer
    search finds."""
    return {"least": _least_s(second) - first.metrics.iteration_s, "most": second.metrics.iteration_s - _least_s(first)}


def _least_s(plan: Plan) -> float:
    """What no plan of the request falls below; by light, where the proof is one of another objective than time."""
    proof = plan.proof
    if bounds_time(proof.proven):
        return proof.lower_bound_s
    return min(proof.speed_of_light_s, plan.metrics.iteration_s)


def summary(plan: Plan) -> dict[str, Any]:
    """The parts of a plan that its figures are made of, without its timelines."""
    kept = ("configuration", "time", "metrics", "prediction", "proof", "link_loads", "memory", "one_building_s",
            "stack_profile")  # fmt: skip
    return {**{name: getattr(plan, name) for name in kept}, "routes": plan.placement.routes,
            "crossing": plan.placement.crossing}  # fmt: skip


def differences(first: Any, second: Any) -> dict[str, dict[str, Any]]:
    """Where two JSON documents differ, by JSON Pointer; what one of them lacks is None there.

    >>> differences({"a": [1, 2], "b": 3}, {"a": [1, 5], "c/d": 4})
    {'/a/1': {'a': 2, 'b': 5}, '/b': {'a': 3, 'b': None}, '/c~1d': {'a': None, 'b': 4}}
    """
    found: dict[str, dict[str, Any]] = {}
    for pointer, one, other in _differing(first, second, ""):
        if len(found) == MAX_DIFFERENCES:
            break
        found[pointer] = {"a": one, "b": other}
    return found


def _differing(first: Any, second: Any, pointer: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys((*first, *second)):
            yield from _differing(first.get(key), second.get(key), f"{pointer}/{escaped(key)}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from _differing(one, other, f"{pointer}/{index}")
    elif first != second:
        yield pointer, first, second


def _beside(first: Mapping[str, float | None], second: Mapping[str, float | None]) -> dict[str, Any]:
    """What either of them has; a plan that lacks a pool or a link has nothing on it."""
    names = dict.fromkeys((*first, *second))
    pairs = ((name, first.get(name, 0), second.get(name, 0)) for name in names)
    return {name: {"a": one, "b": other, "change": _change(one, other)} for name, one, other in pairs}


def _change(before: float | None, after: float | None) -> float | None:
    """The relative change; None where there is nothing to relate to.

    >>> _change(4.0, 5.0), _change(None, 5.0), _change(0.0, 5.0), _change(0.0, 0.0)
    (0.25, None, None, 0.0)
    """
    if before is None or after is None:
        return None
    if before == after:
        return 0.0
    return after / before - 1 if before else None


def _figures(plan: Plan) -> dict[str, float | None]:
    metrics = plan.metrics
    return {
        "iteration_s": metrics.iteration_s,
        "lower_bound_s": plan.proof.lower_bound_s if bounds_time(plan.proof.proven) else None,
        "relative_gap": plan.proof.relative_gap,
        "tokens_per_s": metrics.tokens_per_s,
        "tokens_per_s_per_gpu": metrics.tokens_per_s_per_gpu,
        "model_flops_utilisation": metrics.model_flops_utilisation,
        "num_gpus": metrics.num_gpus,
        "cross_building_bytes": metrics.cross_building_bytes,
        "usd_per_million_tokens": metrics.usd_per_million_tokens,
        "fullest_gpu_bytes": max((use.total_bytes for use in plan.memory), default=None),
    }


def _time(plan: Plan) -> dict[str, float | None]:
    return {field: float(getattr(plan.time, field)) for field in CAUSES_OF_TIME}


def _bytes_of_link(plan: Plan) -> dict[str, float | None]:
    """Bytes per iteration by link and cause, both directions together."""
    carried: dict[str, float | None] = {}
    for load in plan.link_loads:
        for flow in load.flows:
            name = f"{load.link} {flow.cause}"
            carried[name] = (carried.get(name) or 0.0) + flow.bytes_per_iteration
    return carried


def _choices(plan: Plan) -> dict[str, Any]:
    one = plan.configuration
    return {
        **one.degrees.model_dump(),
        **one.model_dump(exclude={"degrees"}, mode="json"),
        "crossing": plan.placement.crossing,
        "stack_profile": plan.stack_profile,
    }


def moves_between(before: Plan, after: Plan) -> MoveFigures:
    """The least number of stage groups that fetch layers they did not hold, replicas being interchangeable.

    A group stays where one of the plan before, in the same place and pool, holds the same layers, split the same way.
    """
    from solver.questions.standing import rank_keys  # imports numpy, which takes a while

    old, new = rank_keys(before.configuration), rank_keys(after.configuration)
    held_by = {key: rank for rank, key in enumerate(old)}
    moves: list[MoveItem] = []
    num_kept = num_other = 0
    for rank, key in enumerate(new):
        here = _homes(after, rank)
        if key not in held_by:
            num_other += here.total()
            continue
        there = _homes(before, held_by[key])
        num_kept += (there & here).total()
        moves += _moves_of_rank(rank, there, here)
    num_groups = after.configuration.degrees.pp * after.configuration.degrees.dp
    return MoveFigures(
        num_stage_groups=num_groups,
        num_moved=num_groups - num_kept,
        num_with_other_layers=num_other,
        comparable=num_other < num_groups,
        moves=moves,
    )


def _homes(plan: Plan, rank: int) -> Counter[tuple[str, str]]:
    """Stage groups of a rank by place and pool."""
    counts: Counter[tuple[str, str]] = Counter()
    for route in plan.placement.routes:
        counts[route.places[rank], route.pools[rank]] += route.num_replicas
    return counts


def _moves_of_rank(rank: int, before: Counter[tuple[str, str]], after: Counter[tuple[str, str]]) -> list[MoveItem]:
    leaving, arriving = sorted((before - after).items()), sorted((after - before).items())
    moves: list[MoveItem] = []
    while leaving and arriving:
        (source, num_out), (target, num_in) = leaving[0], arriving[0]
        number = min(num_out, num_in)
        moves.append(
            MoveItem(
                pipeline_rank=rank,
                from_place=source[0],
                from_pool=source[1],
                to_place=target[0],
                to_pool=target[1],
                num_stage_groups=number,
            )
        )
        leaving = leaving[1:] if number == num_out else [(source, num_out - number), *leaving[1:]]
        arriving = arriving[1:] if number == num_in else [(target, num_in - number), *arriving[1:]]
    return moves
