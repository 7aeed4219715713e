"""Candidate configurations as equal-length integer arrays: the one input form of every formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np

from models.plan import Configuration, Sharding
from models.workload import Recompute
from solver.arrays import BoolArray as BoolArray
from solver.arrays import FloatArray as FloatArray
from solver.arrays import IntArray as IntArray

SHARDING_CODES: tuple[Sharding, ...] = get_args(Sharding)
DDP, ZERO1, FSDP, HSDP = range(4)
RECOMPUTE_CODES: tuple[Recompute, ...] = get_args(Recompute)
RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL = range(3)


@dataclass(frozen=True)
class Columns:
    """One entry per configuration. `shard_group` counts the replicas that share one copy of the sharded state."""

    tp: IntArray
    cp: IntArray
    ep: IntArray
    pp: IntArray
    dp: IntArray
    vpp: IntArray
    micro_batch: IntArray
    num_microbatches: IntArray
    sharding: IntArray
    shard_group: IntArray
    recompute: IntArray

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def num_gpus(self) -> IntArray:
        """GPUs that each configuration uses."""
        return self.tp * self.cp * self.pp * self.dp

    def take(self, rows: IntArray | BoolArray) -> Columns:
        """The chosen rows, by index or by mask."""
        return Columns(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def joined(parts: Sequence[Columns]) -> Columns:
    """All rows of some columns, one after another."""
    return Columns(**{f.name: np.concatenate([getattr(one, f.name) for one in parts]) for f in fields(Columns)})


def columns_from(rows: Sequence[dict[str, int]]) -> Columns:
    """Columns of rows that name every field.

    >>> row = dict.fromkeys([f.name for f in fields(Columns)], 1)
    >>> len(columns_from([row, row]))
    2
    """
    return Columns(**{f.name: np.array([row[f.name] for row in rows], dtype=np.int64) for f in fields(Columns)})


def columns_of(configuration: Configuration) -> Columns:
    """One configuration as columns of length 1."""
    return columns_of_all([configuration])


def columns_of_all(configurations: Sequence[Configuration]) -> Columns:
    """Configurations as columns."""
    return columns_from([_row(one) for one in configurations])


def _row(configuration: Configuration) -> dict[str, int]:
    degrees = configuration.degrees
    return {
        "tp": degrees.tp,
        "cp": degrees.cp,
        "ep": degrees.ep,
        "pp": degrees.pp,
        "dp": degrees.dp,
        "vpp": degrees.vpp,
        "micro_batch": configuration.micro_batch_sequences,
        "num_microbatches": configuration.num_microbatches,
        "sharding": SHARDING_CODES.index(configuration.sharding),
        "shard_group": configuration.shard_group_replicas,
        "recompute": RECOMPUTE_CODES.index(configuration.recompute),
    }
