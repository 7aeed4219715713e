"""Exchanges take the shared links in turns, in an order that ends no later than first ready, first served."""

from __future__ import annotations

import itertools

import numpy as np

from solver.transport.exchange import ExchangeCost, _one_by_one, run_exchanges

RANKS = (0, 1, 2, 1, 0)


def random_costs(random: np.random.Generator) -> tuple[tuple[ExchangeCost, ...], list[float]]:
    """Five stages of three ranks, one of which exchanges inside a place only."""
    costs = tuple(
        ExchangeCost(
            overlap_s=float(random.uniform(0, 1)),
            private_s=float(random.uniform(0, 4)),
            shared_s=float(random.uniform(0, 3)) if rank else 0.0,
            edge_bytes={},
        )
        for rank in RANKS
    )
    return costs, random.uniform(0, 6, size=5).tolist()


def test_turns_do_not_overlap_and_nobody_starts_before_it_is_ready() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        costs, last_s = random_costs(random)
        found = run_exchanges(costs, last_s, RANKS)
        assert [one.stage for one in found] == list(range(5))
        shared = sorted((one for one in found if one.shared_s > 0), key=lambda one: one.start_s)
        assert all(a.start_s + a.shared_s <= b.start_s + 1e-12 for a, b in itertools.pairwise(shared))
        for rank in range(3):
            own = sorted((one for one in found if RANKS[one.stage] == rank), key=lambda one: one.start_s)
            assert all(
                a.start_s + max(a.private_s, a.shared_s) <= b.start_s + 1e-12 for a, b in itertools.pairwise(own)
            )
        for one, cost, last in zip(found, costs, last_s, strict=True):
            assert one.start_s >= max(last - cost.overlap_s, 0.0)
            assert one.end_s >= max(last, one.start_s + cost.duration_s)


def test_the_longest_first_is_nearly_as_good_as_the_best_of_all_orders() -> None:
    random = np.random.default_rng(4)
    worse = []
    for _ in range(60):
        costs, last_s = random_costs(random)
        ready = [max(last - cost.overlap_s, 0.0) for last, cost in zip(last_s, costs, strict=True)]
        shared = [stage for stage, cost in enumerate(costs) if cost.shared_s > 0]
        private = sorted({*range(len(costs))} - {*shared}, key=lambda stage: ready[stage])

        def end_s(
            order: tuple[int, ...],
            costs: tuple[ExchangeCost, ...] = costs,
            ready: list[float] = ready,
            last_s: list[float] = last_s,
            private: list[int] = private,
        ) -> float:
            return max(one.end_s for one in _one_by_one(costs, ready, last_s, RANKS, [*private, *order]))

        first_ready = end_s(tuple(sorted(shared, key=lambda stage: ready[stage])))
        best = min(map(end_s, itertools.permutations(shared)))
        found = max(one.end_s for one in run_exchanges(costs, last_s, RANKS))
        assert best - 1e-12 <= found <= first_ready + 1e-12
        worse.append(found / best)
    assert float(np.mean(worse)) < 1.05


def test_a_short_exchange_that_is_ready_first_does_not_hold_up_a_long_one() -> None:
    short = ExchangeCost(overlap_s=0.0, private_s=0.0, shared_s=1.0, edge_bytes={})
    long = ExchangeCost(overlap_s=0.0, private_s=8.0, shared_s=1.0, edge_bytes={})
    found = run_exchanges((short, short, long), [0.0, 0.5, 0.9], (0, 1, 2))
    assert [one.start_s for one in found] == [0.0, 2.0, 1.0]


def test_chunks_of_a_rank_do_not_make_its_cards_faster() -> None:
    chunk = ExchangeCost(overlap_s=0.0, private_s=1.0, shared_s=0.0, edge_bytes={})
    found = run_exchanges((chunk,) * 4, [0.0] * 4, (0, 1, 0, 1))
    assert [one.end_s for one in found] == [1.0, 1.0, 2.0, 2.0]
