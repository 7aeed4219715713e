"""What a Hugging Face configuration says of a model beside its sizes, as the definition of an architecture.

What no field of the definition states becomes one of its `other_parts`. Source: the modelling files of each family and
modeling_rope_utils.py in the transformers library.
"""

from __future__ import annotations

from math import log

from app.importers.huggingface_config import Config, Values
from app.importers.huggingface_families import FAMILIES, Family
from app.importers.huggingface_windows import Windows
from app.importers.source import names_shown

_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu", "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu", "relu2": "squared_relu",
}  # fmt: skip
"""Names of ACT2FN in transformers. The tanh forms of GELU are within 5e-4 of it; Megatron's fused kernel has them."""
_LLAMA3_FREQUENCIES = (1.0, 4.0)
"""low_freq_factor and high_freq_factor of Llama 3, fixed in rotary_pos_embedding.py of Megatron-Core."""
_SAME_FACTOR = 1e-3
"""A stated attention_factor of YaRN is the usual one within this: configurations give six digits or three."""


def definition_of(config: Config, values: Values, windows: Windows | None) -> Values:
    """The fields of a ModelDefinition; `values` are those of the architecture, `windows` its windowed layers."""
    family, parts = FAMILIES[config.model_type], list[str]()
    found = {
        "norm": family.norm,
        "norm_epsilon": config.number(family.epsilon_field, family.epsilon),
        "activation": _activation(config, family),
        **_positions(config, family, values, parts),
        **_biases(config, family, parts),
        **_windows(values["num_layers"], windows),
    }
    if windows is not None and family.rotates_windows_only:
        found["unrotated_layers"] = found["attention_window"]["whole_layers"]
    if windows is not None and family.stretches_whole_only and found.get("rope_scaling"):
        parts.append("rotary positions are stretched in layers without a window only")
    more = family.more(config, values) if family.more is not None else {}
    parts += [*family.parts, *more.pop("other_parts", ())]
    return {**found, **more, "other_parts": parts}


def _activation(config: Config, family: Family) -> str:
    name = config.word(family.activation_field, family.activation)
    if name not in _ACTIVATIONS:
        raise config.refused(family.activation_field, f"the activation {name[:40]!r} is not known",
                             ", ".join(_ACTIVATIONS))  # fmt: skip
    return _ACTIVATIONS[name]


def _windows(num_layers: int, windows: Windows | None) -> Values:
    if windows is None:
        return {}
    whole = sorted(set(range(num_layers)) - set(windows.layers))
    kind = "chunked" if windows.is_chunked else "sliding"
    return {"attention_window": {"tokens": windows.tokens, "kind": kind, "whole_layers": whole}}


def _biases(config: Config, family: Family, parts: list[str]) -> Values:
    """Megatron has biases in all linear layers, or in queries, keys and values; others are told in words."""
    qkv, out, mlp = (
        config.flag(one, family.bias_default) if isinstance(one, str) else one for one in family.bias_fields
    )
    everywhere = qkv and out and mlp
    if out and not everywhere:
        parts.append("the output projection of attention adds a bias")
    if mlp and not everywhere:
        parts.append("the layers of the feed-forward block add a bias")
    return {"linear_bias": everywhere, "qkv_bias": qkv}


def _positions(config: Config, family: Family, values: Values, parts: list[str]) -> Values:
    """Rotary positions as transformers 4 states them, rope_theta beside rope_scaling, or 5: all in rope_parameters."""
    if family.position_embedding != "rope":
        return {"position_embedding": family.position_embedding}
    rope = config.part("rope_parameters")
    if rope.has("full_attention"):
        _local_base(config, rope.part("sliding_attention"), parts)
        rope = rope.part("full_attention")
    elif not config.has("rope_parameters"):
        rope = config.part("rope_scaling")
        _local_base(config, config, parts)
    base = (rope if rope.has("rope_theta") else config).number(
        "rope_theta" if rope.has("rope_theta") else family.rope_base_field, family.rope_base
    )
    fraction, name = family.rope_fraction, family.rope_fraction_field
    if rope.has(name) or config.has(name) or fraction != 1:
        fraction = (rope if rope.has(name) else config).number(name, fraction)
    if _has_alpha(config, rope):
        width = values["attention"]["head_dim"]
        base = round(base * rope.number("alpha") ** (width / max(1, width - 2)))
    scaling = _scaling(config, rope, family, parts)
    if base % 1 or base < 1:
        raise config.refused(family.rope_base_field, f"the base of rotary positions is {base}", "a whole number")
    return {
        "rope_base": int(base),
        "rope_fraction": fraction,
        "rope_interleaved": family.is_interleaved,
        **({"rope_scaling": scaling} if scaling else {}),
    }


def _local_base(config: Config, at: Config, parts: list[str]) -> None:
    """Gemma 3 rotates layers with a window with a base of their own."""
    name = "rope_local_base_freq" if at is config else "rope_theta"
    if config.model_type == "gemma3_text" and (at.has(name) or at is config):
        parts.append(f"rotary positions of layers with a window have the base {at.number(name, 10_000.0):,.0f}")


def _has_alpha(config: Config, rope: Config) -> bool:
    """Hunyuan stretches rotary positions by another base (modeling_hunyuan_v1_dense.py) and reads nothing else."""
    return config.model_type.startswith("hunyuan") and rope.has("alpha")


def _scaling(config: Config, rope: Config, family: Family, parts: list[str]) -> Values | None:
    """How rotary positions are stretched; a rule without a field of its own is told in words."""
    if not config.has("rope_parameters") and not config.has("rope_scaling"):
        if family.rope_scaling:
            config.assumed["rope_scaling"] = "{kind} {factor:g}".format(**family.rope_scaling)
        return family.rope_scaling
    kind = rope.word("rope_type", rope.word("type", "default"))
    if kind == "default" or _has_alpha(config, rope):
        return None
    found = Values(kind=kind)
    if kind == "llama3":
        found |= {"factor": rope.number("factor"), "original_length": _original_length(config, rope, kind)}
        _other_frequencies(rope, parts)
    elif kind == "linear":
        found |= {"factor": rope.number("factor")}
    elif kind == "yarn":
        found |= _yarn(rope, _original_length(config, rope, kind), parts)
    else:
        parts.append(f"rotary positions are stretched by the rule {kind[:40]!r} of transformers")
        return None
    if left := rope.unread():
        parts.append(f"rotary positions have {names_shown(left)}, which the definition does not state")
    return found


def _original_length(config: Config, rope: Config, kind: str) -> int:
    """Tokens before stretching; where they are not stated, YaRN stretches from all positions."""
    name = "original_max_position_embeddings"
    if rope.has(name) or kind != "yarn":
        return rope.count(name)
    return config.count(name if config.has(name) else "max_position_embeddings")


def _yarn(rope: Config, length: int, parts: list[str]) -> Values:
    factor = rope.number("factor")
    usual = 0.1 * log(max(factor, 1.0)) + 1.0  # section 3.4 of arXiv:2309.00071
    stated = rope.number("attention_factor", usual)
    if abs(stated - usual) > _SAME_FACTOR:
        parts.append(f"YaRN scales queries and keys by {stated:g}")
    return {
        "factor": factor,
        "original_length": length,
        "beta_fast": rope.number("beta_fast", 32.0),
        "beta_slow": rope.number("beta_slow", 1.0),
        "mscale": rope.number("mscale", 1.0, positive=False),
        "mscale_all_dim": rope.number("mscale_all_dim", 0.0, positive=False),
        "whole_dimensions": rope.flag("truncate", True),
    }


def _other_frequencies(rope: Config, parts: list[str]) -> None:
    low, high = _LLAMA3_FREQUENCIES
    stated = (rope.number("low_freq_factor", low), rope.number("high_freq_factor", high))
    if stated != _LLAMA3_FREQUENCIES:
        parts.append(f"stretching of rotary positions keeps frequencies by factors {stated[0]:g} and {stated[1]:g}")
