"""Exchanges share the links as far as these have room and take turns beyond that; the judge derives the same starts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from models.plan import StageExchange
from solver.transport.exchange import ExchangeCost
from solver.transport.exchange_times import most_at_once, run_exchanges, with_other_rings
from solver.verify.exchanges_at_once import beside_each, earliest_starts, in_order, waits_for

RANKS = (0, 1, 2, 1, 0, 3)
EDGES = range(4)


def random_costs(random: np.random.Generator) -> tuple[tuple[ExchangeCost, ...], list[float]]:
    """Six stages of four ranks, one of which exchanges inside a place only, the others over some of four edges."""
    costs = []
    for rank in RANKS:
        edges = random.choice(EDGES, size=random.integers(1, 4), replace=False).tolist() if rank else []
        costs.append(
            ExchangeCost(
                overlap_s=float(random.uniform(0, 1)),
                private_s=float(random.uniform(0, 4)),
                shared_s=float(random.uniform(0.1, 3)) if rank else 0.0,
                edge_bytes=dict.fromkeys(edges, 6.0),
                shares={edge: float(min(random.uniform(0.1, 1.3), 1.0)) for edge in edges},
            )
        )
    return tuple(costs), random.uniform(0, 4, size=len(RANKS)).tolist()


def shares_at(costs: tuple[ExchangeCost, ...], found: tuple[StageExchange, ...], at_s: float, edge: int) -> float:
    """Part of an edge that is in use at an instant."""
    there = (one.stage for one in found if one.start_s <= at_s < one.start_s + one.shared_s - 1e-12)
    return sum(costs[stage].shares.get(edge, 0.0) for stage in there)


def test_no_edge_and_no_cards_have_more_than_they_carry_and_nobody_starts_before_it_is_ready() -> None:
    random, together = np.random.default_rng(3), 0
    for _ in range(200):
        costs, last_s = random_costs(random)
        found = run_exchanges(costs, last_s, RANKS)
        assert [one.stage for one in found] == list(range(len(RANKS)))
        for one, edge in itertools.product(found, EDGES):
            assert shares_at(costs, found, one.start_s, edge) <= 1.0 + 1e-9
        for rank in range(4):
            own = sorted((one for one in found if RANKS[one.stage] == rank), key=lambda one: one.start_s)
            assert all(
                a.start_s + max(a.private_s, a.shared_s) <= b.start_s + 1e-12 for a, b in itertools.pairwise(own)
            )
        for one, cost, last in zip(found, costs, last_s, strict=True):
            assert one.start_s >= max(last - cost.overlap_s, 0.0)
            assert one.end_s >= max(last, one.start_s + cost.duration_s)
        shared = [one for one in found if one.shared_s > 0]
        together += any(a.start_s < b.start_s < a.start_s + a.shared_s for a, b in itertools.permutations(shared, 2))
    assert together > 100


def test_search_and_judge_derive_the_same_starts() -> None:
    random = np.random.default_rng(5)
    for _ in range(300):
        costs, last_s = random_costs(random)
        found = run_exchanges(costs, last_s, RANKS)
        shares = {stage: cost.shares for stage, cost in enumerate(costs) if cost.shares}
        starts = earliest_starts(found, shares, RANKS)
        assert starts == {one.stage: pytest.approx(one.start_s, abs=1e-12) for one in found}


def test_the_judge_sees_a_start_beside_others_that_leave_no_room() -> None:
    random, seen = np.random.default_rng(6), 0
    for _ in range(100):
        costs, last_s = random_costs(random)
        found = run_exchanges(costs, last_s, RANKS)
        shares = {stage: cost.shares for stage, cost in enumerate(costs) if cost.shares}
        for one in found:
            ready_s = max(one.last_weight_grad_end_s - one.overlap_s, 0.0)
            if one.start_s > ready_s:
                moved = one.model_copy(update={"start_s": ready_s})
                forged = [moved if other is one else other for other in found]
                starts, seen = earliest_starts(forged, shares, RANKS), seen + 1
                assert any(starts[other.stage] > other.start_s + 1e-9 for other in forged)
    assert seen > 50


def _end_s(costs: tuple[ExchangeCost, ...], last_s: list[float], order: tuple[int, ...]) -> float:
    """End of the last exchange if each, in this order, starts where it first fits beside those before it."""
    placed = list[StageExchange]()
    for stage in order:
        cost, ready_s = costs[stage], max(last_s[stage] - costs[stage].overlap_s, 0.0)
        ends = (
            other.start_s + part for other in placed for part in (other.shared_s, max(other.private_s, other.shared_s))
        )

        def fits(at_s: float, stage: int = stage, cost: ExchangeCost = cost) -> bool:
            own_s = max(cost.private_s, cost.shared_s)
            return all(
                at_s >= other.start_s + max(other.private_s, other.shared_s) - 1e-12
                or other.start_s >= at_s + own_s - 1e-12
                for other in placed
                if RANKS[other.stage] == RANKS[stage]
            ) and all(
                cost.shares[edge] + shares_at(costs, tuple(placed), instant, edge) <= 1.0 + 1e-9
                for edge in cost.shares
                for instant in (
                    at_s,
                    *(one.start_s for one in placed if at_s < one.start_s < at_s + cost.shared_s - 1e-12),
                )
            )

        start_s = min(at_s for at_s in (ready_s, *ends) if at_s >= ready_s and fits(at_s))
        placed.append(
            StageExchange(
                stage=stage, last_weight_grad_end_s=last_s[stage], overlap_s=cost.overlap_s, start_s=start_s,
                private_s=cost.private_s, shared_s=cost.shared_s, end_s=max(last_s[stage], start_s + cost.duration_s),
            )
        )  # fmt: skip
    return max(one.end_s for one in placed)


def test_the_two_rules_are_nearly_as_good_as_the_best_of_all_orders() -> None:
    random, worse = np.random.default_rng(4), []
    for _ in range(12):
        costs, last_s = random_costs(random)
        best = min(_end_s(costs, last_s, order) for order in itertools.permutations(range(len(RANKS))))
        found = max(one.end_s for one in run_exchanges(costs, last_s, RANKS))
        assert best <= found + 1e-9
        worse.append(found / best)
    assert float(np.mean(worse)) < 1.05


def test_a_short_exchange_that_is_ready_first_does_not_hold_up_a_long_one() -> None:
    short = ExchangeCost(overlap_s=0.0, private_s=0.0, shared_s=1.0, edge_bytes={}, shares={0: 1.0})
    long = ExchangeCost(overlap_s=0.0, private_s=8.0, shared_s=1.0, edge_bytes={}, shares={0: 1.0})
    found = run_exchanges((short, short, long), [0.0, 0.5, 0.9], (0, 1, 2))
    assert [one.start_s for one in found] == [0.0, 2.0, 1.0]


def test_chunks_of_a_rank_do_not_make_its_cards_faster() -> None:
    chunk = ExchangeCost(overlap_s=0.0, private_s=1.0, shared_s=0.0, edge_bytes={})
    found = run_exchanges((chunk,) * 4, [0.0] * 4, (0, 1, 0, 1))
    assert [one.end_s for one in found] == [1.0, 1.0, 2.0, 2.0]


def test_the_highest_rate_of_exchanges_at_once_is_that_of_the_instant_with_most_of_them() -> None:
    half = ExchangeCost(overlap_s=0.0, private_s=0.0, shared_s=2.0, edge_bytes={1: 6.0}, shares={1: 0.5})
    costs = (half, half, half)
    found = run_exchanges(costs, [0.0, 1.0, 1.5], (0, 1, 2))
    assert [one.start_s for one in found] == [0.0, 1.0, 2.0]
    assert most_at_once(costs, found, 3).tolist() == [0.0, 6.0, 0.0]
    assert beside_each(found, np.array([[1.0], [10.0], [100.0]])).ravel().tolist() == [11.0, 110.0, 110.0]


def test_exchanges_of_which_none_waits_for_another_fit_together_whenever_they_run() -> None:
    random = np.random.default_rng(8)
    for _ in range(100):
        costs, last_s = random_costs(random)
        found = run_exchanges(costs, last_s, RANKS)
        waits = waits_for(found)
        shared = [one.stage for one in in_order(found) if one.shared_s > 0]
        for size in (2, 3, 4):
            for some in itertools.combinations(shared, size):
                if not any(one in waits[other] for one, other in itertools.permutations(some, 2)):
                    assert all(sum(costs[one].shares.get(edge, 0.0) for one in some) <= 1.0 + 1e-9 for edge in EDGES)


def test_other_rings_are_taken_only_where_all_exchanges_end_sooner() -> None:
    random, taken = np.random.default_rng(5), 0
    for _ in range(200):
        costs, last_s = random_costs(random)
        wider = tuple(
            replace(one, other=replace(one, shared_s=one.shared_s / 2, shares=dict.fromkeys(EDGES, 0.7)))
            if one.shared_s
            else one
            for one in costs
        )
        narrow = run_exchanges(wider, last_s, RANKS)
        chosen = with_other_rings(wider, narrow, last_s, RANKS)
        before_s, after_s = (max(one.end_s for one in run_exchanges(each, last_s, RANKS)) for each in (wider, chosen))
        assert after_s < before_s or chosen == wider
        taken += after_s < before_s
    assert 40 < taken < 200


def test_exchanges_on_links_of_their_own_run_at_once_though_each_is_longer_alone() -> None:
    """Four ranks of which each takes all links for a second, or two links of its own for a second and a half."""
    ranks, edges = (0, 1, 2, 3), range(8)
    everywhere = ExchangeCost(0.0, 0.0, 1.0, dict.fromkeys(edges, 1.0), shares=dict.fromkeys(edges, 0.9))
    costs = tuple(
        replace(everywhere, other=replace(everywhere, shared_s=1.5, shares={2 * rank: 1.0, 2 * rank + 1: 1.0}))
        for rank in ranks
    )
    ready_s = [0.0] * len(ranks)
    before = run_exchanges(costs, ready_s, ranks)
    chosen = with_other_rings(costs, before, ready_s, ranks)
    after = run_exchanges(chosen, ready_s, ranks)
    assert (max(one.end_s for one in before), max(one.end_s for one in after)) == (4.0, 1.5)
