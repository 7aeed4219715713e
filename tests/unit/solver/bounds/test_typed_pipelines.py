"""Pipelines bounded many at once have the bounds of each alone, and what is enough ends no bound below it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from solver.arrays import FloatArray
from solver.bounds.typed_pipelines import Partition, PartitionPipelines
from tests.unit.solver.evaluation.test_reordering import FLEETS, NUM_RANKS, mixed


def partitions(pipelines: PartitionPipelines) -> list[Partition]:
    """Every order of the types with several shares of the layers, and some that lack layers."""
    num_layers, vpp = pipelines.context.job.num_layers, pipelines.configurations[0].degrees.vpp
    heads = itertools.product(range(vpp, num_layers), repeat=NUM_RANKS - 1)
    whole = [(*head, num_layers - sum(head)) for head in heads if num_layers - sum(head) >= vpp]
    layers = [*whole[:: max(len(whole) // 12, 1)], (vpp,) * NUM_RANKS]
    types = itertools.product(range(len(pipelines.gpus)), repeat=NUM_RANKS)
    return list(itertools.product(types, layers))


def bounded(gpus: tuple[str, str], family: str) -> tuple[PartitionPipelines, list[Partition], FloatArray]:
    """Pipelines, partitions of them, and the bounds of these worked out together."""
    context, configuration = mixed(gpus, family)
    pipelines = PartitionPipelines.of(context, [configuration])
    some = partitions(pipelines)
    return pipelines, some, pipelines.bounds_s(some, np.full(len(some), np.inf))


@pytest.mark.parametrize(("gpus", "family"), FLEETS)
def test_many_at_once_have_the_bounds_of_each(gpus: tuple[str, str], family: str) -> None:
    pipelines, some, together = bounded(gpus, family)
    alone = [pipelines.bound_s(one, float("inf")) for one in some]
    assert together.tolist() == alone
    assert np.isfinite(together).any()
    assert len(set(alone)) > len(some) // 4


@pytest.mark.parametrize(("gpus", "family"), FLEETS)
def test_a_bound_that_is_enough_is_no_more_than_the_whole_one(gpus: tuple[str, str], family: str) -> None:
    pipelines, some, whole = bounded(gpus, family)
    enough_s = float(np.median(whole[np.isfinite(whole)]))
    found = pipelines.bounds_s(some, np.full(len(some), enough_s))
    assert (found <= whole).all()
    assert ((found >= enough_s) == (whole >= enough_s)).all()
    assert found[found < enough_s].tolist() == whole[found < enough_s].tolist()
