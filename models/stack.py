"""A software stack as the cost model sees it: a few constants, each with the evidence it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from models.base import Frozen, Name, Relative
from models.catalogue import named_entry
from models.workload import Precision

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
    return Field(
        default,
        description=description,
        examples=[{"value": value, "origin": "guessed"}],
        json_schema_extra={"unit": unit},
    )


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
    precision: Precision = Field("bf16", description="Precision of training.", examples=["bf16"])


GENERATIONS = (
    ("V100", "volta"),
    ("A100", "ampere"),
    ("H", "hopper"),
    ("GH200", "hopper"),
    ("B200", "blackwell"),
    ("GB200", "blackwell"),
    ("B300", "blackwell-ultra"),
    ("GB300", "blackwell-ultra"),
    ("MI3", "cdna3"),
)  # beginnings of GPU names


def generation_of(gpu: str) -> str:
    """Generation of a GPU type by its name; the name itself where it is unknown.

    >>> generation_of("GH200-96G"), generation_of("TPU")
    ('hopper', 'TPU')
    """
    return next((name for prefix, name in GENERATIONS if gpu.startswith(prefix)), gpu)


class GenerationConstant(Frozen):
    """What one GPU generation makes of a constant of the profile."""

    generation: Name = Field(description="GPU generation.", examples=["hopper"])
    name: Name = Field(description="Name of the constant.", examples=["attention_efficiency"])
    value: Annotated[float, Field(ge=0, le=1e15, json_schema_extra={"unit": "as its constant"})] = Field(
        description="Its value there.", examples=[0.37]
    )


class Evidence(Frozen):
    """Measured runs of one class that the profile was fitted to."""

    generation: Name = Field(description="GPU generation.", examples=["hopper"])
    kind: Literal["dense", "moe"] = Field(description="Dense model or mixture of experts.", examples=["dense"])
    precision: Name = Field(description="Precision of training.", examples=["bf16"])
    rows: Annotated[int, Field(ge=0)] = Field(description="Measured runs of any software.", examples=[12])
    own_rows: Annotated[int, Field(ge=0)] = Field(0, description="Measured runs of this software.", examples=[3])


Spread = Annotated[float, Field(gt=0, le=2, json_schema_extra={"unit": "1"})]


class Uncertainty(Frozen):
    """How far predictions of a profile may be off: errors of its constants, and what no constant explains.

    The covariance of ln(constants) is F F^T, with one row of F per name; `constant@generation` is a constant on one GPU
    generation.
    """

    names: tuple[Name, ...] = Field((), description="Rows of the factors.", examples=[["gemm_efficiency@hopper"]])
    factors: tuple[tuple[Relative, ...], ...] = Field(
        (), description="Factors F of the covariance of the logarithms.", examples=[[[0.02]]]
    )
    family_spread_dense: Spread = Field(
        0.1,
        description="Standard deviation of ln(measured / predicted) between families of runs, dense models.",
        examples=[0.08],
    )
    family_spread_moe: Spread = Field(0.2, description="The same for mixtures of experts.", examples=[0.15])
    run_spread: Spread = Field(
        0.04, description="Standard deviation of ln(measured / predicted) of runs of one family.", examples=[0.04]
    )
    memory_spread: Spread = Field(
        0.045, description="Standard deviation of ln(measured / predicted) of peak memory.", examples=[0.045]
    )

    @model_validator(mode="after")
    def _one_row_per_name(self) -> Self:
        if len(self.names) != len(self.factors) or len({len(row) for row in self.factors}) > 1:
            raise ValueError("factors need one row per name, all of the same length")
        return self


class StackProfile(Frozen):
    """The calibrated constants of one software stack; GPU generations differ within it."""

    name: Name = Field(description="Name used in plans.", examples=["megatron-2021"])
    description: str = Field(
        "", max_length=400, description="Which software this stands for.", examples=["Megatron-Core"]
    )
    frameworks: tuple[Name, ...] = Field(
        (), description="Framework names this profile answers for (case-insensitive parts).", examples=[["Megatron-LM"]]
    )
    generations: tuple[GenerationConstant, ...] = Field(
        (), description="Constants that a GPU generation changes.", examples=[[]]
    )
    evidence: tuple[Evidence, ...] = Field((), description="Measured runs behind the constants.", examples=[[]])
    uncertainty: Uncertainty = Field(
        default_factory=Uncertainty, description="How far its predictions may be off.", examples=[{}]
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
    step_host_s: Constant = _constant(
        "Host work once per step that no kernel hides: launches of the optimizer, loss and gradient norm, data.",
        "s",
        5e-3,
    )
    step_sync_s: Constant = _constant(
        "Waiting of one step for the slowest of its ranks, per doubling of their number.", "s", 2e-3
    )
    optimizer_traffic: Constant = _constant("Memory traffic of the optimizer step over the least possible.", "1", 1.0)
    framework_bytes: Constant = _constant("Memory of context, libraries and communicators.", "B", 1.5e9)
    activation_overhead: Constant = _constant("Activation memory held over the closed form.", "1", 1.0)

    def on(self, gpu: str) -> StackProfile:
        """The profile with the constants of the generation of a GPU type."""
        return self._by_generation.get(generation_of(gpu), self)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> StackProfile:
        """A copy that derives its generations anew."""
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("_by_generation", None)
        return copy

    @cached_property
    def _by_generation(self) -> dict[str, StackProfile]:
        changed: dict[str, dict[str, Constant]] = {}
        for one in self.generations:
            constant: Constant = getattr(self, one.name)
            changed.setdefault(one.generation, {})[one.name] = constant.model_copy(update={"value": one.value})
        return {name: self.model_copy(update={**new, "generations": ()}) for name, new in changed.items()}

    @model_validator(mode="after")
    def _generations_change_constants(self) -> Self:
        for one in self.generations:
            if not isinstance(getattr(self, one.name, None), Constant):
                raise ValueError(f"generations: {one.name!r} is not a constant of a profile")
        return self

    @model_validator(mode="after")
    def _constants_have_a_meaning(self) -> Self:
        for name in type(self).model_fields:
            if isinstance(constant := getattr(self, name), Constant):
                _check_constant(name, constant.value, name)
        for index, one in enumerate(self.generations):
            _check_constant(one.name, one.value, f"generations[{index}]: {one.name} on {one.generation}")
        return self


def _check_constant(name: str, value: float, where: str) -> None:
    """Raise ValueError for a value at which a constant has no meaning; `where` is how the message names it."""
    if name.endswith("_overlap") and value > 1:
        raise ValueError(f"{where} is {value:g}, but no more than all traffic can be hidden: state 0 to 1")
    if name in SHARES_OF_A_WIRE and value > 1:
        raise ValueError(
            f"{where} is {value:g}, but nothing reaches more than the whole rate: state at most 1; "
            "where a measurement says more, the rate of the GPU's links or network card is stated too low"
        )
    if name in DIVISORS and value == 0:
        raise ValueError(f"{where} is 0, but work is divided by this rate: state a positive number")


@cache
def packaged_stack(name: str) -> StackProfile:
    """The profile of that name that ships with Isthmus; ValueError, naming what exists, without one."""
    return StackProfile.model_validate(named_entry("stacks", name))
