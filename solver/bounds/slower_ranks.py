"""A bound of an even pipeline for the replica with the most ranks on slower GPU types, wherever these are.

The search over the types of all ranks is `bounds/stage_partition.py`. Proof: docs/bounds.md, "Slower GPU types".
"""

from collections.abc import Iterator, Sequence

import numpy as np

from models.cluster import Pool
from models.plan import Configuration
from solver.bounds.bounded import ROUNDING
from solver.bounds.least_hops import MessageDelays
from solver.bounds.rank_need_kernel import PartitionProblem
from solver.bounds.stage_partition import TOGETHER, least_time_s, needs_of
from solver.configurations.stages import PoolStages
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.placement.capacity_groups import groups_of

Costs = Sequence[tuple[Pool, PoolStages]]


def slower_ranks_s(
    context: Context, configuration: Configuration, costs: Costs, exposed_s: FloatArray, high_s: float
) -> float:
    """The largest time up to `high_s` found impossible for some replica.

    The faster types hold g stage groups, so some of the dp replicas has no more than floor(g / dp) ranks on them.
    """
    best_s = 0.0
    for fast, slow, most_fast in halves(context, configuration, costs):
        if most_fast == configuration.degrees.pp:
            continue
        problem = _problem(context, configuration, (fast, slow), most_fast, exposed_s)
        best_s = max(best_s, least_time_s(problem, high_s))
    return best_s


def crossing_ranks_s(
    context: Context,
    configuration: Configuration,
    costs: Costs,
    exposed_s: FloatArray,
    high_s: float,
    *,
    delays: MessageDelays,
) -> float:
    """The largest time up to `high_s` found impossible for a replica with these delays, on whatever types it is."""
    problem = _problem(context, configuration, (costs, costs), configuration.degrees.pp, exposed_s)
    return least_time_s(problem._replace(delays=delays), high_s)


def halves(context: Context, configuration: Configuration, costs: Costs) -> Iterator[tuple[Costs, Costs, int]]:
    """Faster and slower types, every way to part them, and the most ranks of some replica on the faster ones."""
    degrees = configuration.degrees
    order = sorted(costs, key=lambda one: float(one[1].cost.total_s.sum()))
    names = list(dict.fromkeys(pool.gpu.name for pool, _ in order))
    for place in range(1, len(names)):
        quick = set(names[:place])
        groups = sum(groups_of(pool, degrees.tp, degrees.cp) for pool in context.pools if pool.gpu.name in quick)
        fast = [one for one in order if one[0].gpu.name in quick]
        yield fast, [one for one in order if one[0].gpu.name not in quick], min(groups // degrees.dp, degrees.pp)


def _problem(
    context: Context, configuration: Configuration, halves: tuple[Costs, Costs], most_fast: int, exposed_s: FloatArray
) -> PartitionProblem:
    """Every rank is a kind of its own, with its own layers and no choice of them."""
    pp = configuration.degrees.pp
    folded = configuration.family == "v"
    needs = np.array(
        [
            [needs_of(_needs(context, configuration, half, rank, exposed_s), folded=folded) for half in halves]
            for rank in range(pp)
        ]
    )
    update = [stages.optimizer_s for half in halves for _, stages in half]
    return PartitionProblem(
        kind_r=np.arange(pp),
        held_c=np.array([min(most_fast, pp), pp]),
        num_layers=0,
        least_r=np.zeros(pp, dtype=np.int64),
        num_chunks=configuration.degrees.vpp,
        looped=configuration.family == "loop",
        update_s=float(np.minimum.reduce(update).max()),
        needs=np.ascontiguousarray(np.moveaxis(needs, -1, 0))[..., None],
        apart_cc=TOGETHER,
    )


def _needs(
    context: Context, configuration: Configuration, half: Costs, rank: int, exposed_s: FloatArray
) -> dict[str, float]:
    """What a rank takes at least on these types, as `PartitionProblem` has it."""
    own, m = configuration.stages_of_rank(rank), configuration.num_microbatches
    forward, gradient, weights, held, context_bytes = (
        np.minimum.reduce([getattr(stages.cost, name)[own] for _, stages in half])
        for name in ("forward_s", "input_grad_s", "weight_grad_s", "activation_bytes", "weight_grad_context_bytes")
    )
    capacity = max(
        context.memory_limit_bytes(pool.gpu) - float(stages.static.total_bytes[rank]) for pool, stages in half
    )
    update = min(float(stages.optimizer_s[rank]) for _, stages in half)
    after = float(exposed_s[own].min()) + update
    both, fits = forward + gradient, held.sum() <= capacity + ROUNDING * abs(capacity)
    last = float(forward[-1] + gradient.sum())
    total = m * float((both + weights).sum())
    exchanged = max(m * float((both + weights)[exposed_s[own] >= one].sum()) + float(one) for one in exposed_s[own])
    first_end = float(weights[0] + exposed_s[0]) if rank == 0 else 0.0
    early = min(m * float(forward.sum()), max(capacity, 0.0) * float(np.max(forward / np.maximum(held, 1e-9))))
    late = min(m * float(weights.sum()), max(capacity, 0.0) * float(np.max(weights / np.maximum(context_bytes, 1e-9))))
    needs = {
        "work": exchanged + update if fits else np.inf,
        "early": total - early + after,
        "early_back": total - early - late + update,
        "first_gradient": float(gradient[0]),
        "last_gradient": float(gradient[-1]),
        "gradient_before_last": float(gradient[:-1].sum()),
        "forward": float(forward.sum()),
        "late": m * (last + float(weights.sum())) + after,
        "through": total - late + update,
        "last": m * float(both[-1]) + update,
        "first_chunk": float(forward[0]),
        "last_chunk": float(forward[-1]),
        "before_last": float(forward[:-1].sum()),
        "both": float(both.sum()),
        "even_both": float(both.sum()),
        "own_both": float(both.sum()),
        "home": (m - 1) * float(np.maximum(forward, gradient).max()) + update,
        "forwards": m * float(forward.sum()) + update,
        "first_end": first_end,
        "input_gradient": float(gradient.sum()),
        "weighted": float((np.arange(len(own)) * both).sum()),
        "trips": 1.0,
    }
    if not fits or capacity <= 0 or not held.any():
        return needs
    if len(own) == 1:
        trips = float(np.ceil(m / np.floor(capacity / held[0] * (1.0 + ROUNDING))))
        needs |= {"trips": trips, "trip_last": (trips - 1.0) * float(weights[0]) * float(context_bytes[0] >= held[0])}
    else:
        retained = held * both + np.minimum(context_bytes, held) * weights
        needs |= {"held_own": m * float(retained.sum()) / capacity, "held_per_s": m * float(held.min()) / capacity}
    return needs
