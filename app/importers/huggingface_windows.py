"""Layers of a Hugging Face configuration that attend to a part of the sequence.

Cost formulas count them as if they attended to all of it; the note says by what factor the scores are overestimated.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.importers.huggingface_config import Config

_PERIODS = {"gemma2": 2, "gpt_oss": 2, "cohere2": 4, "olmo3": 4, "gemma3_text": 6}
"""Every how many layers one is not windowed, unless said; source: the configuration classes in transformers."""
_KINDS = ("full_attention", "sliding_attention", "chunked_attention")
"""Layers whose work the cost model has a formula for; source: ALLOWED_LAYER_TYPES in transformers."""
_SHOWN_LENGTHS = (8_192, 131_072)
"""Sequence lengths that the note gives the factor for: one of pre-training, one of long-context training."""


@dataclass(frozen=True)
class Windows:
    """The tokens of a window, and the layers (0-based) that have one."""

    tokens: int
    is_chunked: bool
    layers: tuple[int, ...]


def windows_of(config: Config, num_layers: int) -> Windows | None:
    """The windows of a configuration, None where it has none; a layer of another kind is refused."""
    kinds = config.words("layer_types")
    for kind in kinds:
        if kind not in _KINDS:
            raise config.refused("layer_types", f"layers of {kind[:40]!r} cannot be described", ", ".join(_KINDS))
    if kinds and len(kinds) != num_layers:
        raise config.refused("layer_types", f"{len(kinds)} kinds of {num_layers} layers", "one kind per layer")
    chunk, sliding = (
        config.count(one, least=0) if config.has(one) else 0 for one in ("attention_chunk_size", "sliding_window")
    )
    is_used = config.flag("use_sliding_window", not config.model_type.startswith("qwen"))
    window = chunk or (sliding if is_used else 0)
    said = tuple(layer for layer, kind in enumerate(kinds) if kind != "full_attention")
    layers = said if kinds else _windowed_layers(config, num_layers)
    return Windows(window, bool(chunk), layers) if window and layers else None


def windows_note(windows: Windows, num_layers: int) -> str:
    """By what factor the scores of attention are overestimated."""
    share = len(windows.layers) / num_layers
    at = ", ".join(
        f"{overestimate(length, windows.tokens, share, is_chunked=windows.is_chunked):.1f} at {length:,} tokens"
        for length in _SHOWN_LENGTHS
    )
    return (
        f"{len(windows.layers)} of {num_layers} layers attend to {windows.tokens:,} tokens and are counted over the "
        f"whole sequence: the work of attention scores is overestimated by a factor of {at}"
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


def rotary_layers(config: Config, num_layers: int) -> tuple[int, ...]:
    """Layers of Llama 4 with rotary positions: those with a 1 in no_rope_layers, else all but every fourth."""
    marks = config.counts("no_rope_layers")
    if marks and len(marks) < num_layers:
        raise config.refused("no_rope_layers", f"{len(marks)} marks of {num_layers} layers", "one mark per layer")
    period = config.count("no_rope_layer_interval", 4)
    return tuple(layer for layer in range(num_layers) if (marks[layer] if marks else (layer + 1) % period))


def _windowed_layers(config: Config, num_layers: int) -> tuple[int, ...]:
    """Where layer_types is absent: all layers but the last of every period, in Qwen those from max_window_layers on."""
    if config.model_type == "llama4_text":
        return rotary_layers(config, num_layers)
    if config.model_type.startswith("qwen") and config.has("max_window_layers"):
        return tuple(range(config.count("max_window_layers", least=0), num_layers))
    period = _PERIODS.get(config.model_type)
    for name in ("sliding_window_pattern", "_sliding_window_pattern"):
        period = config.count(name) if config.has(name) else period
    return tuple(layer for layer in range(num_layers) if not period or (layer + 1) % period)
