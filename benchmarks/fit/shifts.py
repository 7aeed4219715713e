"""Facts about some software or GPU generation that move the prior of a constant, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

_MAMF = "best measured product over shapes: ml-engineering MAMF tables"


@dataclass(frozen=True)
class Shift:
    """A fact about some software or GPU generation that moves the prior of a constant, in its logarithm or logit."""

    constant: str
    by: float
    source: str
    software: tuple[str, ...] = ()
    generation: str = ""


_NO_STREAMS = (
    "megatron-2021", "megatron-2022", "megatron-deepspeed-2023", "zero-bubble-2024", "sailor-2025",
    "deepspeed-zero3-2021",
)  # fmt: skip
_ONE_STREAM = "arXiv 2104.04473: collectives on the stream of the products"
_ORDER = "order of the plans with 64 to 512 GPUs, not their times: vTrain (MICRO'24)"
_SAILOR = ("sailor-2025",)
_FSDP = ("fsdp-2023",)
_FLASH_2 = ("megatron-2023", "megascale-2024", "megatron-2024", "torchtitan-2024")
_OVERLAPPED = (
    "megatron-2024", "megatron-2025", "megatron-2026-02", "megatron-2026-06",
    "megascale-2024", "llama3-2024", "hai-llm-2024",
)  # fmt: skip
_STREAMS = "streams of their own for collectives: arXiv 2402.15627, 3.2; NeMo performance guide"
_FUSED_KERNELS = "norms, rotations and activations fused: Transformer Engine"
_FLASH_1 = "half as fast as the second on A100: training rates at 8k tokens in table 1 of arXiv 2307.08691"
_FLASH_1_HOPPER = "160 TFLOP/s, forward and backward: arXiv 2307.08691, figure 7"
_FLASH_2_HOPPER = "kernels made for Ampere: 320 TFLOP/s, forward and backward: arXiv 2307.08691, figure 7"
_EAGER = "kernels that are not fused cost 11 to 19 %: arXiv 2104.04473, 5.8"

SHIFTS: tuple[Shift, ...] = (
    Shift("gemm_efficiency", 0.17, _MAMF, generation="ampere"),
    Shift("gemm_efficiency", 0.01, _MAMF, generation="hopper"),
    Shift("gemm_efficiency", -0.13, _MAMF, generation="blackwell"),
    Shift("gemm_efficiency", -0.13, _MAMF, generation="blackwell-ultra"),
    Shift("attention_efficiency", 0.4, "twice the exponential rate: vendor brief", generation="blackwell-ultra"),
    Shift("tensor_parallel_overlap", -2.0, _ONE_STREAM, _NO_STREAMS),
    Shift("pipeline_overlap", -1.5, _ONE_STREAM, _NO_STREAMS),
    Shift("data_parallel_overlap", -2.0, _ONE_STREAM, _NO_STREAMS[:-1]),
    Shift("tensor_parallel_overlap", 0.8, _STREAMS, _OVERLAPPED),
    Shift("pipeline_overlap", 1.0, _STREAMS, _OVERLAPPED),
    Shift("data_parallel_overlap", 1.5, _STREAMS, _OVERLAPPED),
    Shift("elementwise_traffic", -0.2, _FUSED_KERNELS, _OVERLAPPED),
    Shift(
        "scale_out_efficiency", -3.2, "a guess: gathers tensor by tensor keep one of eight cards busy", _NO_STREAMS[-1:]
    ),
    Shift("ring_contention", 1.13, _ORDER, ("megatron-deepspeed-2023",)),
    Shift("point_to_point_efficiency", -0.5, _ORDER, ("megatron-deepspeed-2023",)),
    Shift("elementwise_traffic", 0.9, _EAGER, _SAILOR),
    Shift("elementwise_traffic", 0.53, _EAGER, _FSDP),
    Shift("attention_efficiency", -0.9, _FLASH_1, _FSDP),
    Shift("attention_efficiency", -0.8, _FLASH_1_HOPPER, _FSDP, "hopper"),
    Shift("attention_efficiency", -0.6, _FLASH_2_HOPPER, _FLASH_2, "hopper"),
)
