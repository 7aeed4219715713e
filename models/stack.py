"""A software stack as the cost model sees it: a few constants, each with the evidence it rests on.

Owns the constants and their provenance. Never holds a formula: `solver/cost` says what each constant means in time.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.base import Frozen, Name

Origin = Literal["measured", "fitted", "datasheet", "guessed"]
DIVISORS = frozenset(
    {
        "gemm_efficiency",
        "gemm_efficiency_fp8",
        "gemm_efficiency_fp4",
        "attention_efficiency",
        "memory_efficiency",
        "expert_gemm_share",
        "expert_imbalance",
        "scale_up_efficiency",
        "scale_out_efficiency",
        "point_to_point_efficiency",
    }
)  # constants that some time is divided by; tokens of the busiest expert are a dimension of a product

SHARES_OF_A_WIRE = ("scale_up_efficiency", "scale_out_efficiency", "point_to_point_efficiency")


class Constant(Frozen):
    """One number of a profile and where it comes from."""

    value: Annotated[float, Field(ge=0, le=1e15)] = Field(
        description="The number, in the unit of its field.", examples=[0.75]
    )
    origin: Origin = Field(description="Kind of evidence.", examples=["fitted"])
    source: str = Field("", max_length=300, description="Data or document behind it.", examples=["vTrain, 72 runs"])


def _constant(description: str, unit: str, value: float) -> Constant:
    default = Constant(value=value, origin="guessed", source="no measurement of this stack")
    field: Constant = Field(
        default,
        description=description,
        examples=[{"value": value, "origin": "guessed"}],
        json_schema_extra={"unit": unit},
    )
    return field


class StackHabits(Frozen):
    """What the software does unless a run says otherwise; used to read runs that do not state it."""

    flash_attention: bool = Field(True, description="The attention core is fused.", examples=[True])
    sharding: Literal["ddp", "zero1", "fsdp"] = Field(
        "zero1", description="Sharding of model state.", examples=["zero1"]
    )
    gradient_bytes_per_parameter: Annotated[float, Field(ge=1, le=8)] = Field(
        4.0,
        description="Gradient accumulator and element on the wire.",
        examples=[4.0],
        json_schema_extra={"unit": "B"},
    )
    interleaved: bool = Field(False, description="Pipelines run several chunks per rank.", examples=[False])


class StackProfile(Frozen):
    """The calibrated constants of one software stack on one GPU generation."""

    name: Name = Field(description="Name used in plans.", examples=["megatron-2021"])
    description: str = Field(
        "", max_length=400, description="Which software this stands for.", examples=["Megatron-Core"]
    )
    frameworks: tuple[Name, ...] = Field(
        (), description="Framework names this profile answers for (case-insensitive parts).", examples=[["Megatron-LM"]]
    )
    gpus: tuple[Name, ...] = Field(
        (), description="GPU names it answers for (prefixes); empty means any.", examples=[["H100"]]
    )

    is_fitted: bool = Field(
        False, description="Some constants were fitted to runs of this very stack.", examples=[True]
    )
    released: int = Field(2024, ge=2018, le=2100, description="Year of the software.", examples=[2021])
    habits: StackHabits = Field(default_factory=StackHabits, description="Defaults of the software.", examples=[{}])
    sequence_parallel: bool = Field(
        True, description="Norms and dropout are split over the tensor-parallel group.", examples=[True]
    )
    dropout: bool = Field(False, description="Dropout masks are computed and kept.", examples=[False])
    fused_gradient_accumulation: bool = Field(
        True, description="Weight gradients are added to their accumulator inside the matrix product.", examples=[True]
    )
    scatter_gather_pipeline: bool = Field(
        True,
        description="A boundary message is split over the tensor-parallel group instead of sent by every rank.",
        examples=[True],
    )
    context_parallel_ring: bool = Field(
        True, description="Keys and values travel in a ring beside the attention core.", examples=[True]
    )

    gemm_efficiency: Constant = _constant("Share of the 16-bit peak that a large matrix product reaches.", "1", 0.75)
    gemm_efficiency_fp8: Constant = _constant("Share of the 8-bit peak that a large matrix product reaches.", "1", 0.65)
    gemm_efficiency_fp4: Constant = _constant("Share of the 4-bit peak that a large matrix product reaches.", "1", 0.5)
    gemm_half_size: Constant = _constant(
        "Matrix dimension at which a 16-bit product takes twice its ideal time.", "1", 100.0
    )
    attention_efficiency: Constant = _constant("Share of the 16-bit peak that the attention core reaches.", "1", 0.45)
    memory_efficiency: Constant = _constant("Share of the HBM bandwidth that streaming kernels reach.", "1", 0.8)
    elementwise_traffic: Constant = _constant(
        "Memory traffic of norms, activations and residuals over the least possible.", "1", 1.5
    )
    expert_gemm_share: Constant = _constant(
        "Rate of the grouped products of the experts over that of dense products.", "1", 0.8
    )
    expert_traffic: Constant = _constant(
        "Memory traffic of permuting, casting and activating routed tokens over the least possible.", "1", 1.0
    )
    host_layer_s: Constant = _constant("Host time to launch the forward of one dense layer.", "s", 2e-4)
    host_moe_layer_s: Constant = _constant("Host time to launch the forward of one MoE layer.", "s", 8e-4)
    scale_up_efficiency: Constant = _constant("Share of the scale-up rate that collectives reach.", "1", 0.75)
    scale_out_efficiency: Constant = _constant("Share of the NIC rate that collectives reach.", "1", 0.7)
    ring_contention: Constant = _constant(
        "Slowdown, per further replica in a host, of rings that meet other groups' rings.", "1", 0.0
    )
    point_to_point_efficiency: Constant = _constant("Share of the NIC rate of one stage-to-stage message.", "1", 0.7)
    collective_latency_s: Constant = _constant("Launch and synchronisation of one collective.", "s", 3e-5)
    tensor_parallel_overlap: Constant = _constant("Share of tensor-parallel traffic hidden behind work.", "1", 0.0)
    expert_parallel_overlap: Constant = _constant("Share of expert all-to-all hidden behind work.", "1", 0.0)
    pipeline_overlap: Constant = _constant("Share of steady-state stage messages hidden behind work.", "1", 0.0)
    data_parallel_overlap: Constant = _constant(
        "Share of the last backward (and of each FSDP layer) that hides data-parallel traffic.", "1", 0.5
    )
    expert_imbalance: Constant = _constant("Tokens of the busiest expert rank over the mean.", "1", 1.0)
    step_constant_s: Constant = _constant("Time per optimizer step that nothing else explains.", "s", 0.01)
    optimizer_traffic: Constant = _constant("Memory traffic of the optimizer step over the least possible.", "1", 1.0)
    framework_bytes: Constant = _constant("Memory of context, libraries and communicators.", "B", 1.5e9)
    activation_overhead: Constant = _constant("Activation memory held over the closed form.", "1", 1.0)

    @model_validator(mode="after")
    def _constants_have_a_meaning(self) -> Self:
        for name in type(self).model_fields:
            constant = getattr(self, name)
            if not isinstance(constant, Constant):
                continue
            if name.endswith("_overlap") and constant.value > 1:
                raise ValueError(
                    f"{name} is {constant.value:g}, but no more than all traffic can be hidden: state 0 to 1"
                )
            if name in SHARES_OF_A_WIRE and constant.value > 1:
                raise ValueError(
                    f"{name} is {constant.value:g}, but nothing reaches more than the whole rate: state at most 1; "
                    "where a measurement says more, the rate of the GPU's links or network card is stated too low"
                )
            if name in DIVISORS and constant.value == 0:
                raise ValueError(f"{name} is 0, but work is divided by this rate: state a positive number")
        return self
