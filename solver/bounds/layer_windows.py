"""How many usual layers the stages of a pipeline rank may have, in models of dense and MoE layers.

The usual kind is MoE where there are any. A stage is a window: consecutive layers. Counts alone; what they cost is in
`rank_costs.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from models.workload import Architecture
from solver.cost.columns import IntArray


@dataclass(frozen=True, eq=False)
class Windows:
    """Fewest and most usual layers among 0, 1, 2 ... layers that are one stage, or the stages of one rank."""

    fewest: IntArray
    most: IntArray

    @property
    def key(self) -> tuple[bytes, bytes]:
        """Equal for windows with the same numbers."""
        return self.fewest.tobytes(), self.most.tobytes()


@dataclass(frozen=True, eq=False)
class RankWindows:
    """Windows of a rank: its first and its last stage, any of them, and all together."""

    first: Windows
    last: Windows
    any_stage: Windows
    together: Windows


@lru_cache(maxsize=1024)
def rank_windows(architecture: Architecture, num_stages: int, stages: tuple[int, ...], worth: int) -> RankWindows:
    """Of the rank with these of all stages, whose ends are worth so many layers.

    Stages of a rank with n layers are of equal size but for one layer: none is larger than (n + worth) / stages rounded
    up, nor smaller than that rounded down less what the ends are worth, and each has one layer at least.
    """
    own = [stage_windows(architecture, num_stages)[stage] for stage in stages]
    any_stage = Windows(np.minimum.reduce([one.fewest for one in own]), np.maximum.reduce([one.most for one in own]))
    total = np.arange(architecture.num_layers + 1)
    fewest, most = np.zeros_like(total), total.copy()
    if len(own) == 1 or _is_uniform(architecture):
        fewest, most = (own[0].fewest, own[0].most) if len(own) == 1 else (total, total)
    else:
        for layers in range(len(own), architecture.num_layers + 1):
            smallest = max((layers + worth) // len(own) - worth, 1)
            largest = min(-(-(layers + worth) // len(own)), layers)
            least = _least_sum([one.fewest for one in own], layers, (smallest, largest))
            most_other = _least_sum([total - one.most for one in own], layers, (smallest, largest))
            if least is not None and most_other is not None:
                fewest[layers], most[layers] = least, layers - most_other
    return RankWindows(own[0], own[-1], any_stage, Windows(fewest, most))


def _least_sum(values: list[IntArray], layers: int, sizes: tuple[int, int]) -> int | None:
    """Least sum of one value each at sizes in this range that add up to so many layers; None where none do."""
    beyond = layers + 1
    least = np.full(layers + 1, beyond)
    least[0] = 0
    for value in values:
        then = np.full(layers + 1, beyond)
        for size in range(sizes[0], sizes[1] + 1):
            then[size:] = np.minimum(then[size:], least[: layers + 1 - size] + value[size])
        least = then
    return int(least[layers]) if least[layers] < beyond else None


@lru_cache(maxsize=256)
def stage_windows(architecture: Architecture, num_stages: int) -> tuple[Windows, ...]:
    """Of every stage of so many with 0, 1, 2 ... layers; anywhere in the model where it cannot have so many.

    Stage s of S begins at layer s or later, and leaves S - 1 - s layers or more to those behind it, so with k of L
    layers it begins at one of s ... L - S + 1 + s - k. The first begins at 0, and the last ends with the last layer.

    >>> from models.catalogue import named_entry
    >>> deepseek = Architecture.model_validate(named_entry("models", "deepseek-v3"))
    >>> [int(one.fewest[4]) for one in stage_windows(deepseek, 8)]
    [1, 2, 3, 4, 4, 4, 4, 4]
    """
    num_layers, before = architecture.num_layers, _usual_before(architecture)
    fewest, most = np.zeros((2, num_stages, num_layers + 1), dtype=np.int64)
    for size in range(num_layers + 1):
        among, starts = before[size:] - before[: num_layers + 1 - size], num_layers - num_stages + 2 - size
        ways = np.lib.stride_tricks.sliding_window_view(among, starts) if num_stages > 1 and starts > 0 else among[None]
        fewest[:, size], most[:, size] = ways.min(axis=1), ways.max(axis=1)
        if starts > 0:
            fewest[0, size] = most[0, size] = among[0]
            fewest[-1, size] = most[-1, size] = among[-1]
    return tuple(Windows(*both) for both in zip(fewest, most, strict=True))


@lru_cache(maxsize=256)
def _usual_before(architecture: Architecture) -> IntArray:
    """Usual layers before layer 0, 1, 2 ... and in all."""
    usual = [architecture.is_moe_layer(layer) for layer in range(architecture.num_layers)]
    return np.cumsum([0, *(usual if any(usual) else [True] * len(usual))])


def _is_uniform(architecture: Architecture) -> bool:
    return int(_usual_before(architecture)[-1]) == architecture.num_layers
