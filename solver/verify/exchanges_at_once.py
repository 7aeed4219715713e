"""Exchanges of gradients beside each other: which begin when, and what those at once take of the links.

An exchange has the cards of its rank for the longer of its parts, and its share of every edge while it takes the links.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from models.plan import StageExchange
from solver.pipeline.problem import Floats

FULL = 1.0 + 1e-9  # of an edge: its load is a sum of floats
SAME_INSTANT = 1e-12  # relative: an end on the links, and a start that may have waited for it


def in_order(exchanges: Iterable[StageExchange]) -> list[StageExchange]:
    """Exchanges as they begin; those that take no time go before others that begin with them."""
    return sorted(exchanges, key=lambda one: (one.start_s, max(one.private_s, one.shared_s), one.stage))


def earliest_starts(
    exchanges: Iterable[StageExchange], shares: Mapping[int, Mapping[int, float]], rank_of_stage: Sequence[int]
) -> dict[int, float]:
    """Earliest start of every stage's exchange beside those that begin before it, which begin when they say.

    It waits for its gradients less its head start, for the cards of its rank, and until those that have not ended leave
    its share of every edge; `shares` are those of the stages that take links, by edge.
    """
    ordered, found = in_order(exchanges), dict[int, float]()
    share_se = _over_edges([shares.get(one.stage, {}) for one in ordered])
    until_s = np.array([one.start_s + one.shared_s for one in ordered])
    cards_free_s = defaultdict[int, float](float)
    for number, one in enumerate(ordered):
        rank = rank_of_stage[one.stage]
        start_s = max(one.last_weight_grad_end_s - one.overlap_s, cards_free_s[rank], 0.0)
        others = np.flatnonzero(until_s[:number] > start_s) if share_se[number].any() else np.zeros(0, dtype=np.int64)
        others = others[np.argsort(until_s[others])]
        beside_se = np.vstack([share_se[others], np.zeros_like(share_se[:1])])
        load_se = share_se[number] + beside_se[::-1].cumsum(axis=0)[::-1]  # once the first of the others have ended
        ended = int(np.argmax((load_se <= FULL).all(axis=1)))  # so many of them before it fits
        found[one.stage] = max(start_s, float(until_s[others[ended - 1]])) if ended else start_s
        cards_free_s[rank] = one.start_s + max(one.private_s, one.shared_s)
    return found


def most_at_once(exchanges: Iterable[StageExchange], rates: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """Highest rate of all exchanges together on every edge that some take, bytes per second, of these by stage."""
    shared = [one for one in exchanges if one.stage in rates]
    beside_se = beside_each(shared, _over_edges([rates[one.stage] for one in shared]))
    edges = sorted({edge for one in shared for edge in rates[one.stage]})
    return dict(zip(edges, beside_se.max(axis=0, initial=0.0).tolist(), strict=True))


def beside_each(exchanges: Sequence[StageExchange], amount_sx: Floats) -> Floats:
    """What these exchanges add up to of several amounts, at most while each of them takes the links."""
    start = np.array([one.start_s for one in exchanges])
    until = np.array([one.start_s + one.shared_s for one in exchanges]) * (1.0 - SAME_INSTANT)
    there = (start <= start[:, None]) & (start[:, None] < until)  # who is there when each begins
    np.fill_diagonal(there, True)
    sums_sx = there @ amount_sx
    beside = [sums_sx[there[:, number]].max(axis=0) for number in range(len(exchanges))]
    return np.array(beside).reshape(amount_sx.shape)


def waits_for(exchanges: Iterable[StageExchange]) -> dict[int, list[int]]:
    """The stages whose exchanges have left the links when that of a stage begins, by stage, if both take links.

    Exchanges of which none waits for another are all on the links at some instant of the plan, as intervals that meet
    in pairs have an instant in common. So whenever they run, none beyond these are at once, and they fit.
    """
    shared = [one for one in in_order(exchanges) if one.shared_s > 0]
    return {
        one.stage: [
            other.stage
            for other in shared[:number]
            if other.start_s + other.shared_s <= one.start_s * (1.0 + SAME_INSTANT)
        ]
        for number, one in enumerate(shared)
    }


def _over_edges(parts: Sequence[Mapping[int, float]]) -> Floats:
    """A row for each, a column for each edge that some have a part of, in their order."""
    edges = sorted({edge for one in parts for edge in one})
    column, rows = {edge: index for index, edge in enumerate(edges)}, np.zeros((len(parts), len(edges)))
    for row, one in zip(rows, parts, strict=True):
        for edge, part in one.items():
            row[column[edge]] = part
    return rows
