"""Simulated annealing over the times at which operations are wished for; list scheduling makes orders of them.

The wishes are the times of the last order taken, changed for one kind on some stages and micro-batches. This is search
in the space of priorities (Storer, Wu and Vaccari 1992): one change carries operations over many places of many ranks,
which single moves of `tabu` reach through worse orders only, so that one prepares the other.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np

from solver.clock import charge
from solver.pipeline.generators.list_scheduler import ListScheduler, order_of
from solver.pipeline.generators.list_scheduler_kernel import Record
from solver.pipeline.local_search.late_starts import replayed
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.problem import Floats, Ints, PipelineOrder

CHUNK_OPERATIONS = 40_000  # ordered and replayed between two looks at the clock: about 0.01 s
WORK_S = 3e-7  # per operation ordered and replayed, up to twice what it takes on a core of 2020
LEAST_OPERATIONS = 150  # an order of fewer takes about as long
# Relative: what an order may be worse at first, on average. Two pipelines of 3,600 operations from the plan of 24
# buildings end 3.5 and 3.8 % over their bounds after 20 and 16 s of one core, with 0.002 4.5 and 4.4 %. Smaller
# ones, of plans and of `pipeline_cases`, end as near with either.
HEAT = 1e-4
# Chosen on pipelines of twelve plans and three of `pipeline_cases`.
SHIFTS = (0.05, 0.4)  # of the makespan, on average: either, by chance
WAITS = (0.0, 0.1, 0.3)  # of an operation's time, for one of an earlier wish
STRICT_SHARE = 0.5  # of the orders, made with forwards in order of their wishes
NUM_COURSES = 2  # of every thread, for half of the time: the better ones go on
EQUAL = 1e-9  # relative: sums of times are floats
MOST_REFUSED = 400  # orders in a row: the list scheduler cannot come near to what it starts from


def anneal(search: PipelineSearch, seconds: float) -> None:
    """Better orders from the best one, cooling down for so long or until one meets the bound."""
    began_s, stop = search.elapsed_s, search.stop_after(seconds)
    until_s = began_s + min(seconds, search.left_s)
    if until_s <= began_s:
        return
    first_seed = search.problem.options.seed
    threads = search.num_threads
    chains = [_Chain(search, search.best_order, seed=first_seed + number) for number in range(NUM_COURSES * threads)]
    size = LEAST_OPERATIONS + search.shape.num_operations
    tries = max(CHUNK_OPERATIONS // size, 1)
    with ThreadPoolExecutor(threads) as pool:
        while not stop() and any(chain.num_refused < MOST_REFUSED for chain in chains):
            left = (until_s - search.elapsed_s) / (until_s - began_s)
            if left < 0.5 and len(chains) > threads:  # half of the time is over
                chains = sorted(chains, key=lambda chain: chain.best_s)[:threads]
            for chain in pool.map(_Chain.advanced, chains, repeat(tries), repeat(HEAT * left)):
                if chain.best_s < search.value_s:
                    search.offer(chain.best, "annealing")
            charge(search.clock, tries * size * WORK_S * len(chains) / threads)


class _Chain:
    """One course of annealing: its order's value and times, and the best order that it has met."""

    def __init__(self, search: PipelineSearch, order: PipelineOrder, *, seed: int) -> None:
        self._shape, self._objective = search.shape, search.problem.objective
        self._random = np.random.default_rng(seed)
        self._chunk_s = search.shape.chunk_s
        self._scheduler = ListScheduler(search.shape)
        self._value_s, self._wished = self._replayed(order)
        self._wait = self._least_wait()
        self.best, self.best_s, self.num_refused = order, self._value_s, 0

    def advanced(self, tries: int, heat: float) -> _Chain:
        """This chain, after it made so many orders and took each that is better, or by chance little worse."""
        best = None
        for _ in range(tries):
            self.num_refused += 1
            strict = self._random.random() < STRICT_SHARE
            record = self._scheduler.order(self._changed(), strict=strict, wait=self._wait)
            if record is None:
                continue
            value_s, times = self._timed(record)
            if value_s > self._value_s * (1 + heat * self._random.exponential()):
                continue
            self._value_s, self._wished, self.num_refused = value_s, times, 0
            if value_s < self.best_s:
                best, self.best_s = record, value_s
        self.best = self.best if best is None else order_of(best)
        return self

    def _least_wait(self) -> float:
        """With which the scheduler remakes the first order from its times, or comes nearest to it."""
        values_s = []
        for wait in WAITS:
            record = self._scheduler.order(self._wished.ravel(), strict=False, wait=wait)
            value_s = np.inf if record is None else self._timed(record)[0]
            values_s.append(max(value_s, self._value_s * (1 + EQUAL)))
        return WAITS[int(np.argmin(values_s))]

    def _timed(self, record: Record) -> tuple[float, Floats]:
        """Value of what the scheduler made, and its starts by kind, stage and micro-batch."""
        if self._objective == "span":
            return self._replayed(order_of(record))
        makespan_s, start = self._scheduler.replayed(record)
        return makespan_s, self._by_kind(start)

    def _replayed(self, order: PipelineOrder) -> tuple[float, Floats]:
        """The same of any order, by the objective; infinite where memory lacks."""
        run = replayed(self._shape, order, self._objective)
        return run.value_s(self._objective) if run.fits(self._shape) else np.inf, self._by_kind(run.start)

    def _by_kind(self, start: Floats) -> Floats:
        shape = self._shape
        return start[: shape.num_operations].reshape(shape.num_kinds, shape.num_stages, shape.num_microbatches)

    def _changed(self) -> Floats:
        """The wishes with one kind earlier or later, on some stages, for some micro-batches in a row."""
        random, wished = self._random, self._wished.copy()
        first = random.integers(self._shape.num_microbatches)
        last = first + 1 + random.integers(self._shape.num_microbatches)
        shift_s = random.choice(SHIFTS) * self.best_s * random.exponential() * random.choice((-1.0, 1.0))
        wished[random.integers(self._shape.num_kinds), self._stages(), first:last] += shift_s
        return wished.ravel()

    def _stages(self) -> Ints:
        """Those of a rank, the same chunk of all ranks, some in a row, or all."""
        shape, random = self._shape, self._random
        ways = random.integers(4)
        if ways == 0:
            return np.flatnonzero(shape.rank_of_s == random.integers(shape.num_ranks))
        if ways == 1:
            return np.flatnonzero(self._chunk_s == random.integers(self._chunk_s.max() + 1))
        first, last = 0, shape.num_stages
        if ways == 2:
            first = int(random.integers(shape.num_stages))
            last = min(first + 1 + int(random.integers(shape.num_ranks)), last)
        return np.arange(first, last)
