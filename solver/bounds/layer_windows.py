"""How few and how many layers of the other kind lie beside so many usual ones, in models of dense and MoE layers.

The usual kind is MoE where there are any. A chunk of a pipeline rank is a window: consecutive layers. Counts alone;
what they cost is in `kind_costs.py`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from models.workload import Architecture
from solver.cost.columns import IntArray


@lru_cache(maxsize=256)
def least_usual(architecture: Architecture, num_stages: int) -> IntArray:
    """Fewest usual layers of every stage, of so many.

    Proof. Each stage has a layer. s stages lie before stage s of S, and S - 1 - s behind it, so its layers are among
    s ... L - S + s of the L layers. Where all of these are usual, it has a usual one.

    >>> from models.catalogue import named_entry
    >>> least_usual(Architecture.model_validate(named_entry("models", "deepseek-v3")), 8)
    array([0, 0, 0, 1, 1, 1, 1, 1])
    """
    return (most_other(architecture, num_stages) == 0).astype(np.int64)


@lru_cache(maxsize=256)
def most_other(architecture: Architecture, num_stages: int) -> IntArray:
    """Most layers of the other kind of every stage, of so many: all among the layers that may be its own.

    >>> from models.catalogue import named_entry
    >>> most_other(Architecture.model_validate(named_entry("models", "deepseek-v3")), 8)
    array([3, 2, 1, 0, 0, 0, 0, 0])
    """
    before = usual_before(architecture)
    spread = architecture.num_layers - num_stages + 1
    among: IntArray = before[spread : spread + num_stages] - before[:num_stages]
    return spread - among


@lru_cache(maxsize=256)
def usual_before(architecture: Architecture) -> IntArray:
    """Usual layers before layer 0, 1, 2 ... and in all."""
    usual = [architecture.is_moe_layer(layer) for layer in range(architecture.num_layers)]
    return np.cumsum([0, *(usual if any(usual) else [True] * len(usual))])


@lru_cache(maxsize=256)
def fewest_others(architecture: Architecture, num_windows: int) -> IntArray:
    """Fewest layers of the other kind in so many windows that hold 0, 1, 2 ... usual layers together.

    Any of the windows may be empty, and they may overlap: fewer than that no windows of the model have.
    """
    one = _fewest_in_one(architecture)
    fewest = one
    for _ in range(num_windows - 1):
        split = [(fewest[: count + 1] + one[count::-1]).min() for count in range(len(one))]
        fewest = np.minimum(fewest, np.array(split))
        if not fewest.any():
            break
    return fewest


@lru_cache(maxsize=256)
def most_others(architecture: Architecture, num_windows: int, worth: int) -> IntArray:
    """Most layers of the other kind in so many windows that hold 0, 1, 2 ... usual layers together.

    Windows of `n` layers are of equal size but for one layer, where ends are worth so many layers: none is larger than
    (n + worth) / windows rounded up, nor smaller than that rounded down less what the ends are worth.
    """
    before, num_layers = usual_before(architecture), architecture.num_layers
    fewest_in_one = np.array(
        [(before[size:] - before[: num_layers + 1 - size]).min() for size in range(num_layers + 1)]
    )
    most = np.zeros(int(before[-1]) + 1, dtype=np.int64)
    for total in range(num_layers + 1):
        smallest = max((total + worth) // num_windows - worth, 0)
        largest = min(-(-(total + worth) // num_windows), total)
        fewest = np.full(total + 1, np.inf)
        fewest[0] = 0
        for _ in range(num_windows):
            then = np.full(total + 1, np.inf)
            for size in range(smallest, largest + 1):
                then[size:] = np.minimum(then[size:], fewest[: total + 1 - size] + fewest_in_one[size])
            fewest = then
        if fewest[total] <= total:
            counts = np.arange(int(fewest[total]), min(total, len(most) - 1) + 1)
            most[counts] = np.maximum(most[counts], total - counts)
    return most


def _fewest_in_one(architecture: Architecture) -> IntArray:
    """Between two usual layers lie all others between them; the ends of a window are usual layers at best."""
    usual = [layer for layer in range(architecture.num_layers) if architecture.is_moe_layer(layer)]
    if not usual:
        return np.zeros(architecture.num_layers + 1, dtype=np.int64)
    places = np.array(usual)
    spans = [places[count:] - places[: len(places) - count] - count for count in range(len(places))]
    return np.array([0, *(int(one.min()) for one in spans)], dtype=np.int64)
