"""What crossings cost an iteration of a configuration: the prices that the placement trades off.

Latencies, rates and gradients become `Prices`, which steer the placement; what counts is the evaluation.
"""

from __future__ import annotations

from models.plan import Configuration
from solver.context import Context
from solver.cost.columns import columns_of
from solver.cost.data_parallel import crossing_bytes
from solver.evaluation.evaluate import Evaluation
from solver.placement.problem import Prices, Tier

NOMINAL_CROSSING_S, NOMINAL_SPAN_S = 1.0, 0.1  # any crossing is worth avoiding, one of replicas less than one of ranks


def nominal_prices(context: Context, configuration: Configuration) -> Prices:
    """Prices that only count crossings: of ranks first, the nearer the better, then of replicas."""
    tiers = tuple(
        Tier(NOMINAL_CROSSING_S * (number + 1), tier.group_u)
        for number, tier in enumerate(context.geography.crossing_tiers)
    )
    return Prices(tiers, (NOMINAL_SPAN_S,) * configuration.degrees.pp, (0.0,) * context.geography.num_buildings, 0.0)


def prices_of(context: Context, found: Evaluation) -> Prices:
    """2 delays per crossing and pass, slots of the messages on what leaves a building, exchanges over the worst cut."""
    configuration, worst = found.candidate.configuration, context.geography.worst_cut_bytes_per_s
    degrees, passes = configuration.degrees, configuration.degrees.vpp
    per_replica_s = found.message_bytes * passes
    tiers = tuple(
        Tier(2.0 * passes * (tier.crossing_s + found.message_bytes / worst), tier.group_u)
        for tier in context.geography.crossing_tiers
    )
    stages = next(iter(found.stages.values()))
    work = [0.0] * degrees.pp
    for stage in range(degrees.num_stages):
        work[configuration.rank_of_stage(stage)] += float(stages.cost.total_s[stage])
    return Prices(
        tiers=tiers,
        span_s=tuple(_span_s(context, found, rank) for rank in range(degrees.pp)),
        slot_b=tuple(per_replica_s / rate for rate in context.geography.leaving_bytes_per_s),
        work_s=max(work),
    )


def _span_s(context: Context, found: Evaluation, rank: int) -> float:
    """Exchange of a rank's stages between two buildings, at the pace of the evaluation's own exchanges."""
    configuration = found.candidate.configuration
    stages, columns = next(iter(found.stages.values())), columns_of(configuration)
    own = configuration.stages_of_rank(rank)
    dense = stages.cost.parameters[own].sum() * columns.tp
    parameters = dense + stages.cost.expert_parameters[own].sum() * columns.tp * columns.ep
    size = crossing_bytes(parameters, columns, 2, context.job)
    return float(size[0]) * _seconds_per_byte(context, found)


def _seconds_per_byte(context: Context, found: Evaluation) -> float:
    """The worst cut's, or what transports and rings make of it in the evaluation: its best exchange between places."""
    rings = [cost.site_ring for cost in found.costs if cost.site_ring is not None and cost.site_ring.sent_bytes > 0]
    best = min((one.shared_s / one.sent_bytes for one in rings), default=0.0)
    return max(best, 1.0 / context.geography.worst_cut_bytes_per_s)
