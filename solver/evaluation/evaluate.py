"""A candidate timed end to end: one pipeline problem and schedule per route, then the exchanges and the update.

Reporting it as a plan is `report.py`; judging it is `solver/verify`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest

import numpy as np

from models.base import MOST_SECONDS
from models.plan import Configuration, StageExchange
from models.schedule import (
    PipelineOptions,
    PipelineProblem,
    PipelineRank,
    PipelineStage,
    minimum_budget_bytes,
)
from models.statements import CARDS_LINK, EXCHANGE_LINK
from solver.configurations.framework import backward_of
from solver.configurations.stages import PoolStages, pool_stages
from solver.context import Context
from solver.evaluation.candidate import Candidate
from solver.evaluation.scheduling import Scheduler, Timing, reusing_orders, rough_time_s
from solver.evaluation.ways import TimedWay, Way, better_way
from solver.pipeline.bounds import lower_bound
from solver.placement.fill import PooledRoute
from solver.transport.exchange import LEAST_GAIN, ExchangeCost, exchange_costs, exchanging_edges, rings_together
from solver.transport.exchange_times import run_exchanges, with_better_rings
from solver.transport.hops import (
    HopDelay,
    StageMessages,
    free_bytes_per_s,
    pipeline_hops,
    reserved_bytes_per_s,
    route_hops,
    waiting_ways,
)
from solver.transport.message_paths import MessagePaths, split_paths, widest_paths
from solver.transport.prices import Traffic
from solver.transport.ring import Ring
from solver.transport.time_division import time_divided

SAME_LOAD = 1.0 - 1e-9  # sums of floats that are equal but for rounding
MOST_BOUNDED = 4  # routes of an evaluation: one of those that end last has the highest bound, or nearly
MOST_COMPARED = 8  # routes of a candidate that may take too long: those with most to do
SeenExchange = tuple[float, str | None]  # seconds of a stage's exchange for the scheduler, and the link that it takes


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A timed candidate. `timed` and `hops` have one entry per route, `costs` and `exchanges` one per stage.

    `stages` are stage costs by index of a pool in use; `message_bytes` is one stage message of a whole stage group.
    """

    candidate: Candidate
    stages: dict[int, PoolStages]
    hops: list[tuple[HopDelay, ...]]
    costs: tuple[ExchangeCost, ...]
    timed: tuple[TimedWay, ...]
    exchanges: tuple[StageExchange, ...]
    optimizer_s: float
    message_bytes: float
    paths: MessagePaths

    @property
    def problems(self) -> tuple[PipelineProblem, ...]:
        """The problem of one replica of every route."""
        return tuple(one.way.problem for one in self.timed)

    @property
    def timings(self) -> tuple[Timing, ...]:
        """The schedule of the first replicas of every route."""
        return tuple(one.timing for one in self.timed)

    @property
    def time_divided(self) -> tuple[bool, ...]:
        """By route, whether its replicas send one after another, in time slots."""
        return tuple(one.way.stagger_s > 0 for one in self.timed)

    @property
    def waits_for_links(self) -> bool:
        """Whether some message is paced by a link, not by cards or transport."""
        return any(hop.bottlenecks for delays in self.hops for hop in delays)

    @property
    def traffic(self) -> Traffic:
        """Everything that the plan sends between places."""
        return Traffic(
            self.candidate.configuration,
            self.candidate.routes,
            self.hops,
            self.costs,
            self.exchanges,
            self.message_bytes,
            self.pipeline_s,
            tuple(one.sharing for one in self.timed),
        )

    @property
    def pipeline_s(self) -> float:
        """End of the last operation over all routes and replicas."""
        return max(one.end_s for one in self.timed)

    @property
    def exchanges_end_last(self) -> bool:
        """Whether some exchange ends after all operations of the pipelines."""
        return max(one.end_s for one in self.exchanges) > self.pipeline_s

    @property
    def pipeline_bound_s(self) -> float:
        """No order of those of its pipelines that end last ends earlier."""
        ends_s: dict[PipelineProblem, float] = {}
        for problem, timed in zip(self.problems, self.timed, strict=True):
            ends_s[problem] = max(timed.end_s, ends_s.get(problem, 0.0))
        return max(lower_bound(problem) for problem in nlargest(MOST_BOUNDED, ends_s, key=ends_s.__getitem__))

    @property
    def iteration_s(self) -> float:
        """End of pipeline and exchanges, and the optimizer step."""
        return max(self.pipeline_s, *(one.end_s for one in self.exchanges)) + self.optimizer_s


def evaluate(
    context: Context, candidate: Candidate, scheduler: Scheduler, *, cutoff_s: float = float("inf")
) -> Evaluation | None:
    """Time a candidate, its messages on the paths of least latency and, where these wait for links, on others.

    None when memory has no room for one micro-batch or for any of the scheduler's orders, when the pipeline's bound
    shows before any scheduling that the iteration takes `cutoff_s` or longer, or when it takes longer than plans state.
    """
    best = evaluate_on_paths(context, candidate, scheduler, MessagePaths(context.topology), cutoff_s=cutoff_s)
    if best is not None and not best.waits_for_links:
        return best
    for paths in other_paths(context, candidate):
        least_s = cutoff_s if best is None else min(cutoff_s, best.iteration_s * (1.0 - LEAST_GAIN))
        found = evaluate_on_paths(context, candidate, scheduler, paths, cutoff_s=least_s)
        if best is None or (found is not None and found.iteration_s < least_s):
            best = found
        if found is not None and not found.exchanges_end_last:
            break  # a split leaves exchanges enough
    return best


def other_paths(context: Context, candidate: Candidate) -> Iterator[MessagePaths]:
    """Other paths of the messages that wait for links, where the link graph has any: split over several, and each on
    the widest alone, which leaves more to exchanges. All others keep their path.
    """
    if not context.topology.edges_with_detour:
        return
    configuration, routes = candidate.configuration, candidate.routes
    exchanging = exchanging_edges(context, configuration, routes)
    message_bytes = _message_bytes(stages_of(context, configuration, routes))
    messages = StageMessages(context, configuration, message_bytes, MessagePaths(context.topology))
    hops = route_hops(messages, routes, exchanging)
    waiting = waiting_ways(context, configuration, routes, hops)
    if not waiting:
        return
    retained = [tuple(hop for hop in delays if not hop.bottlenecks) for delays in hops]
    taken = reserved_bytes_per_s(routes, retained, message_bytes)
    free = [
        max(free_bytes_per_s(context, edge, exchanging) - taken.get(edge, 0.0), 0.0)
        for edge in range(len(context.topology.edges))
    ]
    for paths in (split_paths, widest_paths):
        other = paths(context, waiting, np.array(free))
        if other is not None:
            yield other


def _message_bytes(stages: dict[int, PoolStages]) -> float:
    """Of one stage message."""
    return float(next(iter(stages.values())).cost.boundary_bytes.max())


def evaluate_on_paths(
    context: Context,
    candidate: Candidate,
    scheduler: Scheduler,
    paths: MessagePaths,
    *,
    cutoff_s: float = float("inf"),
    divided: tuple[bool, ...] | None = None,
    chosen: tuple[ExchangeCost, ...] | None = None,
) -> Evaluation | None:
    """A candidate on given paths; `divided` says by route whether its replicas have time slots, where decided.

    Exchanges are on the `chosen` rings. Without these, where all would end sooner if some took their other rings, it is
    timed again on those.
    """
    configuration, routes = candidate.configuration, candidate.routes
    stages = stages_of(context, configuration, routes)
    message_bytes = _message_bytes(stages)
    exchanging = exchanging_edges(context, configuration, routes)
    messages = StageMessages(context, configuration, message_bytes, paths)
    hops = route_hops(messages, routes, exchanging)
    reserved = reserved_bytes_per_s(routes, hops, message_bytes)
    costs = exchange_costs(context, configuration, routes, stages, reserved=reserved, chosen=_rings_of(chosen))
    if _outlasts_plans(hops, costs):
        return None
    seen = _exchanges_seen(configuration.rank_of_stages, costs)
    ways, alike = [], dict[tuple[PoolStages, ...], PipelineProblem | None]()
    for route, delays in zip(routes, hops, strict=True):
        kinds = tuple(stages[pool] for pool in route.pools)
        if kinds not in alike:
            alike[kinds] = _without_hops(context, configuration, route, stages, exchanges=seen)
        plain = alike[kinds]
        if plain is None:
            return None
        shifted = time_divided(messages, route, delays)
        ways.append((_way(plain, delays), None if shifted is None else _way(plain, *shifted)))
    update = max(float(stages[pool].optimizer_s[rank]) for route in routes for rank, pool in enumerate(route.pools))
    if _takes(cutoff_s - update, list(dict.fromkeys(ways)), costs):
        return None
    ask = reusing_orders(scheduler, [at_once.problem for at_once, _ in ways])
    wanted = divided or (None,) * len(ways)
    better = [better_way(*both, ask, divided=one) for both, one in zip(ways, wanted, strict=True)]
    timed = tuple(one for one in better if one is not None)
    if len(timed) < len(ways):
        return None
    if any(one.way.stagger_s for one in timed):
        hops = [one.way.delays for one in timed]
        reserved = reserved_bytes_per_s(routes, hops, message_bytes)
        # On the same rings: the orders were made for them, and a plan states one for each stage.
        costs = exchange_costs(context, configuration, routes, stages, reserved=reserved, chosen=_rings_of(costs))
    last_s = np.maximum.reduce([one.timing.last_weight_gradients_s + one.way.stagger_s for one in timed])
    ends_s, ranks = last_s.tolist(), configuration.rank_of_stages
    exchanges = run_exchanges(costs, ends_s, ranks)
    found = Evaluation(candidate, stages, hops, costs, timed, exchanges, update, message_bytes, paths)
    changed = costs if chosen else _on_better_rings(context, found, reserved)
    if changed != costs:
        again = evaluate_on_paths(context, candidate, scheduler, paths, divided=divided, chosen=changed)
        found = again if again is not None and again.iteration_s < found.iteration_s else found
    return found if found.iteration_s <= MOST_SECONDS else None


def _rings_of(costs: tuple[ExchangeCost, ...] | None) -> list[tuple[Ring, ...]] | None:
    return None if costs is None else [one.rings for one in costs]


def _on_better_rings(context: Context, found: Evaluation, reserved: dict[int, float]) -> tuple[ExchangeCost, ...]:
    """Costs of the exchanges of an evaluation on rings with which all of them end sooner, or as they are."""
    configuration, routes = found.candidate.configuration, found.candidate.routes
    ends_s, ranks = [one.last_weight_grad_end_s for one in found.exchanges], configuration.rank_of_stages
    ways = [(found.costs, found.exchanges)]
    rings = rings_together(context, found.costs, reserved) if found.exchanges_end_last else None
    if rings is not None:
        costs = exchange_costs(context, configuration, routes, found.stages, reserved=reserved, chosen=rings)
        ways.append((costs, run_exchanges(costs, ends_s, ranks)))
    return with_better_rings(ways, ends_s, ranks)


def _outlasts_plans(hops: Sequence[tuple[HopDelay, ...]], costs: tuple[ExchangeCost, ...]) -> bool:
    """Whether one message or exchange alone takes longer than a plan can state, as on a link that others fill."""
    messages_s = (max(hop.latency_s, hop.transfer_s) for delays in hops for hop in delays)
    return max(max(messages_s, default=0.0), *(cost.duration_s for cost in costs)) > MOST_SECONDS


def _takes(limit_s: float, ways: Sequence[tuple[Way, Way | None]], costs: tuple[ExchangeCost, ...]) -> bool:
    """Whether exchanges alone, or the pipeline of a way with most to do, take so long.

    In time slots exchanges may take less.
    """
    if limit_s == float("inf"):
        return False
    at_once = all(shifted is None for _, shifted in ways)
    if at_once and max(_edge_loads_s(costs).values(), default=0.0) >= limit_s:
        return True

    def is_late(way: Way) -> bool:
        """By the pipeline's bound without the exchanges, which `exchanges` times itself."""
        return lower_bound(way.problem.without_exchanges()) + way.stagger_s >= limit_s

    longest = nlargest(MOST_COMPARED, ways, key=lambda both: rough_time_s(both[0].problem))
    return any(all(is_late(way) for way in both if way is not None) for both in longest)


def _way(plain: PipelineProblem, delays: tuple[HopDelay, ...], stagger_s: float = 0.0) -> Way:
    return Way(plain.model_copy(update={"hops": pipeline_hops(delays)}), delays, stagger_s)


def stages_of(context: Context, configuration: Configuration, routes: tuple[PooledRoute, ...]) -> dict[int, PoolStages]:
    """Stage costs of every pool in use; pools of one GPU type and fabric share them."""
    used = sorted({pool for route in routes for pool in route.pools})
    return {pool: pool_stages(context, context.pools[pool], configuration) for pool in used}


def _without_hops(
    context: Context,
    configuration: Configuration,
    route: PooledRoute,
    stages: dict[int, PoolStages],
    *,
    exchanges: Sequence[SeenExchange],
) -> PipelineProblem | None:
    """The problem of one replica but for its hops, the same over the same GPU types and fabrics: stages as they cost,
    memory left for activations. None when a rank has no room for one micro-batch, or is busy with it beyond all plans.
    """
    ranks, backward = configuration.rank_of_stages, backward_of(context.request)
    costs = [(stages[route.pools[rank]].cost, stage) for stage, rank in enumerate(ranks)]
    if max(max(one.forward_s[at], one.input_grad_s[at], one.weight_grad_s[at]) for one, at in costs) > MOST_SECONDS:
        return None
    budgets = [
        float(context.memory_limit_bytes(context.pools[pool].gpu) - stages[pool].static.total_bytes[rank])
        for rank, pool in enumerate(route.pools)
    ]
    own = tuple(_stage(stages[route.pools[rank]], stage, exchanges[stage]) for stage, rank in enumerate(ranks))
    if np.any(np.array(minimum_budget_bytes(ranks, own, backward)) > budgets):
        return None
    framework = context.request.constraints.framework
    return PipelineProblem(
        num_microbatches=configuration.num_microbatches,
        ranks=tuple(PipelineRank(activation_budget_bytes=one) for one in budgets),
        layout=configuration.family,
        stages=own,
        backward=backward,
        sends="asynchronous" if framework is None else framework.sends(configuration.family),
        options=PipelineOptions(seed=context.request.options.seed),  # how long it is searched is up to the search
    )


def _stage(stages: PoolStages, stage: int, exchange: SeenExchange) -> PipelineStage:
    """Cost of a stage, with its exchange as the scheduler sees it."""
    cost = stages.cost
    return PipelineStage(
        forward_s=float(cost.forward_s[stage]),
        input_grad_s=float(cost.input_grad_s[stage]),
        weight_grad_s=float(cost.weight_grad_s[stage]),
        activation_bytes=float(cost.activation_bytes[stage]),
        weight_grad_context_bytes=float(cost.weight_grad_context_bytes[stage]),
        gradient_sync_s=exchange[0],
        gradient_sync_link=exchange[1],
    )


def _exchanges_seen(ranks: Sequence[int], costs: tuple[ExchangeCost, ...]) -> list[SeenExchange]:
    """What the scheduler sees of every stage: its time on the edge that exchanges take longest, or on the rank's cards.

    It is that edge unless those of some rank take its cards for longer. Off it counts what is left of an exchange after
    its head start; where that is something, chunks of the rank exchange one after another, and only the first chunk,
    whose gradients are ready last, has its head start.
    """
    seen, num_ranks, edge = list[SeenExchange](), max(ranks) + 1, _busiest_edge(ranks, costs)
    off = [edge not in one.shares for one in costs]
    paced = {rank for rank, one, is_off in zip(ranks, costs, off, strict=True) if is_off and _left_s(one) > 0}
    for stage, (rank, one) in enumerate(zip(ranks, costs, strict=True)):
        if not off[stage]:
            seen.append((one.shared_s * one.shares[edge], EXCHANGE_LINK))
        elif rank in paced and len(ranks) > num_ranks:
            seen.append((_left_s(one) if stage < num_ranks else one.duration_s, f"{CARDS_LINK} {rank}"))
        else:
            seen.append((_left_s(one), None))
    return seen


def _left_s(one: ExchangeCost) -> float:
    return max(one.duration_s - one.overlap_s, 0.0)


def _edge_loads_s(costs: tuple[ExchangeCost, ...]) -> dict[int, float]:
    """Seconds for which each edge carries exchanges: together they never take more than all of it."""
    load_s = defaultdict[int, float](float)
    for one in costs:
        for edge, share in one.shares.items():
            load_s[edge] += one.shared_s * share
    return load_s


def _busiest_edge(ranks: Sequence[int], costs: tuple[ExchangeCost, ...]) -> int:
    """The edge that exchanges take for the longest time, -1 where they take the cards of some rank for longer."""
    cards_s, load_s = defaultdict[int, float](float), _edge_loads_s(costs)
    for rank, one in zip(ranks, costs, strict=True):
        cards_s[rank] += max(one.private_s, one.shared_s)
    longest_s = max(load_s.values(), default=0.0)
    if longest_s == 0 or longest_s < max(cards_s.values()) * SAME_LOAD:
        return -1
    return min(edge for edge, load in load_s.items() if load >= longest_s * SAME_LOAD)
