"""Where the fit of each software-stack profile starts, which constants it frees and which profile it grows from.

A seed inherits the fitted constants of its parent; only its own free constants move. Start values are guesses from
the sources named; flags and habits are facts of the software.
"""

from __future__ import annotations

from dataclasses import dataclass, field

UNFUSED: dict[str, object] = {"flash_attention": False, "sharding": "ddp", "gradient_bytes_per_parameter": 2.0}
OLD_FLAGS: dict[str, object] = {"sequence_parallel": False, "dropout": True}
WORK = ("gemm_efficiency", "gemm_half_size", "attention_efficiency", "elementwise_traffic")
FABRIC = ("scale_up_efficiency", "scale_out_efficiency")
MOE = ("host_moe_layer_s", "expert_gemm_share", "expert_traffic", "expert_parallel_overlap")


@dataclass(frozen=True)
class Seed:
    """One profile before its fit."""

    name: str
    description: str
    frameworks: tuple[str, ...]
    gpus: tuple[str, ...]
    released: int
    free: tuple[str, ...]
    parent: str | None = None
    pool: tuple[str, ...] = ()  # fitted to the rows of these profiles together; a pool is not packaged
    start: dict[str, float] = field(default_factory=dict)
    start_source: str = "start value, not identified by the rows at hand"
    flags: dict[str, object] = field(default_factory=dict)
    habits: dict[str, object] = field(default_factory=dict)


SEEDS: tuple[Seed, ...] = (
    Seed(
        "unfused-a100",
        "What the Megatron generations with unfused attention on A100 have in common",
        (),
        ("none",),
        2019,
        (*WORK, *FABRIC, "host_layer_s", "point_to_point_efficiency", "step_constant_s"),
        pool=("megatron-2021", "megatron-2022", "megatron-deepspeed-2023", "zero-bubble-2024"),
        start={
            "attention_efficiency": 0.4,
            "elementwise_traffic": 1.0,
            "gemm_half_size": 40.0,
            "data_parallel_overlap": 0.01,
            "host_layer_s": 4e-4,
        },
        flags=OLD_FLAGS,
        habits=UNFUSED,
    ),
    Seed(
        "megatron-2021",
        "Megatron-LM with tensor, pipeline and data parallelism, unfused attention, no overlap",
        ("Megatron-LM",),
        ("A100", "V100"),
        2019,
        (*WORK, *FABRIC, "point_to_point_efficiency", "step_constant_s"),
        parent="unfused-a100",
        flags=OLD_FLAGS,
        habits=UNFUSED,
    ),
    Seed(
        "megatron-2022",
        "Megatron-LM with sequence parallelism and selective recomputation",
        ("Megatron-LM",),
        ("A100",),
        2022,
        ("gemm_efficiency", "attention_efficiency", "elementwise_traffic", "scale_up_efficiency"),
        parent="unfused-a100",
        flags=OLD_FLAGS,
        habits=UNFUSED,
    ),
    Seed(
        "megatron-2023",
        "Megatron-LM with fused attention and distributed optimizer on A100; not fitted to any run",
        ("Megatron-LM", "Megatron-Core"),
        ("A100",),
        2023,
        (),
        parent="megatron-2022",
        # Causal attention of the second fused kernels, forward and backward: arXiv 2307.08691, figures 4 to 7.
        start={"attention_efficiency": 0.5},
        flags={"sequence_parallel": True},
        habits={"flash_attention": True, "sharding": "zero1", "interleaved": True},
    ),
    Seed(
        "megascale-2024",
        "MegaScale: Megatron-LM with fused attention and overlapped communication; not fitted to any run",
        ("MegaScale",),
        ("A100",),
        2024,
        (),
        parent="megatron-2023",
        start={"tensor_parallel_overlap": 0.7, "data_parallel_overlap": 0.9, "pipeline_overlap": 0.8},
        habits={"flash_attention": True, "sharding": "zero1", "interleaved": True},
    ),
    Seed(
        "megatron-deepspeed-2023",
        "Megatron-DeepSpeed as run by vTrain",
        ("Megatron-DeepSpeed",),
        ("A100",),
        2023,
        (
            *WORK,
            *FABRIC,
            "host_layer_s",
            "collective_latency_s",
            "step_constant_s",
        ),
        parent="unfused-a100",
        start={"ring_contention": 1.55, "point_to_point_efficiency": 0.5},
        start_source="chosen by the order of the vTrain plans with 64 to 512 GPUs, not by their times",
        flags=OLD_FLAGS,
        habits=UNFUSED,
    ),
    Seed(
        "zero-bubble-2024",
        "Megatron-LM fork of the zero-bubble authors",
        ("Megatron-LM (sail-sg fork)", "zero-bubble"),
        ("A100",),
        2024,
        (*WORK, "point_to_point_efficiency", "step_constant_s"),
        parent="unfused-a100",
        flags=OLD_FLAGS,
        start={"framework_bytes": 3e8},
        habits=UNFUSED,
    ),
    Seed(
        "deepspeed-zero3-2021",
        "DeepSpeed ZeRO-3 inside Megatron: parameters gathered tensor by tensor",
        ("DeepSpeed ZeRO-3", "ZeRO-3 in Megatron"),
        ("A100",),
        2021,
        ("scale_out_efficiency", "data_parallel_overlap"),
        parent="megatron-2021",
        start={"scale_out_efficiency": 0.12, "data_parallel_overlap": 0.6},
        flags=OLD_FLAGS,
        habits={**UNFUSED, "sharding": "fsdp"},
    ),
    Seed(
        "fsdp-2023",
        "PyTorch FSDP with fused attention",
        ("FSDP", "llm-foundry", "torchtitan"),
        ("A100",),
        2023,
        (*WORK, *FABRIC, "host_layer_s", "data_parallel_overlap", "step_constant_s"),
        # Causal attention of the first fused kernels, forward and backward: arXiv 2307.08691, figures 4 to 7.
        start={"data_parallel_overlap": 0.5, "attention_efficiency": 0.3, "gemm_half_size": 40.0},
        habits={"sharding": "fsdp", "gradient_bytes_per_parameter": 2.0},
    ),
    Seed(
        "fsdp-2024",
        "PyTorch FSDP with fused attention on Hopper",
        ("FSDP", "llm-foundry", "torchtitan"),
        ("H100", "H200"),
        2024,
        (*WORK, *FABRIC, "gemm_efficiency_fp8", "host_layer_s", "data_parallel_overlap", "step_constant_s"),
        parent="fsdp-2023",
        start={"attention_efficiency": 0.18, "gemm_efficiency": 0.7},
        habits={"sharding": "fsdp", "gradient_bytes_per_parameter": 2.0},
    ),
    Seed(
        "sailor-2025",
        "Megatron-DeepSpeed as run by Sailor on GH200",
        ("Sailor", "Megatron-DeepSpeed"),
        ("GH200",),
        2025,
        (*WORK, *FABRIC, "host_layer_s", "step_constant_s"),
        start={
            "host_layer_s": 5e-4,
            "data_parallel_overlap": 0.01,
            "gemm_efficiency": 0.6,
            "gemm_half_size": 60.0,
            "framework_bytes": 4.6e9,
            "activation_overhead": 1.1,
        },
        flags=OLD_FLAGS,
        habits={**UNFUSED, "gradient_bytes_per_parameter": 4.0},
    ),
    Seed(
        "fused-megatron",
        "What Megatron-Core releases with fused attention on Hopper and Blackwell have in common",
        (),
        ("none",),
        2024,
        (
            *WORK,
            "gemm_efficiency_fp8",
            "gemm_efficiency_fp4",
            *MOE,
            "tensor_parallel_overlap",
            "pipeline_overlap",
            "step_constant_s",
        ),
        pool=(
            "megatron-2024",
            "megatron-2025",
            "megatron-2026",
            "megatron-2026-mid",
            "megatron-2025-ultra",
            "megatron-2026-ultra",
            "megatron-2026-mid-ultra",
        ),
        start={
            "data_parallel_overlap": 0.8,
            "tensor_parallel_overlap": 0.5,
            "expert_parallel_overlap": 0.3,
            "pipeline_overlap": 0.5,
            "host_moe_layer_s": 2e-3,
            "framework_bytes": 1e9,
        },
    ),
    Seed(
        "megatron-2024",
        "Megatron-LM and NeMo with fused attention, overlapped communication and FP8 on Hopper",
        ("Megatron", "NeMo"),
        ("H100", "H200", "H800", "GH200"),
        2024,
        (*WORK, "gemm_efficiency_fp8", *MOE, "tensor_parallel_overlap", "pipeline_overlap", "step_constant_s"),
        parent="fused-megatron",
    ),
    Seed(
        "llama3-2024",
        "Meta's training stack of Llama 3",
        ("Meta",),
        ("H100",),
        2024,
        (),
        parent="megatron-2024",
        habits={"interleaved": True},
    ),
    Seed(
        "hai-llm-2024",
        "DeepSeek's HAI-LLM: expert traffic hidden by DualPipe",
        ("HAI-LLM",),
        ("H100", "H800"),
        2024,
        (),
        parent="megatron-2024",
        start={"expert_parallel_overlap": 0.95},
    ),
    Seed(
        "megatron-2025",
        "NeMo and Megatron-Bridge releases of 2025 on Blackwell",
        ("Megatron", "NeMo", "SimuMax", "Megatron-Bridge 25"),
        ("B200", "GB200"),
        2025,
        (
            *WORK,
            "gemm_efficiency_fp8",
            "gemm_efficiency_fp4",
            *MOE,
            "tensor_parallel_overlap",
            "pipeline_overlap",
            "step_constant_s",
        ),
        parent="fused-megatron",
    ),
    Seed(
        "megatron-2026",
        "Megatron-Bridge 26.02 to 26.04 on Blackwell",
        ("Megatron-Bridge 26",),
        ("B200", "GB200"),
        2026,
        ("gemm_efficiency_fp8", "gemm_efficiency_fp4", "elementwise_traffic", *MOE),
        parent="megatron-2025",
    ),
    Seed(
        "megatron-2026-mid",
        "Megatron-Bridge 26.06 and later on Blackwell",
        ("Megatron-Bridge 26.06", "Megatron-Bridge 26.08"),
        ("B200", "GB200"),
        2026,
        ("gemm_efficiency_fp8", "elementwise_traffic", *MOE),
        parent="megatron-2026",
    ),
    Seed(
        "megatron-2025-ultra",
        "NeMo and Megatron-Bridge releases of 2025 on Blackwell Ultra",
        ("Megatron", "NeMo", "Megatron-Bridge 25"),
        ("B300", "GB300"),
        2025,
        ("gemm_efficiency", "gemm_efficiency_fp8", "attention_efficiency", "host_moe_layer_s", "expert_traffic"),
        parent="megatron-2025",
        # Twice the exponential rate of Blackwell: vendor architecture brief of Blackwell Ultra.
        start={"attention_efficiency": 0.6},
    ),
    Seed(
        "megatron-2026-ultra",
        "Megatron-Bridge 26.02 to 26.04 on Blackwell Ultra",
        ("Megatron-Bridge 26",),
        ("B300", "GB300"),
        2026,
        ("gemm_efficiency_fp8", "gemm_efficiency_fp4", "attention_efficiency", *MOE),
        parent="megatron-2026",
        start={"attention_efficiency": 0.6},
    ),
    Seed(
        "megatron-2026-mid-ultra",
        "Megatron-Bridge 26.06 and later on Blackwell Ultra",
        ("Megatron-Bridge 26.06", "Megatron-Bridge 26.08"),
        ("B300", "GB300"),
        2026,
        ("gemm_efficiency_fp8", "elementwise_traffic", *MOE),
        parent="megatron-2026-ultra",
    ),
)
