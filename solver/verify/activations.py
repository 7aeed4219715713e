"""The stated operations of one pipeline rank over time: read once, and the activations that they hold.

The bytes that a plan states are not read.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, get_args

import numpy as np

from models.schedule import MAX_OPERATIONS, Operation, OperationKind, RankTimeline
from solver.pipeline.problem import Floats, Ints

SAME_INSTANT = 1e-9  # relative: an end and a start that a float sum pulls apart
KINDS: tuple[OperationKind, ...] = get_args(OperationKind)
FORWARD, BACKWARD, WEIGHT, FUSED = range(4)
SYNC = -1  # code of a gradient exchange


class Timed(NamedTuple):
    """Operations with their stated start and end, as columns; kinds are places in KINDS."""

    stage: Ints
    kind: Ints
    start_s: Floats
    end_s: Floats


def timed(texts: Iterable[str], starts: Iterable[float], ends: Iterable[float]) -> Timed:
    """Operations and their times; those of gradient exchanges and times without an operation are left out."""
    rows = [
        np.fromiter(map(_code, texts), dtype=np.int64),
        *(np.fromiter(one, dtype=np.float64) for one in (starts, ends)),
    ]
    size = min(len(one) for one in rows)
    code, start, end = (one[:size] for one in rows)
    retained = code != SYNC
    stage, kind = np.divmod(code[retained], len(KINDS))
    return Timed(stage, kind, start[retained], end[retained])


def timed_operations(timeline: RankTimeline) -> Timed:
    """The operations of a rank; times without an operation are the schedule rules' find, and left out here."""
    lists = (timeline.operations, timeline.start_s, timeline.end_s)
    found = timed(*lists)
    if len(found.stage) < min(map(len, lists)):
        raise ValueError("a rank runs no gradient exchange: these are messages")
    return found


@lru_cache(maxsize=MAX_OPERATIONS)
def _code(text: str) -> int:
    """Stage and kind as one number. Routes share their operations' names."""
    if text.endswith("SYNC"):
        return SYNC
    operation = Operation.parse(text)
    return operation.stage * len(KINDS) + KINDS.index(operation.kind)


def peak_activation_bytes(operations: Timed, held: Mapping[int, tuple[float, float]]) -> float:
    """Most bytes held at one instant; `held` gives (activation, weight-gradient context) of every stage of the rank.

    F takes its activation when it starts; B gives it back for the context when it ends, W gives back the context; BW
    gives back the activation. What ends at an instant is given back before what starts at it is taken. Operations of
    other ranks' stages are left out.

    >>> peak_activation_bytes(timed(["0F0", "0F1", "0BW0"], [0, 1, 2], [1, 2, 4]), {0: (5.0, 0.0)})
    10.0
    """
    slack = SAME_INSTANT * float(operations.end_s.max(initial=0.0))
    change_of = np.zeros((max(held, default=0) + 2, len(KINDS)))
    for stage, (activation, context) in held.items():
        change_of[stage] = (activation, context - activation, -context, -activation)
    rows = np.minimum(operations.stage, len(change_of) - 1)
    change = change_of[rows, operations.kind]
    at_s = np.where(operations.kind == FORWARD, operations.start_s, operations.end_s - slack)
    order = np.lexsort((change, at_s))
    return float(np.cumsum(change[order]).max(initial=0.0))
