"""What is to be trained: the architecture, the batch, the precision and, where known, measured layer times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from models.base import Bytes, Count, Frozen, Name, PositiveCount, PositiveSeconds
from models.catalogue import named_entry
from models.definition import MOST_LAYERS, ModelDefinition

Precision = Literal["fp32", "fp16", "bf16", "fp8", "fp4"]
Recompute = Literal["none", "selective", "full"]
OptimizerName = Literal["adam", "sgd", "muon"]
MOST_HEADS, MOST_EXPERTS = 65_536, 1_048_576  # far beyond any model; divisors of both are looked for one by one
LayerCount = Annotated[int, Field(ge=0, le=MOST_LAYERS)]
HeadCount = Annotated[int, Field(ge=1, le=MOST_HEADS)]


class GroupedQueryAttention(Frozen):
    """Softmax attention with shared key/value heads; multi-head attention is the case num_kv_heads = num_heads."""

    kind: Literal["gqa"] = Field("gqa", description="Tag of this attention form.", examples=["gqa"])
    num_heads: HeadCount = Field(description="Query heads per layer.", examples=[128])
    num_kv_heads: HeadCount = Field(description="Key/value heads per layer; divides num_heads.", examples=[8])
    head_dim: PositiveCount = Field(description="Width of one head.", examples=[128])

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}: "
                "every key/value head serves the same number of query heads"
            )
        return self


class LatentAttention(Frozen):
    """Multi-head latent attention (DeepSeek-V2/V3): keys and values are expanded from a low-rank latent."""

    kind: Literal["mla"] = Field("mla", description="Tag of this attention form.", examples=["mla"])
    num_heads: HeadCount = Field(description="Attention heads per layer.", examples=[128])
    q_lora_rank: Count = Field(description="Rank of the query compression; 0 means none.", examples=[1536])
    kv_lora_rank: PositiveCount = Field(description="Rank of the joint key/value latent.", examples=[512])
    qk_nope_head_dim: PositiveCount = Field(description="Per-head width without position encoding.", examples=[128])
    qk_rope_head_dim: PositiveCount = Field(description="Per-head width that carries rotary positions.", examples=[64])
    v_head_dim: PositiveCount = Field(description="Per-head width of the values.", examples=[128])

    @property
    def num_kv_heads(self) -> int:
        """Every head has its own keys and values."""
        return self.num_heads


Attention = Annotated[GroupedQueryAttention | LatentAttention, Field(discriminator="kind")]


class MixtureOfExperts(Frozen):
    """Routed and shared experts, and which layers have them."""

    num_experts: Annotated[int, Field(ge=1, le=MOST_EXPERTS)] = Field(
        description="Routed experts per MoE layer.", examples=[256]
    )
    experts_per_token: PositiveCount = Field(description="Routed experts that each token visits (top-k).", examples=[8])
    expert_ffn_hidden_size: PositiveCount = Field(description="Inner width of one routed expert.", examples=[2048])
    num_shared_experts: Count = Field(0, description="Experts that every token visits.", examples=[1])
    shared_expert_ffn_hidden_size: Count = Field(
        0, description="Inner width of one shared expert; 0 means the routed experts' width.", examples=[2048]
    )
    first_moe_layer: Count = Field(
        0, description="Index of the first MoE layer; earlier layers are dense.", examples=[3]
    )
    moe_layer_stride: PositiveCount = Field(
        1, description="Every how many layers, from the first MoE layer on, a layer is MoE.", examples=[1]
    )
    max_nodes_per_token: PositiveCount | None = Field(
        None, description="Node-limited routing: hosts a token's copies may reach; null means unlimited.", examples=[4]
    )

    @model_validator(mode="after")
    def _top_k_exists(self) -> Self:
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} exceeds num_experts {self.num_experts}: "
                "a token cannot visit more experts than exist"
            )
        return self


class Architecture(Frozen):
    """A decoder-only transformer, dense or mixture of experts."""

    name: Name = Field(description="Name used in plans and reports.", examples=["llama-3.1-405b"])
    num_layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = Field(description="Transformer layers.", examples=[126])
    hidden_size: Annotated[int, Field(ge=1, le=1_048_576)] = Field(
        description="Width of the residual stream.", examples=[16384]
    )
    ffn_hidden_size: Count = Field(description="Inner width of the dense feed-forward block.", examples=[53248])
    gated_mlp: bool = Field(True, description="Three feed-forward matrices (SwiGLU) instead of two.", examples=[True])
    attention: Attention = Field(
        description="Attention form and sizes.",
        examples=[{"kind": "gqa", "num_heads": 128, "num_kv_heads": 8, "head_dim": 128}],
    )
    vocab_size: PositiveCount = Field(description="Rows of the embedding table.", examples=[128256])
    tied_embeddings: bool = Field(
        False, description="Input embedding and output projection share one matrix.", examples=[False]
    )
    moe: MixtureOfExperts | None = Field(
        None,
        description="Experts; null for a dense model.",
        examples=[{"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 14336}],
    )
    num_mtp_layers: LayerCount = Field(
        0, description="Extra multi-token-prediction layers after the last layer.", examples=[1]
    )
    definition: ModelDefinition | None = Field(
        None,
        description="What a trainer needs beside the sizes; null: an export for a trainer takes RMSNorm, rotary "
        "positions and no biases, and says so.",
        examples=[{"norm": "rmsnorm", "rope_base": 500000}],
    )
    source: str = Field(
        "", max_length=400, description="Where these numbers were published.", examples=["arXiv:2407.21783"]
    )

    @model_validator(mode="after")
    def _layers_have_a_body(self) -> Self:
        if self.moe is None and self.ffn_hidden_size == 0:
            raise ValueError("ffn_hidden_size 0 without moe: a dense layer needs a feed-forward block")
        if self.moe is not None and self.moe.first_moe_layer >= self.num_layers:
            raise ValueError(
                f"moe.first_moe_layer {self.moe.first_moe_layer} is not below num_layers {self.num_layers}: "
                "no layer would be MoE; set moe to null or lower it"
            )
        if (
            self.moe is not None
            and self.ffn_hidden_size == 0
            and (self.moe.first_moe_layer > 0 or self.moe.moe_layer_stride > 1)
        ):
            raise ValueError("ffn_hidden_size 0 although some layers are dense: give their feed-forward width")
        last = max(self.definition.named_layers(), default=0) if self.definition is not None else 0
        if last >= self.num_layers:
            raise ValueError(f"definition names layer {last}, num_layers is {self.num_layers}: layers count from 0")
        return self

    def feed_forward_widths(self) -> Iterator[int]:
        """Inner widths of the blocks that its layers have: dense ones, routed experts, all shared experts together."""
        moe = self.moe
        if moe is None or not all(map(self.is_moe_layer, range(self.num_layers))):
            yield self.ffn_hidden_size
        if moe is not None:
            yield moe.expert_ffn_hidden_size
            yield moe.num_shared_experts * (moe.shared_expert_ffn_hidden_size or moe.expert_ffn_hidden_size)

    def is_moe_layer(self, layer: int) -> bool:
        """Whether layer `layer` (0-based) has experts."""
        if self.moe is None or layer < self.moe.first_moe_layer:
            return False
        return (layer - self.moe.first_moe_layer) % self.moe.moe_layer_stride == 0


class Optimizer(Frozen):
    """What the optimizer keeps and moves per parameter."""

    name: OptimizerName = Field("adam", description="Update rule.", examples=["adam"])
    state_bytes_per_parameter: Annotated[float, Field(ge=0, le=64, json_schema_extra={"unit": "B"})] = Field(
        12.0, description="Master weight and moments (Adam in FP32: 4 + 4 + 4).", examples=[12.0]
    )
    gradient_bytes_per_parameter: Annotated[float, Field(ge=1, le=8, json_schema_extra={"unit": "B"})] = Field(
        4.0, description="Gradient accumulator and element on the wire in the gradient reduction.", examples=[4.0]
    )


class LayerProfile(Frozen):
    """Measured times of one layer kind on one GPU type; replaces the formulas where it applies."""

    layer_kind: Literal["dense", "moe", "embedding", "logits"] = Field(
        description="Which part of the model was measured.", examples=["dense"]
    )
    gpu: Name = Field(description="GPU type it was measured on.", examples=["H100-SXM-80G"])
    micro_batch_sequences: PositiveCount = Field(description="Sequences per micro-batch.", examples=[1])
    tp: PositiveCount = Field(description="Tensor-parallel degree.", examples=[8])
    cp: PositiveCount = Field(1, description="Context-parallel degree.", examples=[1])
    ep: PositiveCount = Field(1, description="Expert-parallel degree.", examples=[1])
    recompute: Recompute = Field("none", description="Recomputation during the measurement.", examples=["none"])
    forward_s: PositiveSeconds = Field(description="Forward of one layer.", examples=[0.0042])
    input_grad_s: PositiveSeconds = Field(
        description="Backward for the input gradient, recomputation included.", examples=[0.0043]
    )
    weight_grad_s: PositiveSeconds = Field(description="Backward for the weight gradient.", examples=[0.0039])
    activation_bytes: Bytes = Field(
        description="Held from the forward to the input gradient, per GPU.", examples=[3.2e8]
    )
    weight_grad_context_bytes: Bytes = Field(
        0.0, description="Held from the input gradient to the weight gradient, per GPU.", examples=[1.5e8]
    )


ArchitectureOrName = Annotated[
    Architecture, BeforeValidator(lambda value: named_entry("models", value), json_schema_input_type=Architecture | str)
]


class Workload(Frozen):
    """The training job: one optimizer step of it is what is planned."""

    architecture: ArchitectureOrName = Field(
        description="The model, or its catalogue name.", examples=["llama-3.1-405b"]
    )
    sequence_length: Annotated[int, Field(ge=1, le=16_777_216)] = Field(
        description="Tokens per sequence.", examples=[8192]
    )
    global_batch_sequences: Annotated[int, Field(ge=1, le=1_048_576)] = Field(
        description="Sequences per optimizer step, over all replicas.", examples=[2048]
    )
    precision: Precision = Field(
        "bf16",
        description="Precision of training. fp32: 32-bit weights, activations and messages, products in "
        "TF32 where the GPU type has it; all others keep and send 16-bit values. Pools whose GPU type has no peak at "
        "it are left out where others have one.",
        examples=["bf16"],
    )
    flash_attention: bool = Field(
        True, description="Fused attention that never stores the score matrix.", examples=[True]
    )
    causal_attention: bool = Field(True, description="Scores above the diagonal are skipped.", examples=[True])
    optimizer: Optimizer = Field(
        default_factory=Optimizer, description="Optimizer state and gradient sizes.", examples=[{"name": "adam"}]
    )
    layer_profiles: tuple[LayerProfile, ...] = Field(
        (),
        max_length=10_000,
        description="Measured layer times that replace the formulas where they match.",
        examples=[[]],
    )

    @property
    def value_bytes(self) -> float:
        """Bytes of one weight, activation or element of a message; gradients are stated with the optimizer."""
        return 4.0 if self.precision == "fp32" else 2.0

    @property
    def tokens_per_iteration(self) -> int:
        """Tokens that one optimizer step consumes."""
        return self.global_batch_sequences * self.sequence_length
