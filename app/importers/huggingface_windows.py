"""Layers of a Hugging Face configuration that attend to a part of the sequence, which no architecture document states.

They are counted as if they attended to all of it; the note says by what factor the scores are overestimated.
"""

from __future__ import annotations

from app.importers.huggingface_families import Config

_PERIODS = {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6}
"""Every how many layers one is not windowed, unless said; source: the configuration classes in transformers."""
_KINDS = ("full_attention", "sliding_attention", "chunked_attention")
"""Layers whose work the cost model has a formula for; source: ALLOWED_LAYER_TYPES in transformers."""
_SHOWN_LENGTHS = (8_192, 131_072)
"""Sequence lengths that the note gives the factor for: one of pre-training, one of long-context training."""


def note_windows(config: Config, num_layers: int) -> None:
    """Adds the note where layers attend to a part of the sequence; a layer of another kind is refused."""
    kinds = config.words("layer_types")
    for kind in kinds:
        if kind not in _KINDS:
            raise config.refused("layer_types", f"layers of {kind[:40]!r} cannot be described", ", ".join(_KINDS))
    chunk, sliding = (
        config.count(one, least=0) if config.has(one) else 0 for one in ("attention_chunk_size", "sliding_window")
    )
    window = chunk or (sliding if config.flag("use_sliding_window", True) else 0)
    layers = sum(kind != "full_attention" for kind in kinds) if kinds else _windowed_layers(config, num_layers)
    if not window or not layers:
        return
    at = ", ".join(
        f"{overestimate(length, window, layers / num_layers, is_chunked=bool(chunk)):.1f} at {length:,} tokens"
        for length in _SHOWN_LENGTHS
    )
    config.notes.append(
        f"{layers} of {num_layers} layers attend to {window:,} tokens and are counted over the whole sequence: "
        f"the work of attention scores is overestimated by a factor of {at}"
    )


def overestimate(length: int, window: int, share: float, *, is_chunked: bool = False) -> float:
    """Scores of causal attention in all layers over those where a share of the layers has a window.

    A token of a window sees the last `window` tokens, one of a chunk those before it in its chunk.

    >>> overestimate(8192, 4096, 1.0)
    1.3333333333333333
    >>> overestimate(8192, 4096, 1.0, is_chunked=True)
    2.0
    """
    part = min(1.0, window / length)
    return 1.0 / (1.0 - share + share * (part if is_chunked else part * (2.0 - part)))


def _windowed_layers(config: Config, num_layers: int) -> int:
    """Where layer_types is absent: all layers but the last of every period, in Qwen those from max_window_layers on."""
    if config.family.model_type == "llama4_text":
        rotary = config.counts("no_rope_layers") or tuple(int((i + 1) % 4 != 0) for i in range(num_layers))
        return sum(rotary)
    if config.family.model_type.startswith("qwen") and config.has("max_window_layers"):
        return max(0, num_layers - config.count("max_window_layers", least=0))
    period = _PERIODS.get(config.family.model_type)
    for name in ("sliding_window_pattern", "_sliding_window_pattern"):
        period = config.count(name) if config.has(name) else period
    return num_layers - num_layers // period if period else num_layers
