"""How many layers of the other kind lie beside so many usual ones, in models that have dense and MoE layers.

The usual kind is MoE where there are any. A chunk of a pipeline rank is a window: consecutive layers. Counts alone;
what they cost is in `kind_costs.py`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from models.workload import Architecture
from solver.cost.columns import IntArray


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


def _fewest_in_one(architecture: Architecture) -> IntArray:
    """Between two usual layers lie all others between them; the ends of a window are usual layers at best."""
    usual = [layer for layer in range(architecture.num_layers) if architecture.is_moe_layer(layer)]
    if not usual:
        return np.zeros(architecture.num_layers + 1, dtype=np.int64)
    places = np.array(usual)
    spans = [places[count:] - places[: len(places) - count] - count for count in range(len(places))]
    return np.array([0, *(int(one.min()) for one in spans)], dtype=np.int64)
