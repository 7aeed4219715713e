"""When the gradient exchanges of all stages run: each on the cards of its pipeline rank, together within every link.

An exchange has constant rates while it takes the links, its bytes over `shared_s`. Exchanges of different ranks run at
once as far as no edge has more than it can carry; those of a rank follow each other on its cards.
"""

import operator
from bisect import insort
from collections.abc import Callable, Collection, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from models.plan import StageExchange
from solver.arrays import FloatArray
from solver.transport.exchange import ExchangeCost

SAME_INSTANT = 1e-12  # relative: an end on the links, and a start that waited for it
FULL = 1.0 + 1e-9  # of an edge: its load is a sum of floats
MOST_CHANGED = 4  # times that exchanges change their rings: five zones gained from the first two, none needed a third
MOST_ALONE = 4  # of the latest exchanges that are tried alone
NUM_AT_ONCE = (2, 3, 4, 6, 8)  # exchanges for which room is made on links; set by hand
READY, LEFT_LINKS, LEFT_CARDS = range(3)  # of an exchange: its events

Urgency = Callable[[int], tuple[float, int]]  # of a stage: the least goes first


def run_exchanges(
    costs: tuple[ExchangeCost, ...], last_end_s: list[float], ranks: Sequence[int]
) -> tuple[StageExchange, ...]:
    """When each exchange runs, `ranks` being the pipeline rank of every stage.

    Whenever cards or links are free, of the exchanges that are ready all begin that fit. Which is looked at first is
    the better of two rules: first ready first, or longest first (Schrage's rule).
    """
    ready = [max(end - cost.overlap_s, 0.0) for end, cost in zip(last_end_s, costs, strict=True)]
    rules: tuple[Urgency, ...] = (lambda stage: (ready[stage], stage), lambda stage: (-costs[stage].duration_s, stage))
    ways = [_timed(costs, last_end_s, _starts(costs, ready, ranks, urgency)) for urgency in rules]
    return min(ways, key=lambda way: max(one.end_s for one in way))


def with_better_rings(
    ways: Sequence[tuple[tuple[ExchangeCost, ...], tuple[StageExchange, ...]]],
    last_end_s: list[float],
    ranks: Sequence[int],
) -> tuple[ExchangeCost, ...]:
    """Of these costs, given with when they run, those with which all exchanges end first, each on other or slower rings
    where that is sooner.
    """
    found = [
        with_slower_rings(with_other_rings(costs, exchanges, last_end_s, ranks), last_end_s, ranks)
        for costs, exchanges in ways
    ]
    return min(found, key=lambda way: _end_s(run_exchanges(way, last_end_s, ranks))) if len(found) > 1 else found[0]


def with_other_rings(
    costs: tuple[ExchangeCost, ...], exchanges: tuple[StageExchange, ...], last_end_s: list[float], ranks: Sequence[int]
) -> tuple[ExchangeCost, ...]:
    """Costs where some exchanges take their other rings, as long as all exchanges end sooner by that.

    Those are one of the latest, all of the late ones, or every one: on fewer paths each may take longer, and no longer
    wait for the others.
    """
    for _ in range(MOST_CHANGED):
        begin_s = max(exchanges, key=lambda one: one.end_s).start_s
        by_end = sorted(exchanges, key=lambda one: one.end_s, reverse=True)
        able = [one for one in by_end if costs[one.stage].other is not None]
        late = [one.stage for one in able if one.end_s >= begin_s]
        trials = [*((stage,) for stage in late[:MOST_ALONE]), tuple(late), tuple(one.stage for one in able)]
        ways = [_changed(costs, some) for some in dict.fromkeys(trials) if some]
        timed = [(tried, run_exchanges(tried, last_end_s, ranks)) for tried in ways]
        found = min(timed, key=lambda way: _end_s(way[1]), default=(costs, exchanges))
        if _end_s(found[1]) >= _end_s(exchanges):
            break
        costs, exchanges = found
    return costs


def with_slower_rings(
    costs: tuple[ExchangeCost, ...], last_end_s: list[float], ranks: Sequence[int]
) -> tuple[ExchangeCost, ...]:
    """Costs where exchanges are sent as slowly as it takes for some to run at once, if all of them end sooner by that.

    Two that take a little more than half of a link each would follow each other.
    """
    slower = [tuple(one.slower(number) for one in costs) for number in NUM_AT_ONCE]
    ways = [costs, *(way for way in slower if any(map(operator.is_not, way, costs)))]
    return min(ways, key=lambda way: _end_s(run_exchanges(way, last_end_s, ranks))) if len(ways) > 1 else costs


def _changed(costs: tuple[ExchangeCost, ...], stages: Collection[int]) -> tuple[ExchangeCost, ...]:
    return tuple(one.other or one if stage in stages else one for stage, one in enumerate(costs))


def _end_s(exchanges: tuple[StageExchange, ...]) -> float:
    return max(one.end_s for one in exchanges)


def _starts(costs: tuple[ExchangeCost, ...], ready: list[float], ranks: Sequence[int], urgency: Urgency) -> list[float]:
    """Start of every exchange: at every instant at which one is ready or ends, all begin that fit."""
    events = [(at_s, READY, stage) for stage, at_s in enumerate(ready)]
    heapify(events)
    able, start = list[tuple[float, int]](), list(ready)
    cards_free_s, load = [0.0] * (max(ranks) + 1), dict[int, float]()
    while events:
        now_s = events[0][0]
        while events and events[0][0] <= now_s:
            _, kind, stage = heappop(events)
            if kind == READY:
                insort(able, urgency(stage))
            elif kind == LEFT_LINKS:
                _add(load, costs[stage].shares, -1.0)
        for entry in tuple(able):
            stage, cost = entry[1], costs[entry[1]]
            if cards_free_s[ranks[stage]] > now_s or any(
                load.get(edge, 0.0) + share > FULL for edge, share in cost.shares.items()
            ):
                continue
            able.remove(entry)
            start[stage], cards_free_s[ranks[stage]] = now_s, now_s + max(cost.private_s, cost.shared_s)
            _add(load, cost.shares, 1.0)
            heappush(events, (now_s + cost.shared_s, LEFT_LINKS, stage))
            heappush(events, (cards_free_s[ranks[stage]], LEFT_CARDS, stage))
    return start


def _add(load: dict[int, float], shares: dict[int, float], sign: float) -> None:
    for edge, share in shares.items():
        load[edge] = load.get(edge, 0.0) + sign * share


def _timed(costs: tuple[ExchangeCost, ...], last_end_s: list[float], start_s: list[float]) -> tuple[StageExchange, ...]:
    return tuple(
        StageExchange(
            stage=stage,
            last_weight_grad_end_s=last_end_s[stage],
            overlap_s=cost.overlap_s,
            start_s=start_s[stage],
            private_s=cost.private_s,
            shared_s=cost.shared_s,
            end_s=max(last_end_s[stage], start_s[stage] + cost.duration_s),
        )
        for stage, cost in enumerate(costs)
    )


def most_at_once(costs: tuple[ExchangeCost, ...], exchanges: tuple[StageExchange, ...], num_edges: int) -> FloatArray:
    """Highest rate of all exchanges together on every edge, bytes per second."""
    on_links = [one for one in exchanges if one.shared_s > 0]
    rate_se = np.zeros((len(on_links), num_edges))
    for rate_e, one in zip(rate_se, on_links, strict=True):
        for edge, size in costs[one.stage].edge_bytes.items():
            rate_e[edge] = size / one.shared_s
    start = np.array([one.start_s for one in on_links])
    end = (start + [one.shared_s for one in on_links]) * (1.0 - SAME_INSTANT)
    running = (start <= start[:, None]) & (start[:, None] < end)  # at the start of each
    most: FloatArray = (running @ rate_se).max(axis=0, initial=0.0)
    return most
