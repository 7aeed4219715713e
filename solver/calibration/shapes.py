"""Published shapes of models that measured rows only name, to fill cells a source leaves empty.

They are rows of the catalogue, with columns as in `docs/howto/fit-a-profile.md`; `pattern` is what a model's name
contains, and `stage_layers_of_pp` are the layers of each pipeline rank that a launch file gives. Given cells remain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from models.catalogue import named_entry

Cells = Mapping[str, str]
_NOT_CELLS = ("pattern", "stage_layers_of_pp", "source")
_OF_EXPERTS = ("n_experts", "topk", "moe_ffn_hidden", "n_shared_experts", "n_dense_layers")
_LATENT = (r"deepseek-v(2|3)", r"kimi-k2")  # 1536, 512, 128, 64, 128: arXiv 2412.19437, 2507.20534


def filled(row: Cells) -> dict[str, str]:
    """The row with empty shape cells filled from the published shapes of its model, the first that has a cell."""
    cells = dict(row)
    is_dense = cells.get("arch", "dense") == "dense"
    model = cells.get("model", "").lower()
    for shape in (one for one in named_entry("shapes", "published") if re.search(one["pattern"], model)):
        known = {name: str(value) for name, value in shape.items() if name not in _NOT_CELLS}
        split = shape.get("stage_layers_of_pp", {}).get(cells.get("pp"))
        if split is not None:
            known["stage_layers"] = split
        wanted = (name for name in known if not cells.get(name) and not (is_dense and name in _OF_EXPERTS))
        cells |= {name: known[name] for name in wanted}
    return cells


def is_latent(row: Cells) -> bool:
    """Whether the model has multi-head latent attention."""
    return any(re.search(pattern, row.get("model", "").lower()) for pattern in _LATENT)
