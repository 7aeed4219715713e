"""Rules on the gradient exchange of every stage: complete, ready, no faster than its bytes, one at a time on a rank.

Judges `Plan.exchanges`. An exchange inside a place uses the GPUs' own network cards; one between places also the links,
which exchanges of several ranks may take at once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise

import numpy as np

from models.plan import StageExchange
from solver.verify.activations import FUSED, WEIGHT
from solver.verify.case import Case, Finding, Rule, exceeds, unequal
from solver.verify.exchanges_at_once import in_order
from solver.verify.message_rates import Rates, bytes_within, concatenated, message_rates

LAST_OF_STAGE = (WEIGHT, FUSED)


def exchange_complete(case: Case) -> Iterator[Finding]:
    """Every stage has one exchange, and nothing else has."""
    stages = range(case.configuration.degrees.num_stages)
    stated = Counter(one.stage for one in case.plan.exchanges)
    for stage in sorted({*stages, *stated}):
        wanted = int(stage in stages)
        if stated[stage] != wanted:
            yield Finding(f"exchange of stage {stage}", f"is stated {stated[stage]} times instead of {wanted}")


def exchange_ready(case: Case) -> Iterator[Finding]:
    """It starts when the last weight gradient of the slowest route ends, less what can overlap with that backward."""
    last = _last_gradients(case)
    for one in case.plan.exchanges:
        true = last.get(one.stage, 0.0)
        yield from unequal(_name(one), "last_weight_grad_end_s", one.last_weight_grad_end_s, true, "is")
        most = case.exchanging.overlap_s(one.stage) if _pools(case, one) else 0.0
        if exceeds(one.overlap_s, most):
            yield Finding(_name(one), f"overlap_s {one.overlap_s:.9g}, at most {most:.9g} can hide")
        if exceeds(true - most, one.start_s):
            yield Finding(_name(one), f"starts at {one.start_s:.9g}, not ready before {true - most:.9g}")


def exchange_shared(case: Case) -> Iterator[Finding]:
    """The part between places is not faster than its bytes out of any place, by links and cards, plus the distance."""
    for one in case.plan.exchanges:
        least, why = _least_shared_s(case, one)
        if exceeds(least, one.shared_s):
            yield Finding(_name(one), f"shared_s {one.shared_s:.9g}, at least {least:.9g}: {why}")


def exchange_order(case: Case) -> Iterator[Finding]:
    """Exchanges of a pipeline rank take its cards one after another."""
    by_rank = defaultdict[int, list[StageExchange]](list)
    for one in in_order(case.stage_exchanges):
        by_rank[case.configuration.rank_of_stage(one.stage)].append(one)
    for one, following in chain.from_iterable(pairwise(own) for own in by_rank.values()):
        free_s = one.start_s + max(one.private_s, one.shared_s)
        if one.stage != following.stage and exceeds(free_s, following.start_s):
            yield Finding(
                _name(following),
                f"starts at {following.start_s:.9g}, stage {one.stage} has the cards of the rank until {free_s:.9g}",
            )


def exchange_capacity(case: Case) -> Iterator[Finding]:
    """While an exchange takes the links out of a building, they carry all exchanges and messages of that time."""
    outward = _exchanges_out_of_buildings(case)
    messages = _messages_out_of_buildings(case) if outward else {}
    for building, exchanges in outward.items():
        exchanged = np.array([(one.start_s, one.start_s + one.shared_s, rate) for one, rate in exchanges])
        for one, rate in exchanges:
            within = one.start_s, one.start_s + one.shared_s
            size, beside = bytes_within(exchanged, *within), bytes_within(messages[building], *within)
            most_bytes = case.network.building_bytes_per_s[building] * one.shared_s
            if exceeds(size + beside, most_bytes):
                own = rate * one.shared_s
                yield Finding(
                    _name(one),
                    f"out of {building}: {own:.6g} B, {size - own:.6g} B of others and {beside:.6g} B of messages in"
                    f" {one.shared_s:.6g} s, the links carry {most_bytes:.6g} B",
                )


def _exchanges_out_of_buildings(case: Case) -> dict[str, list[tuple[StageExchange, float]]]:
    """Exchanges that leave each building, and at which rate."""
    found = defaultdict[str, list[tuple[StageExchange, float]]](list)
    for one in case.stage_exchanges:
        buildings = case.network.buildings_of_rank(case.configuration.rank_of_stage(one.stage))
        size = case.network.exchange_bytes(one.stage, len(buildings))
        for building in sorted(buildings) if size and one.shared_s > 0 else ():
            found[building].append((one, size / one.shared_s))
    return found


def _messages_out_of_buildings(case: Case) -> dict[str, Rates]:
    ways = message_rates(case)
    return {
        building: concatenated(
            messages
            for (source, target), messages in ways.items()
            if case.building_of(source) == building and case.building_of(target) != building
        )
        for building in case.buildings
    }


def exchange_end(case: Case) -> Iterator[Finding]:
    """It ends after both parts, pipelined in chunks, and never before the last weight gradient."""
    for one in case.plan.exchanges:
        derived = max(one.last_weight_grad_end_s, one.start_s + case.exchange_s(one.private_s, one.shared_s))
        yield from unequal(_name(one), "end_s", one.end_s, derived, "its parts end at")


def _least_shared_s(case: Case, exchange: StageExchange) -> tuple[float, str]:
    pools = _pools(case, exchange)
    places = frozenset(case.pool_by_id[pool].place for pool in pools)
    size = case.network.exchange_bytes(exchange.stage, min(len(places), 2)) if len(places) > 1 else 0.0
    if size == 0.0:
        return 0.0, ""
    cards: defaultdict[str, float] = defaultdict(float)
    for name, num_replicas in pools.items():
        pool = case.pool_by_id[name]
        cards[pool.place] += num_replicas * case.gpus_per_group * pool.nic_bytes_per_s_per_gpu
    around = [one for one in places if any(other != one and case.is_inside(other, one) for other in places)]
    leaving = case.network.topology.leaving_bytes_per_s
    limits = [(leaving[one], f"the links out of {one}") for one in places if one not in around]
    limits += [(rate, f"the cards in {place}") for place, rate in cards.items()]
    (rate, why), delay = min(limits), case.network.farthest_s(places)
    return size / rate + delay, f"{size:.6g} B at {rate:.6g} B/s of {why}, {delay:.6g} s away"


def _last_gradients(case: Case) -> dict[int, float]:
    """End of the last weight gradient of every stage over all routes and replicas."""
    last: dict[int, float] = {}
    for route, ranks in case.operations.items():
        stagger_s = case.timeline_by_route[route].stagger_s
        for one in ranks:
            closing = np.isin(one.kind, LAST_OF_STAGE)
            stages, index = np.unique(one.stage[closing], return_inverse=True)
            ends = np.zeros(len(stages))
            np.maximum.at(ends, index.ravel(), one.end_s[closing] + stagger_s)
            last.update(
                (stage, max(last.get(stage, 0.0), end))
                for stage, end in zip(stages.tolist(), ends.tolist(), strict=True)
            )
    return last


def _pools(case: Case, exchange: StageExchange) -> Mapping[str, int]:
    """Replicas of the stage by pool; none for a stage that does not exist."""
    if exchange.stage >= case.configuration.degrees.num_stages:
        return {}
    return case.network.replicas_by_pool.get(case.configuration.rank_of_stage(exchange.stage), {})


def _name(one: StageExchange) -> str:
    return f"exchange of stage {one.stage}"


FAMILY: Mapping[str, Rule] = {
    "exchange-complete": exchange_complete,
    "exchange-ready": exchange_ready,
    "exchange-shared": exchange_shared,
    "exchange-turns": exchange_order,
    "exchange-room": exchange_capacity,
    "exchange-end": exchange_end,
}
