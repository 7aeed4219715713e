"""How many usual layers the stages of a pipeline rank may have, in models of dense and MoE layers.

The usual kind is MoE where there are any. A stage is a window: consecutive layers. Counts alone; what they cost is in
`rank_costs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import numpy as np

from models.workload import Architecture
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.compiled import compiled

Ends = tuple[bool, bool]  # whether a rank has the embedding and the logits
EVERY_END: tuple[Ends, ...] = ((False, False), (True, False), (False, True), (True, True))


@dataclass(frozen=True, eq=False)
class Windows:
    """Fewest and most usual layers among so many layers that are one stage, or the stages of one rank.

    `layers` are 0, 1, 2 ... up to all layers; of several ranks they stand one after another.
    """

    layers: IntArray
    fewest: IntArray
    most: IntArray

    @classmethod
    def joined(cls, windows: Sequence[Windows]) -> Windows:
        """The windows of several stages or ranks, one after another."""
        columns = ([getattr(one, column.name) for one in windows] for column in fields(cls))
        return cls(*map(np.concatenate, columns))

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

    @property
    def key(self) -> tuple[tuple[bytes, bytes], ...]:
        """Equal for ranks whose stages may have the same layers."""
        return self.first.key, self.last.key, self.any_stage.key, self.together.key

    @classmethod
    def joined(cls, ranks: Sequence[RankWindows]) -> RankWindows:
        """The windows of several ranks, one after another."""
        return cls(*(Windows.joined([getattr(one, name.name) for one in ranks]) for name in fields(cls)))


@dataclass(frozen=True, eq=False)
class RankKinds:
    """Kinds of ranks of a pipeline: they differ in ends, or in the layers that their stages may have.

    `windows` has those of all kinds, one after another, and `kind_r` the number of every rank's kind.
    """

    ends: tuple[Ends, ...]
    windows: RankWindows
    kind_r: IntArray

    @property
    def layers(self) -> IntArray:
        """0, 1, 2 ... up to all layers, once for every kind."""
        return self.windows.together.layers

    @cached_property
    def begin(self) -> IntArray:
        """Where the entries of the same kind begin."""
        return np.flatnonzero(self.layers == 0).repeat(self.num_entries)

    @property
    def num_entries(self) -> int:
        """Numbers of layers of one kind."""
        return len(self.layers) // len(self.ends)

    def of_layers(self, table: FloatArray, layers: IntArray) -> FloatArray:
        """The entries of a table at other numbers of layers, each of the same kind."""
        found: FloatArray = table[self.begin + layers]
        return found

    def of_each(self, values: Sequence[float] | FloatArray | BoolArray) -> FloatArray:
        """A value of each kind, for all its numbers of layers."""
        return np.asarray(values, dtype=np.float64).repeat(self.num_entries)

    def any_of_kind(self, allowed: BoolArray) -> BoolArray:
        """Whether that is so of any number of layers of the same kind."""
        return allowed.reshape(len(self.ends), -1).any(axis=1).repeat(self.num_entries)


@lru_cache(maxsize=1024)
def rank_kinds(architecture: Architecture, rank_of_stages: tuple[int, ...], worths: tuple[int, ...]) -> RankKinds:
    """Kinds of ranks of a pipeline with its stages on these; `worths`: layers that each of `EVERY_END` is worth."""
    kinds, kind_r, last_stage = dict[object, tuple[Ends, RankWindows]](), list[int](), len(rank_of_stages) - 1
    for rank in range(max(rank_of_stages) + 1):
        at = rank == rank_of_stages[0], rank == rank_of_stages[last_stage]
        stages = tuple(stage for stage, holder in enumerate(rank_of_stages) if holder == rank)
        windows = rank_windows(architecture, len(rank_of_stages), stages, worths[EVERY_END.index(at)])
        kinds.setdefault((at, windows.key), (at, windows))
        kind_r.append(list(kinds).index((at, windows.key)))
    ends, every_windows = zip(*kinds.values(), strict=True)
    return RankKinds(ends, RankWindows.joined(every_windows), np.array(kind_r))


@lru_cache(maxsize=1024)
def rank_windows(architecture: Architecture, num_stages: int, stages: tuple[int, ...], worth: int) -> RankWindows:
    """Windows of the rank that has these of all stages, and whose ends are worth so many layers.

    Stages of a rank with n layers are of equal size but for one layer: none is larger than (n + worth) / stages rounded
    up, nor smaller than that rounded down less what the ends are worth, and each has one layer at least.
    """
    own = [stage_windows(architecture, num_stages)[stage] for stage in stages]
    if len(own) == 1:
        return RankWindows(own[0], own[0], own[0], own[0])
    total = np.arange(architecture.num_layers + 1)
    fewest_of_any = np.minimum.reduce([one.fewest for one in own])
    any_stage = Windows(total, fewest_of_any, np.maximum.reduce([one.most for one in own]))
    if _usual_before(architecture)[-1] == architecture.num_layers:
        return RankWindows(own[0], own[-1], any_stage, Windows(total, total, total))
    fewest = _least_sums(np.stack([one.fewest for one in own]), worth)
    most_other = _least_sums(np.stack([total - one.most for one in own]), worth)
    return RankWindows(own[0], own[-1], any_stage, Windows(total, fewest, total - most_other))


@compiled
def _least_sums(values: IntArray, worth: int) -> IntArray:
    """Least sum of one value of each row at sizes that add up to 0, 1, 2 ..., by the rule for stages of a rank.

    0 where no sizes do.
    """
    num_stages, num_sizes = values.shape
    found = np.zeros(num_sizes, dtype=np.int64)
    for layers in range(num_stages, num_sizes):
        smallest = max((layers + worth) // num_stages - worth, 1)
        largest = min(-(-(layers + worth) // num_stages), layers)
        beyond = layers + 1
        least = np.full(layers + 1, beyond)
        least[0] = 0
        for stage in range(num_stages):
            then = np.full(layers + 1, beyond)
            for size in range(smallest, largest + 1):
                for have in range(layers + 1 - size):
                    then[have + size] = min(then[have + size], least[have] + values[stage, size])
            least = then
        found[layers] = least[layers] if least[layers] < beyond else 0
    return found


@lru_cache(maxsize=256)
def stage_windows(architecture: Architecture, num_stages: int) -> tuple[Windows, ...]:
    """Windows of each of so many stages with 0, 1, 2 ... layers; anywhere in the model where it cannot have so many.

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
    layers = np.arange(num_layers + 1)
    return tuple(Windows(layers, *both) for both in zip(fewest, most, strict=True))


@lru_cache(maxsize=256)
def _usual_before(architecture: Architecture) -> IntArray:
    """Usual layers before layer 0, 1, 2 ... and in all."""
    usual = [architecture.is_moe_layer(layer) for layer in range(architecture.num_layers)]
    return np.cumsum([0, *(usual if any(usual) else [True] * len(usual))])
