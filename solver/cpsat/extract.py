"""From values of the variables to an order: sorted starts, nothing else.

Owns ties: operations of no duration keep the order of data (F, B, W). Never reports a time; the replay does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ortools.sat.python import cp_model

from solver.cpsat.variables import Instance, Key, Vars
from solver.verify.pipeline_shape import PipelineOrder


def extract(instance: Instance, v: Vars, value_of: Callable[[cp_model.IntVar], int]) -> PipelineOrder:
    """The order of the found starts."""
    shape = instance.shape
    ranks: list[list[tuple[int, int, Key]]] = [[] for _ in range(shape.num_ranks)]
    for key, variable in v.start_ksj.items():
        start = value_of(variable)
        ranks[shape.rank_of_s[key[1]]].append((start, start + instance.duration(key[0], key[1]), key))
    channels: list[list[tuple[int, int]]] = [[] for _ in range(shape.num_channels)]
    for (k, s, j), variable in v.message_ksj.items():
        channel = shape.activation_channel_s[s] if k == 0 else shape.gradient_channel_s[s - 1]
        channels[channel].append((value_of(variable), shape.operation_id(k, s, j)))
    for s, variable in v.exchange_s.items():
        if shape.sync_link_s[s] >= 0:
            for direction in (0, 1):
                channels[2 * shape.sync_link_s[s] + direction].append((value_of(variable), shape.num_operations + s))
    return PipelineOrder(
        tuple(np.array([shape.operation_id(*key) for _, _, key in sorted(rank)], dtype=np.int64) for rank in ranks),
        tuple(np.array([message for _, message in sorted(channel)], dtype=np.int64) for channel in channels),
    )
