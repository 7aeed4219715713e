"""Rules on the scheduler's problem and what a schedule says of itself: budgets, exchanges, options, channels, order.

How an order was found cannot be derived.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from models.plan import RouteTimeline
from models.schedule import PipelineOptions, PipelineProblem
from models.statements import CARDS_LINK, EXCHANGE_LINK
from solver.verify.case import Case, Finding, Rule, differs
from solver.verify.exchange_ways import ExchangeWays, on_links

PROVEN = 1e-6  # relative distance below which a bound and a value are the same number
SAME_LOAD = 1.0 - 1e-9  # of a sum of floats: one that is equal but for rounding
GAP_TOLERANCE = 1e-15  # both sides are the same formula of the same two stated numbers
Channel = tuple[str, str, frozenset[str]]  # link, direction and messages


def problem_facts(case: Case) -> Iterator[Finding]:
    """Memory left for activations, what is left of each exchange, fold and options of the search."""
    usual = PipelineOptions(seed=case.request.options.seed)
    # Plans of earlier versions state the time limit of their request.
    earlier = usual.model_copy(update={"time_limit_s": case.request.options.time_limit_s})
    expected = _expected_exchanges(case)
    for route, pools in case.pools_by_route.items():
        timeline = case.timeline_by_route.get(route)
        if timeline is None:
            continue
        problem, where = timeline.problem, f"route {route}"
        for name, value, derived in (
            ("layout", problem.layout, case.configuration.family),
            ("objective", problem.objective, "makespan"),
            ("options", problem.options, earlier if problem.options == earlier else usual),
            ("rank_of_stage", problem.rank_of_stage, None),
        ):
            if value != derived:
                yield Finding(where, f"{name} {value}, the request and the configuration say {derived}")
        for rank, pool in enumerate(pools[: len(problem.ranks)]):
            left = case.derived.memory_limit_bytes(pool) - float(case.derived.static_memory(pool, rank).total_bytes[0])
            stated = problem.ranks[rank].activation_budget_bytes
            if stated is None or differs(stated, left):
                yield Finding(f"{where}, rank {rank}", f"activation_budget_bytes {stated}, memory leaves {left:.9g}")
        yield from _exchanges(where, problem, expected)


def _expected_exchanges(case: Case) -> list[tuple[float, str | None]]:
    """What the scheduler sees of every exchange: its time on the edge that is full of exchanges for longest.

    Where those of some rank take its cards for longer, and off that edge, it sees what is left after the head start; of
    chunks of a rank, one of which has something left, all but the first have all of their time, on its cards.
    """
    ways, degrees, expected = case.exchanging_at_once, case.configuration.degrees, list[tuple[float, str | None]]()
    ranks, edge = case.configuration.rank_of_stages, _fullest_edge(case, ways)
    on_edge = {s: found.shared_s * found.shares[edge] for s, found in on_links(ways).items() if edge in found.shares}
    whole = {
        stage: case.exchange_s(*_parts_s(ways, stage)) for stage in range(degrees.num_stages) if stage not in on_edge
    }
    left = {stage: duration_s - ways.overlap_s(stage) for stage, duration_s in whole.items()}
    paced = {ranks[stage] for stage in left if left[stage] > 0 and degrees.vpp > 1}
    for stage, rank in enumerate(ranks):
        if stage in on_edge:
            expected.append((on_edge[stage], EXCHANGE_LINK))
        elif rank in paced:
            expected.append((max(left[stage], 0.0) if stage < degrees.pp else whole[stage], f"{CARDS_LINK} {rank}"))
        else:
            expected.append((max(left[stage], 0.0), None))
    return expected


def _parts_s(ways: ExchangeWays, stage: int) -> tuple[float, float]:
    """Time inside places, and time on links."""
    return ways.private_s(stage), ways.on_ring(stage).shared_s if stage in ways.shared_stages else 0.0


def _fullest_edge(case: Case, ways: ExchangeWays) -> int:
    """The edge that is full of exchanges for longest; -1 where those of some rank take its cards for longer."""
    full_s, on_cards_s = defaultdict[int, float](float), defaultdict[int, float](float)
    for found in on_links(ways).values():
        for edge, share in found.shares.items():
            full_s[edge] += found.shared_s * share
    for stage, rank in enumerate(case.configuration.rank_of_stages):
        on_cards_s[rank] += max(_parts_s(ways, stage))
    most_s = max(full_s.values(), default=0.0)
    if most_s == 0.0 or most_s < max(on_cards_s.values()) * SAME_LOAD:
        return -1
    return min(edge for edge, seconds in full_s.items() if seconds >= most_s * SAME_LOAD)


def _exchanges(where: str, problem: PipelineProblem, expected: list[tuple[float, str | None]]) -> Iterator[Finding]:
    """Exchanges that are not as expected."""
    for number, (stage, (derived, link)) in enumerate(zip(problem.stages, expected, strict=False)):
        if differs(stage.gradient_sync_s, derived) or stage.gradient_sync_link != link:
            stated = f"gradient_sync_s {stage.gradient_sync_s:.9g} on {stage.gradient_sync_link}"
            yield Finding(f"{where}, stage {number}", f"{stated}, it is {derived:.9g} on {link}")


def schedule_statement(case: Case) -> Iterator[Finding]:
    """Gap and status follow from value and bound; no time of search is stated, and routes alike say the same."""
    known: list[RouteTimeline] = []
    for timeline in case.plan.timelines:
        schedule, where = timeline.schedule, f"route {timeline.route}"
        value_s = schedule.objective_value_s
        gap = max(0.0, (value_s - schedule.lower_bound_s) / value_s) if value_s > 0 else 0.0
        if abs(schedule.gap - gap) > GAP_TOLERANCE:
            yield Finding(where, f"gap {schedule.gap:.9g}, value and bound give {gap:.9g}")
        status = "optimal" if gap <= PROVEN else "feasible"
        if schedule.status != status:
            yield Finding(where, f"{schedule.status} at a gap of {gap:.3g}")
        if schedule.seconds:
            yield Finding(where, f"seconds {schedule.seconds:g}: a plan states no time of search of a schedule")
        twin = next((one for one in known if alike(one, timeline)), None)
        if twin is None:
            known.append(timeline)
        elif twin.schedule != schedule:
            yield Finding(where, f"has the problem and the order of {twin.route}, and says something else of them")


def alike(one: RouteTimeline, other: RouteTimeline) -> bool:
    """Whether two routes run the same order of the same problem."""
    if one.schedule is other.schedule and one.problem is other.problem:
        return True
    return one.problem == other.problem and one.schedule.ranks == other.schedule.ranks


def schedule_channels(case: Case) -> Iterator[Finding]:
    """Messages stand on the channels of their hops, up and down the ranks, in the order of hops; exchanges last."""
    for timeline in case.plan.timelines:
        wanted = list(_channels(timeline.problem))
        stated = [(channel.link, channel.direction) for channel in timeline.schedule.transfers]
        if stated != [channel[:2] for channel in wanted]:
            yield Finding(
                f"route {timeline.route}", f"lines {stated}, its hops need {[channel[:2] for channel in wanted]}"
            )
            continue
        for channel, (_, _, texts) in zip(timeline.schedule.transfers, wanted, strict=True):
            if frozenset(channel.transfers) != texts:
                yield Finding(f"route {timeline.route}", f"line {channel.link} {channel.direction} has other messages")


def _channels(problem: PipelineProblem) -> Iterator[Channel]:
    """Messages by channel: hops that take a link by the link's name, then those of no duration, then exchanges."""
    queues: dict[tuple[str, str], set[str]] = {}
    for hop in sorted(problem.hops, key=lambda hop: hop.occupancy_s == 0):
        against = problem.placement[hop.to_stage] < problem.placement[hop.from_stage]
        if hop.occupancy_s > 0:
            queues.setdefault((hop.link_name, "up"), set())
            queues.setdefault((hop.link_name, "down"), set())
        ways = ("down", "up") if against else ("up", "down")
        backward = "BW" if problem.backward == "fused" else "B"
        for way, stage, kind in ((ways[0], hop.from_stage, "F"), (ways[1], hop.to_stage, backward)):
            texts = (f"{stage}{kind}{index}" for index in range(problem.num_microbatches))
            queues.setdefault((hop.link_name, way), set()).update(texts)
    yield from ((*channel, frozenset(texts)) for channel, texts in queues.items() if texts)
    for stage, cost in enumerate(problem.stages):
        if cost.gradient_sync_s > 0:
            yield cost.gradient_sync_link or f"{EXCHANGE_LINK} of stage {stage}", "both", frozenset((f"{stage}SYNC",))


def lists_in_order(case: Case) -> Iterator[Finding]:
    """Timelines follow the routes, exchanges the stages, memory and ranges of ranks the ranks: nothing is hidden."""
    plan = case.plan
    for name, stated in (
        ("placement.routes", [one.first_replica for one in plan.placement.routes]),
        ("placement.rank_map", [one.first_rank for one in plan.placement.rank_map]),
        ("exchanges", [one.stage for one in plan.exchanges]),
        ("memory", [one.pipeline_rank for one in plan.memory]),
    ):
        if stated != sorted(stated):
            yield Finding(name, "is not in order")
    if [one.route for one in plan.timelines] != [one.id for one in plan.placement.routes]:
        yield Finding("timelines", "are not in the order of the routes")


def family_plain(case: Case) -> Iterator[Finding]:
    """One chunk per rank is one_way: nothing folds."""
    used = case.configuration
    if used.degrees.vpp == 1 and used.family != "one_way":
        yield Finding("configuration", f"{used.family} with one chunk per rank, which is one_way")


FAMILY: Mapping[str, Rule] = {
    "problem-facts": problem_facts,
    "schedule-statement": schedule_statement,
    "schedule-lines": schedule_channels,
    "lists-in-order": lists_in_order,
    "family-plain": family_plain,
}
