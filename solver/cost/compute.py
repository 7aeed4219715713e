"""Time of the work inside one GPU: matrix products, attention core, memory-bound kernels, host launches.

Owns the roofline of each kind of work. Never communicates and never sums a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.cluster import GpuType
from models.stack import StackProfile
from models.workload import Precision
from solver.cost.columns import FloatArray

BYTES_16_BIT = 2.0
ELEMENT_BYTES: dict[Precision, float] = {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.5}


@dataclass(frozen=True)
class Machine:
    """The rates of one GPU under one software stack and precision."""

    gemm_flops_per_s: float
    gemm_half_size: float
    element_bytes: float
    attention_flops_per_s: float
    memory_bytes_per_s: float
    elementwise_traffic: float

    @classmethod
    def of(cls, gpu: GpuType, stack: StackProfile, precision: Precision) -> Machine:
        """Rates that matrix products, attention and streaming kernels reach.

        A precision the GPU lacks runs at the next higher one. A faster unit needs proportionally larger matrices.
        """
        peak, share = matrix_peak(gpu, stack, precision)
        return cls(
            gemm_flops_per_s=peak * share,
            gemm_half_size=stack.gemm_half_size.value * peak / gpu.bf16_flops_per_s,
            element_bytes=ELEMENT_BYTES[precision] if peak > gpu.bf16_flops_per_s else BYTES_16_BIT,
            attention_flops_per_s=gpu.bf16_flops_per_s * stack.attention_efficiency.value,
            memory_bytes_per_s=gpu.memory_bytes_per_s * stack.memory_efficiency.value,
            elementwise_traffic=stack.elementwise_traffic.value,
        )


def matrix_peak(gpu: GpuType, stack: StackProfile, precision: Precision) -> tuple[float, float]:
    """Peak rate of the matrix unit in `precision`, and the share of it that the stack reaches."""
    if precision == "fp4" and gpu.fp4_flops_per_s:
        return gpu.fp4_flops_per_s, stack.gemm_efficiency_fp4.value
    if precision in ("fp8", "fp4") and gpu.fp8_flops_per_s:
        return gpu.fp8_flops_per_s, stack.gemm_efficiency_fp8.value
    return gpu.bf16_flops_per_s, stack.gemm_efficiency.value


def shape_slowdown(rows: FloatArray, inner: FloatArray, outer: FloatArray, half_size: float) -> FloatArray:
    """Time of a matrix product over its ideal time: small dimensions leave tiles and pipelines partly empty.

    (1 + c/M)(1 + c/K)(1 + c/N): symmetric, so forward, input and weight gradient share it. Form: own fit to the
    A100 rows of vTrain (MICRO'24) and to zero-bubble (arXiv 2401.10241).

    >>> float(shape_slowdown(np.array(100.0), np.array(1e12), np.array(1e12), 100.0).round(6))
    2.0
    """
    slowdown: FloatArray = (1.0 + half_size / rows) * (1.0 + half_size / inner) * (1.0 + half_size / outer)
    return slowdown


def gemm_s(rows: FloatArray, inner: FloatArray, outer: FloatArray, machine: Machine) -> FloatArray:
    """Forward or input-gradient time of one weight matrix: roofline of 2 M K N FLOPs and the three operands."""
    ideal = 2.0 * rows * inner * outer / machine.gemm_flops_per_s
    traffic = machine.element_bytes * (rows * inner + inner * outer) + BYTES_16_BIT * rows * outer
    busy = ideal * shape_slowdown(rows, inner, outer, machine.gemm_half_size)
    return np.maximum(busy, traffic / machine.memory_bytes_per_s)


def weight_gradient_s(
    rows: FloatArray, inner: FloatArray, outer: FloatArray, machine: Machine, *, gradient_bytes: float
) -> FloatArray:
    """Weight-gradient time: as the forward, but the result is read, added to and written in gradient precision."""
    ideal = 2.0 * rows * inner * outer / machine.gemm_flops_per_s
    traffic = machine.element_bytes * rows * (inner + outer) + 2.0 * gradient_bytes * inner * outer
    busy = ideal * shape_slowdown(rows, inner, outer, machine.gemm_half_size)
    return np.maximum(busy, traffic / machine.memory_bytes_per_s)


def streaming_s(traffic_bytes: FloatArray, machine: Machine) -> FloatArray:
    """Time of memory-bound kernels that move `traffic_bytes` at least once, times the stack's excess traffic."""
    return traffic_bytes * machine.elementwise_traffic / machine.memory_bytes_per_s


def optimizer_step_s(num_parameters: FloatArray, bytes_per_parameter: float, machine: Machine) -> FloatArray:
    """Time to stream gradient, state and weights of the local parameters once."""
    return num_parameters * bytes_per_parameter / machine.memory_bytes_per_s
