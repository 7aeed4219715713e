"""From values of the variables to an order: operations and messages sorted by start, ties by `instant_rank`."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from ortools.sat.python import cp_model

from solver.pipeline.cpsat.variables import Instance, Vars
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape

Tie: TypeAlias = tuple[int, int, int]
Place: TypeAlias = tuple[int, int, Tie]


def extract(instance: Instance, v: Vars, value_of: Callable[[cp_model.IntVar], int]) -> PipelineOrder:
    """The order of the found starts."""
    shape = instance.shape
    ranks: list[list[tuple[Place, int]]] = [[] for _ in range(shape.num_ranks)]
    for (k, s, j), variable in v.start_ksj.items():
        operation = shape.operation_id(k, s, j)
        place = _place(shape, value_of(variable), instance.duration(k, s), operation)
        ranks[shape.rank_of_s[s]].append((place, operation))
    channels: list[list[tuple[Place, int]]] = [[] for _ in range(shape.num_channels)]
    for (k, s, j), variable in v.message_ksj.items():
        hop, message = (s if k == 0 else s - 1), shape.operation_id(k, s, j)
        channel = shape.activation_channel_s[s] if k == 0 else shape.gradient_channel_s[hop]
        channels[channel].append((_place(shape, value_of(variable), int(shape.transfer_s[hop]), message), message))
    for s, variable in v.exchange_s.items():
        if shape.sync_link_s[s] >= 0:
            message = shape.num_operations + s
            place = _place(shape, value_of(variable), int(shape.sync_s[s]), message)
            for direction in (0, 1):
                channels[2 * shape.sync_link_s[s] + direction].append((place, message))
    return PipelineOrder(tuple(map(_sorted, ranks)), tuple(map(_sorted, channels)))


def instant_rank(shape: PipelineShape, operation: int) -> Tie:
    """The order within one instant: micro-batch after micro-batch, each along its way; exchanges come last.

    Every wait (data, order within a kind, memory) leads forwards in this order, so what takes no time never waits in
    a circle.

    >>> from types import SimpleNamespace
    >>> split = lambda one: (one // 4, one // 2 % 2, one % 2)
    >>> shape = SimpleNamespace(num_operations=12, num_microbatches=2, split=split)
    >>> sorted(range(13), key=lambda one: instant_rank(shape, one))
    [0, 2, 6, 4, 8, 10, 1, 3, 7, 5, 9, 11, 12]
    """
    if operation >= shape.num_operations:
        return shape.num_microbatches, operation, 0
    kind, stage, microbatch = shape.split(operation)
    return microbatch, kind, -stage if kind == 1 else stage


def _place(shape: PipelineShape, start: int, size: int, operation: int) -> Place:
    return start, start + size, instant_rank(shape, operation)


def _sorted(placed: list[tuple[Place, int]]) -> Ints:
    return np.array([one for _, one in sorted(placed)], dtype=np.int64)
