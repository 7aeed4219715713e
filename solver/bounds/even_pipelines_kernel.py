"""Compiled bounds of many even pipelines at once: the ways of micro-batches through every rank, in a loop over rows.

What the columns mean is in `even_pipelines.py`, why the values bound in docs/bounds.md, "Work, memory
and slower types".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.arrays import BoolArray
from solver.bounds.bounded import ROUNDING
from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.bounds import SAFETY
from solver.pipeline.problem import Floats, Ints

TINY = 1e-30  # bytes of what takes none, so that it comes first per byte
FORWARD, INPUT_GRAD, WEIGHT_GRAD, ACTIVATION, CONTEXT = range(5)  # costs of a part and of a stage
BEFORE, BACK, ON, HOME, NUM_ROWS = range(5, 10)  # ways of a stage: see `_lay_out`
UNKNOWN = -1.0  # seconds of a row that is not bounded yet
DENSE, MOE, EMBEDDING, LOGITS = range(4)
FIRST, SECOND, LAST_BUT_ONE, LAST = range(4)  # ranks whose memory is known


class PipelineRows(NamedTuple):
    """Pipelines with even shares of layers, by row.

    `cards_s` are those of the smallest stage's exchange, `rank_cards_s` of all exchanges of the last rank but one.
    `part_cqn` has the costs of a dense layer, an MoE layer, the embedding and the logits; `budget_qn` the bytes for
    activations on the first, second, last but one and last rank, infinite where memory does not count. `moe_before` are
    the MoE layers before each layer.
    """

    num_microbatches: Ints
    pp: Ints
    vpp: Ints
    folded: BoolArray
    looped: BoolArray
    first: Ints
    middle: Ints
    num_more: Ints
    moe_before: Ints
    part_cqn: Floats
    budget_qn: Floats
    hop_s: Floats
    exposed_s: Floats
    overlap_s: Floats
    cards_s: Floats
    rank_cards_s: Floats


@compiled
def pipelines_s(rows: PipelineRows, crossing_s: Floats, num_groups: int, known_s: Floats) -> Floats:
    """The bound of every row, where crossing between groups takes so much longer than a hop inside one (seconds).

    Rows without such a delay keep what `known_s` has, unless that is `UNKNOWN`.
    """
    rows = uncounted(rows)
    crossing_s, known_s = uncounted(crossing_s), uncounted(known_s)
    most = 1
    for row in range(len(rows.pp)):
        most = max(most, rows.pp[row] * rows.vpp[row])
    stages, ends, found = np.zeros((NUM_ROWS, most)), np.zeros(most), known_s.copy()
    for row in range(len(rows.pp)):
        if crossing_s[row] <= 0.0 and known_s[row] != UNKNOWN:
            continue
        slowest = _price(rows, row, stages)
        _lay_out(rows, row, crossing_s[row], num_groups, stages)
        best = _there_and_back(rows, row, slowest, stages)
        for rank in range(rows.pp[row]):
            best = max(best, _ways_of_rank(rows, row, rank, stages, ends))
            best = max(best, _exchanges_of_rank(rows, row, rank, ends))
            budget = _budget(rows, row, rank)
            if budget < np.inf:
                best = max(best, _early(rows, row, rank, budget, stages, ends))
                best = max(best, _trips(rows, row, rank, budget, slowest, stages))
        found[row] = best * SAFETY
    return found


@inlined
def _start(rows: PipelineRows, row: int, stage: int) -> int:
    """First layer of a stage, as `Shares.start` has it."""
    num_stages = rows.pp[row] * rows.vpp[row]
    if stage <= 0:
        return 0
    if stage >= num_stages:
        return len(rows.moe_before) - 1
    more = max(stage - (num_stages - 1 - rows.num_more[row]), 0)
    return int(rows.first[row] + (stage - 1) * rows.middle[row] + more)


@inlined
def _price(rows: PipelineRows, row: int, stages: Floats) -> float:
    """Costs of every stage: layers of both kinds, and the ends. Yields its longest forward or input gradient."""
    num_stages, begin, slowest = rows.pp[row] * rows.vpp[row], 0, 0.0
    for stage in range(num_stages):
        end = _start(rows, row, stage + 1)
        moe = rows.moe_before[end] - rows.moe_before[begin]
        dense = end - begin - moe
        for cost in range(5):
            value = dense * rows.part_cqn[cost, DENSE, row] + moe * rows.part_cqn[cost, MOE, row]
            if stage == 0:
                value += rows.part_cqn[cost, EMBEDDING, row]
            if stage == num_stages - 1:
                value += rows.part_cqn[cost, LOGITS, row]
            stages[cost, stage] = value
        slowest = max(slowest, stages[FORWARD, stage], stages[INPUT_GRAD, stage])
        begin = end
    return slowest


@inlined
def _lay_out(rows: PipelineRows, row: int, crossing_s: float, num_groups: int, stages: Floats) -> None:
    """BEFORE, BACK: the way there from the first stage to this one, and back to it. ON, HOME: on from the begin of this
    stage's forward to the end of the last one, and home to the end of this one's input gradient. With all messages.
    """
    pp, v = rows.pp[row], rows.vpp[row]
    each = num_groups if rows.looped[row] else num_groups - 1
    before = back = 0.0
    for stage in range(pp * v):
        chunk, place = stage // pp, stage % pp
        late = crossing_s * (chunk * each + (num_groups - 1 if place == pp - 1 else 0))
        stages[BEFORE, stage], stages[BACK, stage] = before + late, back + late
        hop = rows.hop_s[row] if pp > 1 and not (rows.folded[row] and place == pp - 1) else 0.0
        before += stages[FORWARD, stage] + hop
        back += stages[INPUT_GRAD, stage] + hop
    on = home = 0.0
    for stage in range(pp * v - 1, -1, -1):
        chunk, place = stage // pp, stage % pp
        late = crossing_s * ((v - 1 - chunk) * each + (num_groups - 1 if place == 0 else 0))
        joined = stage == pp * v - 1 or pp == 1 or (rows.folded[row] and place == pp - 1)
        hop = 0.0 if joined else rows.hop_s[row]
        on += stages[FORWARD, stage] + hop
        home += stages[INPUT_GRAD, stage] + hop
        stages[ON, stage], stages[HOME, stage] = on + late, home + late


@inlined
def _ends_s(rows: PipelineRows, row: int, stages: Floats) -> tuple[float, float, float]:
    """All forwards of a micro-batch, all of its input gradients, and what follows those of the first stage."""
    last = rows.pp[row] * rows.vpp[row] - 1
    there = stages[BEFORE, last] + stages[FORWARD, last]
    back = stages[BACK, last] + stages[INPUT_GRAD, last]
    return there, back, stages[WEIGHT_GRAD, 0] + rows.exposed_s[row]


@inlined
def _there_and_back(rows: PipelineRows, row: int, slowest: float, stages: Floats) -> float:
    """The first micro-batch goes as far as the slowest operation, which all others follow on, the last one goes on."""
    there, back, update = _ends_s(rows, row, stages)
    return float(there + back + (rows.num_microbatches[row] - 1) * slowest + update)


@inlined
def _stage_of(rows: PipelineRows, row: int, chunk: int, rank: int) -> int:
    pp = rows.pp[row]
    if rows.folded[row] and chunk % 2 == 1:
        return int((chunk + 1) * pp - 1 - rank)
    return int(chunk * pp + rank)


@inlined
def _ways_of_rank(rows: PipelineRows, row: int, rank: int, stages: Floats, ends: Floats) -> float:
    """The most that any run of kinds of a rank's operations takes, with the way to the first and from the last kind.

    Forwards of the first chunk have the least way before them and the longest behind, then come those of the later
    chunks, then input gradients from the last chunk on. Weight gradients follow input gradients. `ends` gets when the
    last weight gradient of each chunk ends at the earliest.
    """
    m, v = rows.num_microbatches[row], rows.vpp[row]
    there, back, update = _ends_s(rows, row, stages)
    begin, begin_all, done, done_all, best = -np.inf, -np.inf, 0.0, 0.0, 0.0
    for chunk in range(v):
        stage = _stage_of(rows, row, chunk, rank)
        begin = max(begin, stages[BEFORE, stage] - done)
        done += m * stages[FORWARD, stage]
        best = max(best, begin + done + stages[ON, stage] - stages[FORWARD, stage] + back + update)
    begin_all, done_all = begin, done
    for chunk in range(v - 1, -1, -1):
        stage = _stage_of(rows, row, chunk, rank)
        input_grad = stages[INPUT_GRAD, stage]
        ready = there + stages[HOME, stage] - input_grad
        begin, begin_all = max(begin, ready - done), max(begin_all, ready - done_all)
        done += m * input_grad
        done_all += m * (input_grad + stages[WEIGHT_GRAD, stage])
        best = max(best, begin + done + stages[BACK, stage] + update)
        ends[chunk] = begin + done + m * stages[WEIGHT_GRAD, stage]
    return float(max(best, begin_all + done_all + rows.exposed_s[row]))


@inlined
def _exchanges_of_rank(rows: PipelineRows, row: int, rank: int, ends: Floats) -> float:
    """The exchanges of the first chunks of a rank follow each other on its cards, behind the first end of them."""
    ready, latest = np.inf, 0.0
    for chunk in range(rows.vpp[row]):
        ready = min(ready, max(ends[chunk] - rows.overlap_s[row], 0.0))
        if rows.cards_s[row] > 0.0:
            latest = max(latest, ready + (chunk + 1) * rows.cards_s[row])
    if rank == max(rows.pp[row] - 2, 0) and rows.rank_cards_s[row] > 0.0:
        latest = max(latest, ready + rows.rank_cards_s[row])
    return latest


@inlined
def _budget(rows: PipelineRows, row: int, rank: int) -> float:
    """Bytes of a rank for activations; infinite where they are not known."""
    pp = rows.pp[row]
    if rank == 0:
        return float(rows.budget_qn[FIRST, row])
    if rank == pp - 1:
        return float(rows.budget_qn[LAST, row])
    if rank == 1:
        return float(rows.budget_qn[SECOND, row])
    return float(rows.budget_qn[LAST_BUT_ONE, row]) if rank == pp - 2 else np.inf


@inlined
def _trips(rows: PipelineRows, row: int, rank: int, budget: float, slowest: float, stages: Floats) -> float:
    """The forward of a micro-batch waits for a gradient of the one that is as many before it as memory holds."""
    m, held, best = rows.num_microbatches[row], 0.0, 0.0
    _, _, update = _ends_s(rows, row, stages)
    for chunk in range(rows.vpp[row]):
        stage = _stage_of(rows, row, chunk, rank)
        held += stages[ACTIVATION, stage]
        trip = stages[ON, stage] + stages[HOME, stage]
        way = stages[BEFORE, stage] + stages[BACK, stage] + update
        for row_of_memory in range(2):
            bytes_of_one = held if row_of_memory == 0 else min(stages[CONTEXT, stage], stages[ACTIVATION, stage])
            between = 0.0 if row_of_memory == 0 else stages[WEIGHT_GRAD, stage]
            if bytes_of_one <= 0.0:
                continue
            slots = min(max(int(min(budget / bytes_of_one * (1 + ROUNDING), 1.0 * m)), 1), m)
            trips = (m + slots - 1) // slots
            left = m - 1 - (trips - 1) * slots
            best = max(best, way + trips * trip + (trips - 1) * between + left * slowest)
    return best


@inlined
def _early(rows: PipelineRows, row: int, rank: int, budget: float, stages: Floats, ends: Floats) -> float:
    """Until the first gradient a rank does forwards alone, no more than memory holds."""
    m, v = rows.num_microbatches[row], rows.vpp[row]
    there, _, update = _ends_s(rows, row, stages)
    last = _stage_of(rows, row, v - 1, rank)
    arrival = there + stages[HOME, last] - stages[INPUT_GRAD, last]
    both = weight = 0.0
    for chunk in range(v):
        stage = _stage_of(rows, row, chunk, rank)
        both += stages[FORWARD, stage] + stages[INPUT_GRAD, stage]
        weight += stages[WEIGHT_GRAD, stage]
    left = arrival + m * both - _forwards_in_memory(rows, row, rank, budget, stages, ends)
    back = stages[BACK, _stage_of(rows, row, 0, rank)]
    return float(left + max(m * weight + rows.exposed_s[row], back + update))


@inlined
def _forwards_in_memory(rows: PipelineRows, row: int, rank: int, budget: float, stages: Floats, taken: Floats) -> float:
    """The most work of forwards that memory holds at once: by work per byte with fractions, or by number."""
    m, v = rows.num_microbatches[row], rows.vpp[row]
    least = np.inf
    for chunk in range(v):
        least = min(least, stages[ACTIVATION, _stage_of(rows, row, chunk, rank)])
    best = np.inf
    for whole in range(2):
        if whole == 1 and least <= 0.0:
            continue
        left, work = budget * (1 + ROUNDING), 0.0
        if whole == 1:
            left = np.floor(left / least)
        taken[:v] = 0.0
        for _ in range(v):
            chosen, most = 0, -1.0
            for chunk in range(v):
                stage = _stage_of(rows, row, chunk, rank)
                size = 1.0 if whole == 1 else max(stages[ACTIVATION, stage], TINY)
                if taken[chunk] == 0.0 and stages[FORWARD, stage] / size > most:
                    chosen, most = chunk, stages[FORWARD, stage] / size
            stage = _stage_of(rows, row, chosen, rank)
            size = 1.0 if whole == 1 else max(stages[ACTIVATION, stage], TINY)
            number = min(1.0 * m, max(left, 0.0) / size)
            taken[chosen] = 1.0
            work += number * stages[FORWARD, stage]
            left -= number * size
        best = min(best, work)
    return best
