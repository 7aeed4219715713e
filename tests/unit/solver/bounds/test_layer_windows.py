"""Layers of two kinds: those that stages may have, against every way to cut a model, and the quicker way back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from models.workload import Architecture
from solver.bounds.layer_windows import rank_windows, stage_windows
from tests.build_job import ARCHITECTURE

EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 4096}


def architecture(num_layers: int, first: int, stride: int) -> Architecture:
    """A model whose layers have experts from the first on, each so many layers."""
    moe = {**EXPERTS, "first_moe_layer": first, "moe_layer_stride": stride}
    return Architecture.model_validate({**ARCHITECTURE, "num_layers": num_layers, "moe": moe})


def stages_by_trying_all(model: Architecture, num_stages: int) -> dict[tuple[int, int], set[int]]:
    """Numbers of usual layers of every stage, by how many layers it has, over all ways to cut the model."""
    found: dict[tuple[int, int], set[int]] = {}
    for cuts in itertools.combinations(range(1, model.num_layers), num_stages - 1):
        for stage, (begin, end) in enumerate(itertools.pairwise((0, *cuts, model.num_layers))):
            usual = sum(model.is_moe_layer(layer) for layer in range(begin, end))
            found.setdefault((stage, end - begin), set()).add(usual)
    return found


@pytest.mark.parametrize(("first", "stride"), [(0, 1), (3, 1), (0, 2), (1, 2), (1, 3), (4, 3)])
@pytest.mark.parametrize("num_stages", [1, 2, 4, 7])
def test_stages_have_no_fewer_and_no_more_usual_layers(first: int, stride: int, num_stages: int) -> None:
    model = architecture(9, first, stride)
    windows = stage_windows(model, num_stages)
    for (stage, size), numbers in stages_by_trying_all(model, num_stages).items():
        assert windows[stage].fewest[size] == min(numbers)
        assert windows[stage].most[size] == max(numbers)


@pytest.mark.parametrize(("first", "stride"), [(0, 1), (3, 1), (0, 2), (1, 2), (1, 3)])
@pytest.mark.parametrize(("num_ranks", "num_chunks", "worth"), [(1, 3, 0), (2, 2, 0), (2, 2, 1), (3, 2, 0), (2, 3, 2)])
def test_ranks_have_no_fewer_and_no_more_usual_layers(
    first: int, stride: int, num_ranks: int, num_chunks: int, worth: int
) -> None:
    model, num_stages = architecture(10, first, stride), num_ranks * num_chunks
    windows = [
        rank_windows(model, num_stages, tuple(range(rank, num_stages, num_ranks)), worth) for rank in range(num_ranks)
    ]
    for cuts in itertools.combinations(range(1, model.num_layers), num_stages - 1):
        ends = (0, *cuts, model.num_layers)
        for rank, own in enumerate(windows):
            stages = [range(ends[stage], ends[stage + 1]) for stage in range(rank, num_stages, num_ranks)]
            sizes = [len(one) for one in stages]
            even = (sum(sizes) + worth) / num_chunks
            if min(sizes) < np.floor(even) - worth or max(sizes) > np.ceil(even):
                continue
            usual = sum(model.is_moe_layer(layer) for one in stages for layer in one)
            assert own.together.fewest[sum(sizes)] <= usual <= own.together.most[sum(sizes)]


def test_ranks_that_have_the_same_layers_in_another_order_are_of_different_kinds() -> None:
    """One layer a stage, dense and MoE in turn: folded, rank 1 has MoE then dense, rank 2 dense then MoE."""
    model = architecture(8, 1, 2)
    moe_first, dense_first = (rank_windows(model, 8, (rank, 7 - rank), 0) for rank in (1, 2))
    assert moe_first.together.key == dense_first.together.key
    assert moe_first.any_stage.key == dense_first.any_stage.key
    assert (moe_first.first.fewest[1], dense_first.first.most[1]) == (1, 0)
    assert moe_first.key != dense_first.key
