"""Steady states: one round of a few micro-batches that repeats for ever, as short as delays and memory let it be.

The length of the round is searched for: no round is shorter than the work of the busiest rank or link; from there
on lengths are tried until every operation finds a place in the reservation table (time modulo the length) and memory
suffices, then delays are put in by chance to make shorter rounds fit. This is modulo scheduling (Rau 1994) with memory
as counts of rounds in flight. Same seed, same number of placings, same rounds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from solver.pipeline.generators.periodic_kernel import ReservationTable, Round, place_round
from solver.pipeline.problem import Floats, PipelineShape, ragged
from solver.pipeline.simulate_kernel import ShapeColumns, columns_of

COARSE, FINE = 1.01, 1.001  # steps of the length, first and within the last step
MOST_LENGTH = 1e4  # times the busiest server; beyond it memory holds no round at all
CLOSE_ENOUGH = 5e-4  # relative: a round so near to the shortest conceivable one ends the search
DELAYS_CHANGED = 0.08  # part of the delays that is drawn anew at once; set by hand
PATIENCE = 300  # changes of the delays before another length is tried


@dataclass(frozen=True, eq=False)
class SteadyState:
    """A round: its length and the start of every operation (kind, stage, micro-batch of the round)."""

    length_s: float
    start: Floats

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of one round."""
        return int(self.start.shape[2])


def busiest_s(shape: PipelineShape) -> float:
    """Work per micro-batch of the busiest rank or channel, which no period can undercut."""
    work = np.zeros(shape.num_ranks + shape.num_channels)
    np.add.at(work, shape.rank_of_s, shape.duration_ks.sum(axis=0))
    for channels in (shape.activation_channel_s, shape.gradient_channel_s):
        used = channels >= 0
        np.add.at(work, shape.num_ranks + channels[used], shape.transfer_s[used])
    return float(work.max())


def steady_states(
    shape: PipelineShape, num_microbatches: int, *, seed: int, stop: Callable[[], bool]
) -> Iterator[SteadyState]:
    """Ever shorter rounds of so many micro-batches, until the shortest conceivable one or until `stop` says so."""
    search = _Search(shape, num_microbatches)
    least_s = busiest_s(shape) * num_microbatches
    found = search.first(least_s, stop) if least_s > 0 else None
    if found is None:
        return
    yield found
    random = np.random.default_rng(seed)
    while found.length_s > least_s * (1 + CLOSE_ENOUGH) and not stop():
        better = search.shorter(found, least_s, random, stop)
        if better is not None:
            found = better
            yield found


class _Search:
    """Columns and scratch of one shape, and the delays of the best round so far."""

    def __init__(self, shape: PipelineShape, size: int) -> None:
        self._columns: ShapeColumns = columns_of(shape)
        own = [np.flatnonzero(shape.rank_of_s == rank) for rank in range(shape.num_ranks)]
        self._stage_flat, self._stage_offsets = ragged(own)
        self._shape, self._size = shape, size
        self._delay: Floats = np.zeros((2, shape.num_stages, size))
        self._table = _empty_table(shape, size, max(len(one) for one in own))
        self._share = 0.5

    def place(self, length_s: float, delay: Floats) -> tuple[float, SteadyState]:
        """Excess of memory, in activations, and the round."""
        start = np.zeros((self._shape.num_kinds, self._shape.num_stages, self._size))
        question = Round(length_s * (1 + 1e-12), delay, self._stage_flat, self._stage_offsets)
        over = place_round(self._columns, question, self._table, start)
        return float(over), SteadyState(question.length, start)

    def first(self, least_s: float, stop: Callable[[], bool]) -> SteadyState | None:
        """The first length at which a round without chosen delays fits."""
        length_s, below_s = least_s, least_s
        while length_s <= MOST_LENGTH * least_s:
            over, found = self.place(length_s, self._delay)
            if over == 0:
                return self._refined(below_s, found)
            if stop():
                return None
            below_s, length_s = length_s, length_s * COARSE
        return None

    def _refined(self, below_s: float, found: SteadyState) -> SteadyState:
        length_s = below_s * FINE
        while length_s < found.length_s:
            over, finer = self.place(length_s, self._delay)
            if over == 0:
                return finer
            length_s *= FINE
        return found

    def shorter(
        self, best: SteadyState, least_s: float, random: np.random.Generator, stop: Callable[[], bool]
    ) -> SteadyState | None:
        """A round between the least and the best, by changing delays; nearer to the best after a failure."""
        length_s = best.length_s - self._share * (best.length_s - least_s)
        now = self._delay
        now_over, found = self.place(length_s, now)
        for _ in range(PATIENCE):
            if now_over == 0:
                self._delay, self._share = now, min(0.9, 1.5 * self._share)
                return found
            if stop():
                return None
            delay = _changed(now, random)
            over, tried = self.place(length_s, delay)
            if over <= now_over:
                now, now_over, found = delay, over, tried
        self._share = self._share / 2 if self._share > 0.02 else 0.5
        return None


def _changed(delay: Floats, random: np.random.Generator) -> Floats:
    """Some delays drawn anew, most of them to nothing."""
    chosen = random.random(delay.shape) < max(DELAYS_CHANGED * random.random(), 1.5 / delay.size)
    drawn = np.where(random.random(delay.shape) < 0.5, 0.0, random.random(delay.shape) ** 2 / delay.shape[2])
    return np.where(chosen, drawn, delay)


def _empty_table(shape: PipelineShape, size: int, most_stages: int) -> ReservationTable:
    servers = shape.num_ranks + shape.num_channels
    slots = max(shape.num_kinds * most_stages, shape.num_stages) * size + 2
    return ReservationTable(
        np.zeros((servers, slots)),
        np.zeros((servers, slots)),
        np.zeros(servers, dtype=np.int64),
        np.zeros((shape.num_ranks, slots)),
        np.zeros(shape.num_ranks, dtype=np.int64),
        np.zeros(slots),
    )
