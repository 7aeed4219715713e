"""What of a model Megatron is not told, as lines of a loss report, each with what is built instead or what to do.

Source: transformer_config.py, training/arguments.py, training/argument_utils.py of Megatron-LM core 0.20, August 2026.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.exporters.megatron_model import definition_of
from models.definition import ModelDefinition, RotaryScaling
from models.workload import Architecture

UNDEFINED = (
    "the model's definition beside its sizes is not in the request: RMSNorm, rotary positions, no biases are taken"
)
# How a part that no field of Megatron-Core builds is trained all the same.
OWN_LAYERS = (
    "Megatron-Core lacks it, write a layer specification that has it or see Megatron-Bridge's provider of the family"
)
YARN_LATENT_LENGTH = 4096  # Megatron's default for latent attention, which its command line cannot change
VOCABULARY_UNIT = 128  # rows per tensor-parallel rank; default of --make-vocab-size-divisible-by
LLAMA3_LENGTH = 8192  # the length that --use-rope-scaling stretches from; its command line cannot change it


def model_losses(architecture: Architecture) -> Iterator[str]:
    """What of the model no field of Megatron-Core says, or what had to be assumed."""
    one = definition_of(architecture)
    if architecture.definition is None:
        yield UNDEFINED
    yield from _router_losses(architecture, one)
    yield from _attention_losses(one)
    if one.rope_scaling is not None and architecture.attention.kind == "mla" and one.rope_scaling.kind != "yarn":
        name = "Llama 3's" if one.rope_scaling.kind == "llama3" else "linear"
        yield f"{name} stretching of rotary positions: Megatron has YaRN alone in latent attention"
    elif one.rope_scaling is not None and one.rope_scaling.kind == "llama3":
        yield from _other_length(one.rope_scaling, LLAMA3_LENGTH)
    yield from (f"{part}: {OWN_LAYERS}" for part in one.other_parts)


def padded_vocabulary(vocab_size: int, tp: int) -> int:
    """Rows of the embedding that Megatron-LM makes: a multiple of --make-vocab-size-divisible-by, 128, times tp.

    Source: vocab_size_with_padding of megatron/core/tokenizers/utils/build_tokenizer.py.

    >>> padded_vocabulary(50257, 8), padded_vocabulary(128256, 1)
    (51200, 128256)
    """
    return -(-vocab_size // (VOCABULARY_UNIT * tp)) * VOCABULARY_UNIT * tp


def vocabulary_losses(architecture: Architecture, rows: int) -> Iterator[str]:
    """With which vocabulary times and memory were computed, where the trainer makes the embedding of more rows."""
    if rows != architecture.vocab_size:
        more = (rows - architecture.vocab_size) * architecture.hidden_size / 1e6
        yield (
            f"the vocabulary of {architecture.vocab_size:,}, with which times and memory are computed: the trainer's "
            f"tables have {rows:,} rows, {more:,.1f} million parameters more in each"
        )


def _router_losses(architecture: Architecture, one: ModelDefinition) -> Iterator[str]:
    moe = architecture.moe
    if moe is None:
        return
    if one.router_bias and one.router_score == "softmax":
        yield "a bias of experts on softmax scores: Megatron has it on sigmoid scores only, an auxiliary loss is set"
    if one.router_score == "sigmoid" and not one.router_normalised and moe.experts_per_token > 1:
        yield "weights of a token's experts that do not add up to one: Megatron makes those of sigmoid scores do so"


def _attention_losses(one: ModelDefinition) -> Iterator[str]:
    window = one.attention_window
    if window is not None and window.kind == "chunked":
        yield f"attention in chunks of {window.tokens} tokens, where longer sequences are seen whole: {OWN_LAYERS}"
    if one.qk_l2_norm and one.unrotated_layers:
        yield "queries and keys of layers without rotary positions: Megatron normalises them in every layer"
    if one.sparse_attention is not None:
        yield "the loss that trains the scorer of sparse attention: set dsa_indexer_loss_coeff yourself"


def command_line_losses(architecture: Architecture) -> Iterator[str]:
    """What of the model the command line cannot say, beside that."""
    one = definition_of(architecture)
    yield from _activation_losses(one, is_gated=architecture.gated_mlp)
    if one.attention_scale is not None:
        yield (f"attention scores times {one.attention_scale:g}: Megatron-LM has no argument for softmax_scale and "
               "takes one over the root of a head's width, NeMo's provider has the field")  # fmt: skip
    scaling = one.rope_scaling
    if scaling is None:
        return
    if scaling.kind == "linear" and scaling.factor % 1:
        yield f"rotary positions stretched {scaling.factor:g} times: --rotary-seq-len-interpolation-factor is whole"
    if scaling.kind == "yarn" and architecture.attention.kind == "mla":
        yield from _other_length(scaling, YARN_LATENT_LENGTH)
        if (scaling.beta_fast, scaling.beta_slow) != (32, 1):
            yield (f"beta_fast {scaling.beta_fast:g} and beta_slow {scaling.beta_slow:g} of YaRN: Megatron-LM takes "
                   "32 and 1 in latent attention, NeMo's provider has the fields")  # fmt: skip


def _activation_losses(one: ModelDefinition, *, is_gated: bool) -> Iterator[str]:
    if is_gated and one.activation == "squared_relu":
        yield "squared ReLU with gates: Megatron-LM has it without gates only, SiLU is set"
    if is_gated and one.activation == "gelu":
        yield "GELU with gates: Megatron-LM takes its quick form"
    if not is_gated and one.activation in ("silu", "quick_gelu"):
        name = "SiLU" if one.activation == "silu" else "quick GELU"
        yield f"{name} without gates: Megatron-LM has it with gates only, GELU is left"


def _other_length(scaling: RotaryScaling, fixed: int) -> Iterator[str]:
    if scaling.original_length != fixed:
        yield f"rotary positions stretched from {scaling.original_length} tokens: Megatron-LM takes {fixed}"
