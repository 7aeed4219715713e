"""What a trainer needs of a model beside its sizes; no time, memory or placement follows from it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.base import PLAIN_TEXT, Count, Frozen, PositiveCount, PositiveFraction

MOST_LAYERS = 4096  # 32 times those of Llama 3.1 405B; layers are looked at one by one
Layers = Annotated[tuple[Annotated[int, Field(ge=0, lt=MOST_LAYERS)], ...], Field(max_length=MOST_LAYERS)]
Factor = Annotated[float, Field(gt=0, le=1e4, json_schema_extra={"unit": "1"})]


class RotaryScaling(Frozen):
    """How rotary positions are stretched to longer sequences than the model was first trained on."""

    kind: Literal["llama3", "yarn", "linear"] = Field(description="Rule of stretching.", examples=["llama3"])
    factor: Annotated[float, Field(ge=1, le=1e4, json_schema_extra={"unit": "1"})] = Field(
        description="How far it stretches.", examples=[8.0]
    )
    original_length: PositiveCount | None = Field(
        None, description="Tokens of a sequence before stretching; linear stretching needs none.", examples=[8192]
    )
    beta_fast: Factor = Field(
        32.0, description="yarn: frequencies with more rotations in the original length are kept.", examples=[32.0]
    )
    beta_slow: Factor = Field(
        1.0, description="yarn: frequencies with fewer rotations are stretched by the whole factor.", examples=[1.0]
    )
    mscale: Annotated[float, Field(ge=0, le=100, json_schema_extra={"unit": "1"})] = Field(
        1.0, description="yarn: weight of the factor's logarithm in the scale of attention.", examples=[1.0]
    )
    mscale_all_dim: Annotated[float, Field(ge=0, le=100, json_schema_extra={"unit": "1"})] = Field(
        0.0, description="yarn: the same weight for parts of a head that are not rotated.", examples=[1.0]
    )
    whole_dimensions: bool = Field(
        True, description="yarn: the ends of the range between are rounded to whole dimensions.", examples=[False]
    )

    @model_validator(mode="after")
    def _length_is_known(self) -> Self:
        if self.kind != "linear" and self.original_length is None:
            raise ValueError(f"{self.kind} without original_length: give the length that it stretches from")
        return self


class AttentionWindow(Frozen):
    """Layers that attend to a part of the sequence."""

    tokens: PositiveCount = Field(description="Tokens of a window, its own among them.", examples=[4096])
    kind: Literal["sliding", "chunked"] = Field(
        "sliding", description="sliding: the last tokens; chunked: those before it in its chunk.", examples=["sliding"]
    )
    whole_layers: Layers = Field(
        (), description="Layers (0-based) that attend to the whole sequence.", examples=[[3, 7]]
    )


class SparseAttention(Frozen):
    """Attention to the tokens that a small scorer in every layer chooses (DeepSeek-V3.2)."""

    tokens: PositiveCount = Field(description="Tokens that one attends to.", examples=[2048])
    num_heads: PositiveCount = Field(description="Heads of the scorer.", examples=[64])
    head_dim: PositiveCount = Field(description="Width of one of them.", examples=[128])


class ModelDefinition(Frozen):
    """What a trainer needs to build the model beside its sizes. No time, memory or placement follows from it, but a
    framework may refuse to split it.
    """

    norm: Literal["rmsnorm", "layernorm", "rmsnorm1p", "layernorm1p"] = Field(
        "rmsnorm", description="Normalisation; those with 1p store their scale less 1.", examples=["rmsnorm"]
    )
    norm_epsilon: PositiveFraction = Field(1e-5, description="Added to the variance under the root.", examples=[1e-5])
    position_embedding: Literal["rope", "learned", "none"] = Field(
        "rope", description="How positions are told.", examples=["rope"]
    )
    rope_base: PositiveCount = Field(10_000, description="Base of the rotary frequencies.", examples=[500_000])
    rope_fraction: PositiveFraction = Field(1.0, description="Part of a head that is rotated.", examples=[0.5])
    rope_interleaved: bool = Field(
        False, description="Even and odd elements are rotated as pairs, not the halves of a head.", examples=[True]
    )
    rope_scaling: RotaryScaling | None = Field(
        None, description="Stretching of rotary positions; null means none.", examples=[None]
    )
    unrotated_layers: Layers = Field((), description="Layers (0-based) without rotary positions.", examples=[[3, 7]])
    activation: Literal["silu", "gelu", "quick_gelu", "squared_relu"] = Field(
        "silu", description="Activation of the feed-forward block, gated or not.", examples=["silu"]
    )
    activation_limit: Factor | None = Field(
        None, description="What goes into the activation and its gate is cut off there; null: nowhere.", examples=[7.0]
    )
    gate_offset: Annotated[float, Field(ge=-100, le=100, json_schema_extra={"unit": "1"})] = Field(
        0.0, description="Added to what the activation is multiplied with.", examples=[1.0]
    )
    linear_bias: bool = Field(False, description="Linear layers add a bias.", examples=[False])
    qkv_bias: bool = Field(False, description="Query, key and value projections add one.", examples=[True])
    qk_norm: bool = Field(False, description="Queries and keys are normalised.", examples=[True])
    qk_l2_norm: bool = Field(
        False, description="Queries and keys are divided by their length, without weights.", examples=[True]
    )
    attention_scale: Factor | None = Field(
        None, description="Factor on attention scores; null: one over the root of a head's width.", examples=[0.0625]
    )
    attention_window: AttentionWindow | None = Field(
        None, description="Layers that attend to a part of the sequence; null: none.", examples=[None]
    )
    attention_sinks: bool = Field(
        False, description="Every head has a learned logit that takes a part of its attention.", examples=[True]
    )
    sparse_attention: SparseAttention | None = Field(
        None, description="Attention to chosen tokens; null: to all.", examples=[None]
    )
    router_score: Literal["softmax", "sigmoid"] = Field(
        "softmax", description="How the router scores experts.", examples=["sigmoid"]
    )
    router_normalised: bool = Field(
        True, description="The weights of a token's experts add up to one before router_scale.", examples=[False]
    )
    router_bias: bool = Field(
        False, description="Experts have a bias that balances their load without a loss.", examples=[True]
    )
    router_groups: Count = Field(0, description="Groups of experts that routing is limited to; 0: none.", examples=[8])
    router_groups_per_token: Count = Field(0, description="Groups that a token's experts come from.", examples=[4])
    router_scale: Annotated[float, Field(gt=0, le=100, json_schema_extra={"unit": "1"})] = Field(
        1.0, description="Factor on the weights of the chosen experts.", examples=[2.5]
    )
    router_scales_input: bool = Field(
        False, description="An expert's weight multiplies what goes in, not what comes out.", examples=[True]
    )
    shared_expert_gate: bool = Field(
        False, description="What shared experts add is multiplied by a gate of each token.", examples=[True]
    )
    other_parts: tuple[Annotated[str, Field(min_length=1, max_length=300, pattern=PLAIN_TEXT)], ...] = Field(
        (),
        max_length=50,
        description="What of the model no other field states, one part each; exports for a trainer name it.",
        examples=[["attention scores are capped at 50"]],
    )

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        if self.router_groups_per_token > self.router_groups:
            raise ValueError(
                f"router_groups_per_token {self.router_groups_per_token} exceeds router_groups {self.router_groups}: "
                "a token cannot reach more groups than exist"
            )
        return self

    def named_layers(self) -> frozenset[int]:
        """The layers (0-based) that it says something of by number."""
        windowed = self.attention_window
        return frozenset(self.unrotated_layers) | frozenset(windowed.whole_layers if windowed else ())
