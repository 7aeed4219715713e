"""Layers of two kinds: those beside so many usual ones, against every choice of windows, and the quicker way back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from models.workload import Architecture
from solver.bounds.kind_costs import AlikeCosts, Kind
from solver.bounds.layer_windows import fewest_others, most_others
from solver.configurations.enumerate import enumerate_space
from tests.build_job import ARCHITECTURE, FIXED, context_of, job

EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 4096}


def architecture(num_layers: int, first: int, stride: int) -> Architecture:
    """A model whose layers have experts from the first on, each so many layers."""
    moe = {**EXPERTS, "first_moe_layer": first, "moe_layer_stride": stride}
    return Architecture.model_validate({**ARCHITECTURE, "num_layers": num_layers, "moe": moe})


def by_trying_all(model: Architecture, num_windows: int) -> dict[int, int]:
    """Fewest other layers by usual ones, over all windows that do not overlap."""
    found: dict[int, int] = {}
    for ends in itertools.combinations_with_replacement(range(model.num_layers + 1), 2 * num_windows):
        inside = [layer for begin, end in zip(ends[::2], ends[1::2], strict=True) for layer in range(begin, end)]
        usual = sum(model.is_moe_layer(layer) for layer in inside)
        found[usual] = min(found.get(usual, model.num_layers), len(inside) - usual)
    return found


@pytest.mark.parametrize(("first", "stride"), [(0, 1), (3, 1), (0, 2), (1, 2), (1, 3), (4, 3)])
@pytest.mark.parametrize("num_windows", [1, 2, 3])
def test_no_windows_have_fewer_other_layers(first: int, stride: int, num_windows: int) -> None:
    model = architecture(9, first, stride)
    bound = fewest_others(model, num_windows)
    found = by_trying_all(model, num_windows)
    assert all(bound[usual] <= others for usual, others in found.items())
    assert sum(bound[usual] for usual in found) >= 0.7 * sum(found.values()) - num_windows


def most_by_trying_all(model: Architecture, num_windows: int, worth: int) -> dict[int, int]:
    """Most other layers by usual ones, over all windows that do not overlap and are as large as the ends allow."""
    found: dict[int, int] = {}
    for ends in itertools.combinations_with_replacement(range(model.num_layers + 1), 2 * num_windows):
        sizes = [end - begin for begin, end in zip(ends[::2], ends[1::2], strict=True)]
        even = (sum(sizes) + worth) / num_windows
        if min(sizes) < np.floor(even) - worth or max(sizes) > np.ceil(even):
            continue
        inside = [layer for begin, end in zip(ends[::2], ends[1::2], strict=True) for layer in range(begin, end)]
        usual = sum(model.is_moe_layer(layer) for layer in inside)
        found[usual] = max(found.get(usual, 0), len(inside) - usual)
    return found


@pytest.mark.parametrize(("first", "stride"), [(0, 1), (3, 1), (0, 2), (1, 2), (1, 3), (4, 3)])
@pytest.mark.parametrize(("num_windows", "worth"), [(1, 0), (2, 0), (3, 0), (2, 1), (3, 2)])
def test_no_windows_have_more_other_layers(first: int, stride: int, num_windows: int, worth: int) -> None:
    model = architecture(9, first, stride)
    bound, found = most_others(model, num_windows, worth), most_by_trying_all(model, num_windows, worth)
    assert all(bound[usual] >= others for usual, others in found.items())
    assert sum(bound[usual] for usual in found) <= 1.3 * sum(found.values()) + num_windows * len(found)


def test_a_single_window_is_exact() -> None:
    model = architecture(12, 1, 2)
    assert fewest_others(model, 1).tolist() == [by_trying_all(model, 1)[usual] for usual in range(7)]


@pytest.mark.parametrize(("dense_s", "moe_s"), [(1e-3, 4e-3), (4e-3, 1e-3)])
def test_gradients_go_back_as_quickly_as_through_the_kind_that_takes_least(dense_s: float, moe_s: float) -> None:
    same = {"gpu": "H100-SXM-80G", "micro_batch_sequences": 1, "tp": 2, "forward_s": 2e-3, "weight_grad_s": 2e-3}
    measured = [
        {**same, "layer_kind": kind, "input_grad_s": back_s, "activation_bytes": 1e8}
        for kind, back_s in (("dense", dense_s), ("moe", moe_s))
    ]
    model = architecture(16, 4, 1).model_dump(exclude_none=True)
    request = job(workload={"architecture": model, "layer_profiles": measured}, allowed={**FIXED, "ep": [1]})
    context = context_of(request)
    (gpu_class,) = context.gpu_classes.values()
    kind = Kind((AlikeCosts.of(context, gpu_class, [enumerate_space(request).columns.take(np.array([0]))]),), held=4)
    assert kind.back == pytest.approx(min(dense_s, moe_s) / 2e-3)
