"""Time of the work inside one GPU: matrix products, attention core, memory-bound kernels, host launches.

The roofline of each kind of work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.cluster import GpuType
from models.stack import StackProfile
from models.workload import Precision, Workload
from solver.arrays import FloatArray

BYTES_16_BIT = 2.0  # the unit
# Usual output tiles: rows, columns, relative time per element.
TILES = (
    (128.0, 256.0, 1.0),
    (256.0, 128.0, 1.0),
    (128.0, 128.0, 1.06),
    (64.0, 256.0, 1.12),
)
TF32_SHARE = 0.5  # of the 16-bit peak, on every type of the catalogue (vendor data sheets)
ELEMENT_BYTES: dict[Precision, float] = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.5}


@dataclass(frozen=True)
class GpuRates:
    """The rates of one GPU under one software stack and precision."""

    gemm_flops_per_s: float
    gemm_half_size: float
    element_bytes: float
    attention_flops_per_s: float
    memory_bytes_per_s: float
    elementwise_traffic: float
    multiprocessors: int
    value_bytes: float = BYTES_16_BIT
    wide_flops_per_s: float = 0.0  # products of 16-bit matrices, or of 32-bit ones where all is

    @classmethod
    def of(cls, gpu: GpuType, stack: StackProfile, precision: Precision) -> GpuRates:
        """Rates that matrix products, attention and streaming kernels reach.

        A precision the GPU lacks runs at the next higher one. A faster unit needs proportionally larger matrices.
        """
        stack = stack.on(gpu.name)
        peak, efficiency = peak_flops_per_s(gpu, precision), stack.gemm_efficiency
        share = {"fp8": stack.gemm_efficiency_fp8, "fp4": stack.gemm_efficiency_fp4}.get(
            matrix_precision(gpu, precision), efficiency
        )
        wide, narrow = precision == "fp32", peak > gpu.bf16_flops_per_s
        plain = peak if wide else gpu.bf16_flops_per_s
        return cls(
            gemm_flops_per_s=peak * share.value,
            gemm_half_size=stack.gemm_half_size.value * peak / gpu.bf16_flops_per_s,
            element_bytes=ELEMENT_BYTES[precision] if narrow or wide else BYTES_16_BIT,
            value_bytes=ELEMENT_BYTES["fp32"] if wide else BYTES_16_BIT,
            attention_flops_per_s=plain * stack.attention_efficiency.value,
            wide_flops_per_s=plain * efficiency.value,
            memory_bytes_per_s=gpu.memory_bytes_per_s * stack.memory_efficiency.value,
            elementwise_traffic=stack.elementwise_traffic.value,
            multiprocessors=gpu.num_multiprocessors or 0,
        )


def matrix_precision(gpu: GpuType, precision: Precision) -> Precision:
    """The precision in which matrix products run: the next higher one where the GPU lacks the unit."""
    if precision == "fp4" and not gpu.fp4_flops_per_s:
        precision = "fp8"
    return "bf16" if precision == "fp8" and not gpu.fp8_flops_per_s else precision


def peak_flops_per_s(gpu: GpuType, precision: Precision) -> float:
    """Dense peak of the matrix unit at a precision: FP16 runs at the BF16 rate, FP32 as stated or at half of it."""
    unit = matrix_precision(gpu, precision)
    if unit == "fp32":
        return gpu.fp32_flops_per_s or TF32_SHARE * gpu.bf16_flops_per_s
    return {"fp8": gpu.fp8_flops_per_s, "fp4": gpu.fp4_flops_per_s}.get(unit) or gpu.bf16_flops_per_s


def fastest_flops_per_s(gpu: GpuType, precision: Precision) -> float:
    """Dense peak of the fastest matrix unit that a step uses: of 8- and 4-bit jobs attention and logits run in 16 bits.

    The peak at the precision, but where a type is stated to be slower at it.
    """
    peak = peak_flops_per_s(gpu, precision)
    return peak if precision == "fp32" else max(peak, gpu.bf16_flops_per_s)


def strength_of(workload: Workload, gpu: GpuType) -> tuple[float, ...]:
    """What a GPU type has for a job, of each the more the better: its peaks, memory, rates and scale-up domain."""
    return (
        peak_flops_per_s(gpu, workload.precision),
        gpu.bf16_flops_per_s,
        gpu.memory_bytes,
        gpu.memory_bytes_per_s,
        gpu.scale_up_bytes_per_s,
        float(gpu.scale_up_domain_gpus),
        float(not gpu.scale_up_full_mesh),
    )


def shape_slowdown(rows: FloatArray, inner: FloatArray, outer: FloatArray, half_size: float) -> FloatArray:
    """Time of a matrix product over its ideal time: small dimensions leave tiles and pipelines partly empty.

    (1 + c/M)(1 + c/K)(1 + c/N): symmetric, so forward, input and weight gradient share it. Form: own fit to the
    A100 rows of vTrain (MICRO'24) and to zero-bubble (arXiv 2401.10241).

    >>> float(shape_slowdown(np.array(100.0), np.array(1e12), np.array(1e12), 100.0).round(6))
    2.0
    """
    return (1.0 + half_size / rows) * (1.0 + half_size / inner) * (1.0 + half_size / outer)


def wave_slowdown(rows: FloatArray, outer: FloatArray, multiprocessors: int, count: FloatArray | float) -> FloatArray:
    """Time of `count` equal products over their ideal time when whole waves of output tiles must finish.

    ceil(tiles / SMs) waves for the best of the usual tile shapes. Source: NVIDIA, Matrix Multiplication Background
    User's Guide (tile and wave quantization).

    >>> float(wave_slowdown(np.array(1024.0), np.array(5120.0), 108, 1.0).round(3))
    1.073
    """
    if not multiprocessors:
        return np.ones_like(rows * outer)
    best = np.full_like(rows * outer * count, np.inf)
    for height, width, slower in TILES:
        tiles = np.ceil(rows / height) * np.ceil(outer / width) * count
        waves = np.ceil(tiles / multiprocessors)
        best = np.minimum(best, slower * waves * (multiprocessors * height * width))
    return best / (rows * outer * count)


@dataclass(frozen=True)
class Times:
    """Forward, input-gradient and weight-gradient time of one piece of work."""

    forward_s: FloatArray
    input_grad_s: FloatArray
    weight_grad_s: FloatArray

    def __add__(self, other: Times) -> Times:
        return Times(
            self.forward_s + other.forward_s,
            self.input_grad_s + other.input_grad_s,
            self.weight_grad_s + other.weight_grad_s,
        )

    def scaled(self, factor: FloatArray | float) -> Times:
        """All three times a factor."""
        return Times(self.forward_s * factor, self.input_grad_s * factor, self.weight_grad_s * factor)

    @classmethod
    def zero(cls, rows: FloatArray) -> Times:
        """No time at all, as often as there are rows."""
        none = np.zeros_like(rows)
        return cls(none, none, none)

    @property
    def total_s(self) -> FloatArray:
        """All three together."""
        return self.forward_s + self.input_grad_s + self.weight_grad_s


def products_s(
    rows: FloatArray,
    inner: FloatArray,
    outer: FloatArray,
    rates: GpuRates,
    *,
    gradient_bytes: float,
    count: FloatArray | float = 1.0,
) -> Times:
    """Rooflines of `count` equal weight matrices: 2 M K N FLOPs each against the traffic of the operands.

    The output of the forward is M x N, of the input gradient M x K, of the weight gradient K x N, which is read, added
    to and written in gradient precision. Each takes max(FLOPs / rate, bytes / memory rate) (Williams et al. 2009).

    >>> rates = GpuRates(1e12, 0.0, 2.0, 1e12, 1e12, 1.0, 0)
    >>> size = np.array([1000.0])
    >>> products_s(size, size, size, rates, gradient_bytes=4.0).forward_s.tolist()  # 2e9 FLOPs at 1e12 FLOP/s
    [0.002]
    >>> products_s(np.array([1.0]), size, size, rates, gradient_bytes=4.0).forward_s.round(9).tolist()  # 2.004 MB
    [2.004e-06]
    """
    ideal = 2.0 * rows * inner * outer / rates.gemm_flops_per_s * count
    busy = ideal * shape_slowdown(rows, inner, outer, rates.gemm_half_size)
    size = rates.element_bytes
    ahead = (size * (rows * inner + inner * outer) + rates.value_bytes * rows * outer) * count
    back = (size * (rows * outer + inner * outer) + rates.value_bytes * rows * inner) * count
    weight = (size * rows * (inner + outer) + 2.0 * gradient_bytes * inner * outer) * count
    rate, sms = rates.memory_bytes_per_s, rates.multiprocessors
    return Times(
        np.maximum(busy * wave_slowdown(rows, outer, sms, count), ahead / rate),
        np.maximum(busy * wave_slowdown(rows, inner, sms, count), back / rate),
        np.maximum(busy * wave_slowdown(inner, outer, sms, count), weight / rate),
    )


def streaming_s(traffic_bytes: FloatArray, rates: GpuRates) -> FloatArray:
    """Time of memory-bound kernels that move `traffic_bytes` at least once, times the stack's excess traffic.

    >>> streaming_s(np.array([1e9]), GpuRates(1e12, 0.0, 2.0, 1e12, 1e12, 1.5, 0)).tolist()
    [0.0015]
    """
    return traffic_bytes * rates.elementwise_traffic / rates.memory_bytes_per_s
