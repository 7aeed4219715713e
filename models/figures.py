"""Figures of a plan that need no other part of it: time and memory by cause, course of the search, assumptions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from models.base import Bytes, Count, Frozen, Name, Seconds


class MemoryUse(Frozen):
    """Peak memory of one GPU of a pipeline rank, by cause."""

    pipeline_rank: Count = Field(description="Pipeline rank.", examples=[0])
    route: Name = Field(description="Route with the largest need on this rank.", examples=["r0"])
    weights_bytes: Bytes = Field(description="Parameters.", examples=[6.3e9])
    gradients_bytes: Bytes = Field(description="Gradient accumulators.", examples=[1.2e10])
    optimizer_bytes: Bytes = Field(description="Optimizer state.", examples=[5.9e8])
    activations_bytes: Bytes = Field(description="Activations in flight at the peak.", examples=[2.4e10])
    buffers_bytes: Bytes = Field(description="Communication buffers, gathered blocks and logits.", examples=[2.0e9])
    framework_bytes: Bytes = Field(description="Context, allocator and scratch.", examples=[3.0e9])
    limit_bytes: Bytes = Field(description="HBM less the headroom asked for.", examples=[7.2e10])

    @property
    def total_bytes(self) -> float:
        """Peak over all causes."""
        static = (self.weights_bytes, self.gradients_bytes, self.optimizer_bytes)
        return sum((*static, self.activations_bytes, self.buffers_bytes, self.framework_bytes))


# What an iteration spends its time on, in the order it is shown: fields of `TimeBreakdown` with their names in words.
CAUSES_OF_TIME = {
    "compute_s": "compute",
    "tensor_parallel_s": "tensor parallel",
    "context_parallel_s": "context parallel",
    "expert_parallel_s": "expert parallel",
    "bubble_s": "bubble",
    "pipeline_s": "pipeline transfers",
    "data_parallel_s": "gradient exchange",
    "optimizer_s": "optimizer",
    "overhead_s": "step overhead",
}


class TimeBreakdown(Frozen):
    """Where the iteration time goes on the rank that finishes last; the parts add up to the total."""

    compute_s: Seconds = Field(
        description="Matrix multiplications, attention, memory-bound work, and what layers wait for the host to launch "
        "their kernels: host_layer_s and host_moe_layer_s among the assumptions.",
        examples=[5.2],
    )
    tensor_parallel_s: Seconds = Field(description="Exposed tensor-parallel communication.", examples=[0.6])
    context_parallel_s: Seconds = Field(description="Exposed context-parallel communication.", examples=[0.0])
    expert_parallel_s: Seconds = Field(description="Exposed expert-parallel communication.", examples=[0.0])
    bubble_s: Seconds = Field(description="Idle with no transfer under way to blame.", examples=[0.5])
    pipeline_s: Seconds = Field(description="Idle that the same schedule without hops would not have.", examples=[0.05])
    data_parallel_s: Seconds = Field(description="Exposed gradient and parameter exchange.", examples=[0.08])
    optimizer_s: Seconds = Field(description="Optimizer step and per-step constant.", examples=[0.02])
    overhead_s: Seconds = Field(0.0, description="Host work of a step, and the wait for all ranks.", examples=[0.02])
    total_s: Seconds = Field(description="Iteration time.", examples=[6.45])

    @property
    def by_cause(self) -> dict[str, float]:
        """Seconds of every part by its name in words."""
        return {name: float(getattr(self, field)) for field, name in CAUSES_OF_TIME.items()}

    @property
    def step_end_s(self) -> float:
        """What follows the last backward and the last exchange."""
        return self.optimizer_s + self.overhead_s


class ConvergencePoint(Frozen):
    """Where the search stood at one moment."""

    elapsed_s: Seconds = Field(description="Since the start.", examples=[2.5])
    incumbent_s: Seconds | None = Field(None, description="Iteration time of the best judged plan.", examples=[6.5])
    lower_bound_s: Seconds | None = Field(
        None,
        description="The incumbent's time less the gap of what is minimised: a bound of time where that is the time.",
        examples=[6.2],
    )


class Assumption(Frozen):
    """One number or rule that the plan rests on, and where it comes from."""

    what: str = Field(max_length=300, description="The assumption.", examples=["GEMM efficiency 0.62 on H100"])
    origin: Literal["measured", "fitted", "datasheet", "derived", "guessed", "request"] = Field(
        description="Kind of evidence.", examples=["fitted"]
    )
    source: str = Field(
        "", max_length=300, description="Where to look it up.", examples=["stack profile megatron-2024"]
    )
