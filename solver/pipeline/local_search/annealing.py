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
from solver.pipeline.generators.list_scheduler import guided_order
from solver.pipeline.local_search.late_starts import replayed
from solver.pipeline.local_search.progress import BUDGET_TOLERANCE, PipelineSearch
from solver.pipeline.problem import Floats, Ints, PipelineOrder, PipelineShape

CHUNK_OPERATIONS = 40_000  # ordered and replayed between two looks at the clock: about 0.03 s
WORK_S = 1e-6  # per operation ordered and replayed, twice what it takes on a core of 2020
LEAST_OPERATIONS = 300  # an order of fewer takes about as long
# Chosen of twelve settings on four pipelines of plans and three of `pipeline_cases`, 4 s each.
HEAT = 0.002  # relative: what an order may be worse at first, on average
LARGEST_SHIFT = 0.05  # of the makespan, on average
STRICT_SHARE = 0.5  # of the orders, made with forwards in order of their wishes
MOST_REFUSED = 400  # orders in a row: the list scheduler cannot come near to what it starts from


def anneal(search: PipelineSearch, seconds: float) -> None:
    """Better orders from the best one, cooling down for so long or until one meets the bound."""
    began_s = search.elapsed_s
    until_s = began_s + min(seconds, search.left_s)
    if search.order is None or until_s <= began_s:
        return

    def stop() -> bool:
        return search.over or search.elapsed_s >= until_s

    first_seed = search.problem.options.seed
    chains = [_Chain(search, search.order, seed=first_seed + number) for number in range(search.num_threads)]
    size = LEAST_OPERATIONS + search.shape.num_operations
    tries = max(CHUNK_OPERATIONS // size, 1)
    with ThreadPoolExecutor(len(chains)) as pool:
        while not stop() and any(chain.num_refused < MOST_REFUSED for chain in chains):
            heat = HEAT * (until_s - search.elapsed_s) / (until_s - began_s)
            for chain in pool.map(_Chain.advanced, chains, repeat(tries), repeat(heat)):
                if chain.best_s < search.value_s:
                    search.offer(chain.best, "annealing")
            charge(search.clock, tries * size * WORK_S)


class _Chain:
    """One course of annealing: its order's value and times, and the best order that it has met."""

    def __init__(self, search: PipelineSearch, order: PipelineOrder, *, seed: int) -> None:
        self._shape, self._objective = search.shape, search.problem.objective
        self._random = np.random.default_rng(seed)
        self._chunk_s = _chunks(search.shape)
        self._value_s, self._wished = self._timed(order)
        self.best, self.best_s, self.num_refused = order, self._value_s, 0

    def advanced(self, tries: int, heat: float) -> _Chain:
        """This chain, after it made so many orders and took each that is better, or by chance little worse."""
        for _ in range(tries):
            self.num_refused += 1
            strict = self._random.random() < STRICT_SHARE
            order = guided_order(self._shape, self._changed(), strict=strict)
            if order is None:
                continue
            value_s, times = self._timed(order)
            if value_s > self._value_s * (1 + heat * self._random.exponential()):
                continue
            self._value_s, self._wished, self.num_refused = value_s, times, 0
            if value_s < self.best_s:
                self.best, self.best_s = order, value_s
        return self

    def _timed(self, order: PipelineOrder) -> tuple[float, Floats]:
        """Value of an order, infinite where memory lacks, and its starts by kind, stage and micro-batch."""
        shape = self._shape
        run = replayed(shape, order, self._objective)
        fits = np.all(run.peak_memory_bytes <= shape.budget_r * BUDGET_TOLERANCE)
        value_s = run.span_s if self._objective == "span" else run.makespan_s
        starts = run.start[: shape.num_operations]
        return value_s if fits else np.inf, starts.reshape(shape.num_kinds, shape.num_stages, shape.num_microbatches)

    def _changed(self) -> Floats:
        """The wishes with one kind earlier or later, on some stages, for some micro-batches in a row."""
        random, wished = self._random, self._wished.copy()
        first = random.integers(self._shape.num_microbatches)
        last = first + 1 + random.integers(self._shape.num_microbatches)
        shift_s = LARGEST_SHIFT * self.best_s * random.exponential() * random.choice((-1.0, 1.0))
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


def _chunks(shape: PipelineShape) -> Ints:
    """Of every stage, how many stages its rank has before it."""
    same = shape.rank_of_s[:, None] == shape.rank_of_s[None, :]
    before: Ints = np.tril(same, -1).sum(axis=1).astype(np.int64)
    return before
