"""Collectives played step by step: real values travel in messages over links that serve one message at a time.

A message leaves when its sender has the data and its link is free, occupies the link for size / rate and arrives alpha
later. The result of the collective is checked, so a formula cannot agree with a schedule that does not compute it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Link = tuple[float, float]  # alpha seconds, bytes per second


@dataclass
class Network:
    """Directed links between ranks and when each is free."""

    link_of: Callable[[int, int], Link]
    free_s: dict[tuple[int, int], float] = field(default_factory=dict)

    def send(self, sender: int, receiver: int, size_bytes: float, ready_s: float) -> float:
        """When the message has arrived."""
        latency_s, rate = self.link_of(sender, receiver)
        start_s = max(ready_s, self.free_s.get((sender, receiver), 0.0))
        self.free_s[sender, receiver] = start_s + size_bytes / rate
        return start_s + size_bytes / rate + latency_s


def ring_all_reduce(num_ranks: int, size_bytes: float, link_of: Callable[[int, int], Link]) -> float:
    """Reduce-scatter and all-gather round a ring; chunk c starts at rank c + 1 and ends everywhere."""
    network, chunk = Network(link_of), size_bytes / num_ranks
    have = [[{rank} for _ in range(num_ranks)] for rank in range(num_ranks)]
    ready = [[0.0] * num_ranks for _ in range(num_ranks)]
    for step in range(2 * (num_ranks - 1)):
        arrived = []
        for rank in range(num_ranks):
            piece, to = (rank - step - 1) % num_ranks, (rank + 1) % num_ranks
            arrived.append((to, piece, network.send(rank, to, chunk, ready[rank][piece]), have[rank][piece]))
        for to, piece, at, contributions in arrived:
            reducing = step < num_ranks - 1
            have[to][piece] = have[to][piece] | contributions if reducing else set(contributions)
            ready[to][piece] = max(ready[to][piece], at) if reducing else at
    assert all(piece == set(range(num_ranks)) for rank in have for piece in rank)
    return max(max(times) for times in ready)


def ring_all_gather(num_ranks: int, size_bytes: float, link_of: Callable[[int, int], Link]) -> float:
    """Every rank passes on what it got last."""
    network, chunk = Network(link_of), size_bytes / num_ranks
    ready = [{rank: 0.0} for rank in range(num_ranks)]
    for step in range(num_ranks - 1):
        arrived = [
            ((rank + 1) % num_ranks, piece, network.send(rank, (rank + 1) % num_ranks, chunk, ready[rank][piece]))
            for rank in range(num_ranks)
            for piece in [(rank - step) % num_ranks]
        ]
        for to, piece, at in arrived:
            ready[to][piece] = at
    assert all(len(pieces) == num_ranks for pieces in ready)
    return max(max(pieces.values()) for pieces in ready)


def binomial_all_reduce(num_ranks: int, size_bytes: float, link_of: Callable[[int, int], Link]) -> float:
    """Whole arrays up a binomial tree to rank 0 and down again."""
    network, ready = Network(link_of), [0.0] * num_ranks
    have = [{rank} for rank in range(num_ranks)]
    distances = [1 << level for level in range(max(1, num_ranks - 1).bit_length()) if 1 << level < num_ranks]
    for distance in distances:
        for rank in range(distance, num_ranks, 2 * distance):
            at = network.send(rank, rank - distance, size_bytes, max(ready[rank], ready[rank - distance]))
            ready[rank - distance] = at
            have[rank - distance] |= have[rank]
    assert have[0] == set(range(num_ranks))
    done = [0.0] * num_ranks
    done[0] = ready[0]
    for distance in reversed(distances):
        for rank in range(distance, num_ranks, 2 * distance):
            done[rank] = network.send(rank - distance, rank, size_bytes, done[rank - distance])
            done[rank - distance] = done[rank]  # the sender is busy with this message until it arrived
    return max(done)


def recursive_doubling_all_gather(num_ranks: int, size_bytes: float, link_of: Callable[[int, int], Link]) -> float:
    """Pairs at distance 1, 2, 4, ... exchange all they have; ranks a power of two."""
    network, ready = Network(link_of), [0.0] * num_ranks
    have = [{rank} for rank in range(num_ranks)]
    distance = 1
    while distance < num_ranks:
        sent = [
            network.send(rank, rank ^ distance, size_bytes * len(have[rank]) / num_ranks, ready[rank])
            for rank in range(num_ranks)
        ]
        ready = [max(ready[rank], sent[rank ^ distance]) for rank in range(num_ranks)]
        have = [have[rank] | have[rank ^ distance] for rank in range(num_ranks)]
        distance *= 2
    assert all(pieces == set(range(num_ranks)) for pieces in have)
    return max(ready)


def pairwise_all_to_all(num_ranks: int, size_bytes: float, link_of: Callable[[int, int], Link]) -> float:
    """In step s rank r sends to r + s, each through its one card, and waits for the arrival."""
    network, ready = Network(link_of), [0.0] * num_ranks
    got = [{rank} for rank in range(num_ranks)]
    for step in range(1, num_ranks):
        sent = {
            (rank + step) % num_ranks: (rank, network.send(rank, (rank + step) % num_ranks, size_bytes / num_ranks, at))
            for rank, at in enumerate(ready)
        }
        for to, (sender, _) in sent.items():
            got[to].add(sender)
        ready = [max(ready[rank], sent[rank][1]) for rank in range(num_ranks)]
    assert all(peers == set(range(num_ranks)) for peers in got)
    return max(ready)


def hierarchical_all_reduce(num_inside: int, num_places: int, size_bytes: float, inside: Link, across: Link) -> float:
    """Reduce-scatter inside each place, ring all-reduce of each shard across, all-gather inside; no overlap."""
    scatter = ring_all_gather(num_inside, size_bytes, lambda *_: inside)  # the mirror image takes the same time
    exchange = ring_all_reduce(num_places, size_bytes / num_inside, lambda *_: across) if num_places > 1 else 0.0
    return scatter + exchange + ring_all_gather(num_inside, size_bytes, lambda *_: inside)


def windowed_stages(stage_s: tuple[float, float, float], latency_s: float, num_chunks: int, window: int) -> float:
    """Chunks through inside, across and inside again, played: the last finish.

    The inside serves one chunk at a time, first passes at their turn and second passes in the gaps they fit in; the
    middle serves one at a time with at most `window` chunks on the way.
    """
    first, middle, last = stage_s
    busy: list[tuple[float, float]] = []
    crossed: list[float] = []
    start = first
    for chunk in range(num_chunks):
        if chunk:
            start += max(first + last, middle)
        if chunk >= window:
            start = max(start, crossed[chunk - window])
        if first > 0:
            busy.append((start - first, start))
        crossed.append(start + middle + latency_s)
    finish = 0.0
    for arrived in crossed:
        begin = _first_gap(busy, arrived, last)
        busy.append((begin, begin + last))
        finish = begin + last
    return finish


def _first_gap(busy: list[tuple[float, float]], earliest: float, length: float) -> float:
    begin = earliest
    for taken_from, taken_to in sorted(busy):
        if begin + length <= taken_from + 1e-12:
            break
        begin = max(begin, taken_to)
    return begin
