"""Published shapes of models that measured rows only name, to fill cells a source leaves empty.

A cell that is given remains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Cells = Mapping[str, str]

# layers, hidden, ffn, gated, query heads, key/value heads, vocabulary
_DENSE: tuple[tuple[str, tuple[int, int, int, int, int, int, int]], ...] = (
    (r"nemotron-?4-340b", (96, 18432, 73728, 0, 96, 8, 256000)),  # arXiv 2406.11704
    (r"nemotron-?4-15b", (32, 6144, 24576, 0, 48, 8, 256000)),  # arXiv 2402.16819
    (r"nemotron-8b", (32, 4096, 16384, 0, 32, 32, 256000)),  # NeMo model card nemotron-3-8b
    (r"nemotron-22b", (40, 6144, 24576, 0, 48, 48, 256000)),  # NeMo 24.07 recipes
    (r"llama-?2-7b", (32, 4096, 11008, 1, 32, 32, 32000)),  # arXiv 2307.09288
    (r"llama-?2-13b", (40, 5120, 13824, 1, 40, 40, 32000)),  # arXiv 2307.09288
    (r"llama-?2-70b", (80, 8192, 28672, 1, 64, 8, 32000)),  # arXiv 2307.09288
    (r"llama-?3(\.\d)?-8b", (32, 4096, 14336, 1, 32, 8, 128256)),  # arXiv 2407.21783
    (r"llama-?3(\.\d)?-70b", (80, 8192, 28672, 1, 64, 8, 128256)),  # arXiv 2407.21783
    (r"llama-?3(\.\d)?-405b", (126, 16384, 53248, 1, 128, 8, 128256)),  # arXiv 2407.21783
    (r"gpt-?3-5b", (24, 4096, 16384, 0, 32, 32, 51200)),  # NeMo 24.07 recipes
    (r"gpt-?3-20b", (44, 6144, 24576, 0, 48, 48, 51200)),  # NeMo 24.07 recipes
    (r"gpt-?3-175b", (96, 12288, 49152, 0, 96, 96, 51200)),  # arXiv 2005.14165
    (r"gpt-neo-2\.7b", (32, 2560, 10240, 0, 20, 20, 50257)),  # EleutherAI model card
    (r"opt-350m", (24, 1024, 4096, 0, 16, 16, 50272)),  # arXiv 2205.01068
    (r"gpt-oss-120b", (36, 2880, 2880, 1, 64, 8, 201088)),  # arXiv 2508.10925
    (r"gpt-oss-20b", (24, 2880, 2880, 1, 64, 8, 201088)),  # arXiv 2508.10925
    (r"kimi-k2", (61, 7168, 18432, 1, 64, 64, 163840)),  # arXiv 2507.20534
    (r"deepseek-v3", (61, 7168, 18432, 1, 128, 128, 129280)),  # arXiv 2412.19437
    (r"mixtral-8x7b", (32, 4096, 14336, 1, 32, 8, 32000)),  # arXiv 2401.04088
    (r"mixtral-8x22b", (56, 6144, 16384, 1, 48, 8, 32768)),  # Mistral model card
)
# experts, top-k, expert width, shared experts, leading dense layers
_EXPERTS: tuple[tuple[str, tuple[int, int, int, int, int]], ...] = (
    (r"kimi-k2", (384, 8, 2048, 1, 1)),
    (r"deepseek-v3", (256, 8, 2048, 1, 3)),
    (r"gpt-oss-120b", (128, 4, 2880, 0, 0)),
    (r"gpt-oss-20b", (32, 4, 2880, 0, 0)),
    (r"mixtral-8x7b", (8, 2, 14336, 0, 0)),
    (r"mixtral-8x22b", (8, 2, 16384, 0, 0)),
    (r"grok-?1", (8, 2, 32768, 0, 0)),
)
# layers of each pipeline rank that a launch file gives: sailor/Planner/simulations of github.com/eth-easl/sailor
_SPLITS = {
    (r"opt-350m", "2"): "11 13",
    (r"opt-350m", "4"): "4 7 7 6",
    (r"gpt-neo-2\.7b", "2"): "15 17",
    (r"gpt-neo-2\.7b", "4"): "6 9 9 8",
    (r"gpt-neo-2\.7b", "8"): "2 5 5 5 4 4 4 3",
}
# As the model cards state them.
_HEAD_DIM = ((r"gpt-oss", (64,)), (r"nemotron-?4-340b", (192,)))
_LATENT = (r"deepseek-v(2|3)", r"kimi-k2")  # 1536, 512, 128, 64, 128: arXiv 2412.19437, 2507.20534
# As the papers that measured them state it.
_SEQUENCE = ((r"opt-350m|gpt-neo-2\.7b", (2048,)), (r"^gpt-\d+(\.\d+)?b$|-h\d+-l\d+", (1024,)))


def filled(row: Cells) -> dict[str, str]:
    """The row with empty shape cells filled from the published shape of its model."""
    cells = dict(row)
    model = cells.get("model", "").lower()
    _fill(cells, ("layers", "hidden", "ffn_hidden", "gated_mlp", "heads", "kv_heads", "vocab"), _DENSE, model)
    if cells.get("arch", "dense") != "dense":
        names = ("n_experts", "topk", "moe_ffn_hidden", "n_shared_experts", "n_dense_layers")
        _fill(cells, names, _EXPERTS, model)
    for (pattern, pp), split in _SPLITS.items():
        if re.search(pattern, model) and cells.get("pp") == pp and not cells.get("stage_layers"):
            cells["stage_layers"] = split
    _fill(cells, ("head_dim",), _HEAD_DIM, model)
    _fill(cells, ("seq_len",), _SEQUENCE, model)
    return cells


def is_latent(row: Cells) -> bool:
    """Whether the model has multi-head latent attention."""
    return any(re.search(pattern, row.get("model", "").lower()) for pattern in _LATENT)


def _fill(
    cells: dict[str, str], names: tuple[str, ...], table: Iterable[tuple[str, tuple[int, ...]]], model: str
) -> None:
    """Fill empty cells with what a table has under the first pattern that fits the model, if one does."""
    values = next((values for pattern, values in table if re.search(pattern, model)), None)
    if values is not None:
        cells |= {name: str(value) for name, value in zip(names, values, strict=True) if not cells.get(name)}
