"""Makes the inputs of the cost model of one row of `docs/howto/fit-a-profile.md`, or skips it with a reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from models.catalogue import entry_names, named_entry
from models.cluster import GpuType
from models.stack import StackProfile, generation_of
from models.workload import (
    Architecture,
    GroupedQueryAttention,
    LatentAttention,
    MixtureOfExperts,
    Optimizer,
    Precision,
    Workload,
)
from solver.calibration.shapes import filled, is_latent
from solver.cost.fabric import Fabric, fabric_from
from solver.cost.flops import hardware_flops_sc21, model_flops_per_token
from solver.cost.job import Job, job_of

_GPU_ALIASES = (
    ("A100-40", "A100-SXM-40G"),
    ("A100", "A100-SXM-80G"),
    ("H100", "H100-SXM-80G"),
    ("H800", "H100-SXM-80G"),
    ("H200", "H200-SXM-141G"),
    ("GH200", "GH200-96G"),
    ("GB200", "GB200"),
    ("GB300", "GB300"),
    ("B200", "B200-SXM"),
    ("B300", "B300-SXM"),
    ("MI300X", "MI300X"),
    ("MI325X", "MI325X"),
)
_FOUR_GPU_HOSTS = ("GH200", "GB200", "GB300")
# Gb/s of network cards per GPU in the vendors' own hosts (DGX and HGX data sheets); 400 on all others.
_NIC_GBIT = (("A100", 200.0), ("GH200", 200.0), ("B300", 800.0), ("GB300", 800.0))
GBIT_BYTES = 1e9 / 8  # the unit
_SOFTWARE_YEAR = {"volta": 2020, "ampere": 2021, "hopper": 2024, "blackwell": 2025, "blackwell-ultra": 2025}
COUNTED_RECOMPUTE = 1.2  # recomputation adds a third to the model FLOPs, a value between 1 and 4/3 tells


class SkipRow(Exception):
    """A row that cannot be compared, and why."""


@dataclass(frozen=True)
class RunConfiguration:
    """Plan choices of a run; None where the source does not state them."""

    tp: int
    pp: int
    dp: int
    cp: int
    ep: int
    vpp: int | None
    micro_batch: int | None
    recompute: str | None
    sharding: str
    schedule: str
    one_layer_per_chunk: bool
    stage_layers: tuple[int, ...] = ()
    shard_group: int | None = None  # replicas that share one copy of the sharded state; all, where it is None


@dataclass(frozen=True)
class Run:
    """One measured run, read."""

    id: str
    family: str
    model: str
    workload: Workload
    job: Job
    gpu: GpuType
    fabric: Fabric
    stack: StackProfile
    knobs: RunConfiguration
    measured_s: float
    measured_memory_bytes: float | None
    num_gpus: int


def run_of(row: Mapping[str, str], stacks: Sequence[StackProfile]) -> Run:
    """Read a row; raises SkipRow with a reason that does not depend on the row's numbers."""
    cells = filled({key: (value or "").strip() for key, value in row.items()})
    if cells.get("arch", "").startswith("hybrid"):
        raise SkipRow("hybrid model: state-space layers are outside the vocabulary")
    gpu = _gpu(cells)
    stack = stack_for(cells.get("framework", ""), gpu.name, stacks, year=_year(cells))
    recompute = cells.get("recompute", "").lower()
    if stack.habits.flash_attention is False and recompute:
        stack = stack.model_copy(update={"sequence_parallel": "sp" in recompute.split("+")})
    architecture = _architecture(cells)
    workload = _workload(cells, architecture, stack)
    knobs = _knobs(cells, stack, workload)
    return Run(
        id=cells.get("id", ""),
        family=cells.get("family", "") or "unnamed",
        model=architecture.name,
        workload=workload,
        job=job_of(workload),
        gpu=gpu,
        fabric=_fabric(cells, gpu),
        stack=stack,
        knobs=knobs,
        measured_s=_measured_s(cells, workload),
        measured_memory_bytes=_memory(cells),
        num_gpus=_gpus_used(cells, workload),
    )


def _optional(cells: Mapping[str, str], name: str) -> int | None:
    text = cells.get(name, "")
    try:
        value = int(float(text)) if text else None
    except (ValueError, OverflowError):
        raise SkipRow(f"{name} is not a number") from None
    if value is not None and value != float(text):
        raise SkipRow(f"{name} is not a whole number")
    if value is not None and value < 0:
        raise SkipRow(f"{name} is below 0")
    return value


def _number(cells: Mapping[str, str], name: str) -> int:
    value = _optional(cells, name)
    if value is None:
        raise SkipRow(f"{name} is not stated")
    if value < 1:
        raise SkipRow(f"{name} is below 1")
    return value


def _positive(cells: Mapping[str, str], name: str) -> float:
    try:
        value = float(cells[name])
    except ValueError:
        raise SkipRow(f"{name} is not a number") from None
    if not 0.0 < value < float("inf"):
        raise SkipRow(f"{name} is not a positive number")
    return value


def _gpu(cells: Mapping[str, str]) -> GpuType:
    text = cells.get("gpu", "").upper()
    if not text:
        raise SkipRow("gpu is not stated")
    aliases = (*((one.upper(), one) for one in entry_names("gpus")), *_GPU_ALIASES)
    name = next((full for prefix, full in aliases if text.startswith(prefix)), None)
    if name is None:
        raise SkipRow("GPU type is not in the catalogue")
    gpu = GpuType.model_validate(named_entry("gpus", name))
    rate = re.search(r"NVLink (\d+) GB/s/dir", cells.get("network", ""))
    return gpu.model_copy(update={"scale_up_bytes_per_s": float(rate[1]) * 1e9}) if rate else gpu


def _fabric(cells: Mapping[str, str], gpu: GpuType) -> Fabric:
    """NIC share per GPU from the network column, else what is usual for the GPU."""
    per_host = 4 if gpu.name.startswith(_FOUR_GPU_HOSTS) else 8
    network = cells.get("network", "")
    usual = next((rate for prefix, rate in _NIC_GBIT if gpu.name.startswith(prefix)), 400.0)
    nic = usual
    if found := re.search(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)G", network):
        nic = float(found[1]) * float(found[2]) / per_host
    elif found := re.search(r"(\d+) Gb/s[\w ]* per node", network):
        nic = float(found[1]) / per_host
    elif found := re.search(r"(\d+)G (?:RoCE|IB)", network):
        nic = float(found[1])
    return fabric_from(gpu, nic_bytes_per_s=nic * GBIT_BYTES, gpus_per_host=per_host)


def stack_for(framework: str, gpu: str, stacks: Sequence[StackProfile], *, year: int | None = None) -> StackProfile:
    """The profile with the longest name that the framework's contains; among equals the latest up to `year`.

    Without a year that of the software that the GPU's generation was run with when it was new.
    """
    text = framework.lower()
    known = year or _SOFTWARE_YEAR.get(generation_of(gpu), max(stack.released for stack in stacks))

    def score(stack: StackProfile) -> tuple[int, int, int]:
        names = max((len(name) for name in stack.frameworks if name.lower() in text), default=0)
        timely = stack.released if stack.released <= known else -stack.released
        return names, timely, int(stack.is_fitted)

    return max(stacks, key=score)


def _year(cells: Mapping[str, str]) -> int | None:
    """Year of the source: from its arXiv number, else a year that its name or the family's name contains."""
    found = re.search(r"arXiv:(\d\d)\d\d\.\d{5}", cells.get("source", ""))
    if found:
        return 2000 + int(found[1])
    named = re.search(r"(?<!\d)(20[12]\d)(?!\d)", f"{cells.get('source', '')} {cells.get('family', '')}")
    return int(named[1]) if named else None


def _precision(cells: Mapping[str, str], stack: StackProfile) -> Precision:
    text = cells.get("precision", "").lower()
    if not text:
        return stack.habits.precision
    if "32" in text:
        return "fp32"
    if "fp4" in text:
        return "fp4"
    if "fp8" in text:
        return "fp8"
    return "fp16" if "fp16" in text else "bf16"


def _architecture(cells: Mapping[str, str]) -> Architecture:
    heads, hidden = _number(cells, "heads"), _number(cells, "hidden")
    attention: GroupedQueryAttention | LatentAttention
    if is_latent(cells):
        attention = LatentAttention(
            num_heads=heads,
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
        )
    else:
        attention = GroupedQueryAttention(
            num_heads=heads,
            num_kv_heads=_optional(cells, "kv_heads") or heads,
            head_dim=_optional(cells, "head_dim") or hidden // heads,
        )
    gated = cells.get("gated_mlp", "") == "1"
    return Architecture(
        name=cells.get("model", "") or "unnamed",
        num_layers=_number(cells, "layers"),
        hidden_size=hidden,
        ffn_hidden_size=_optional(cells, "ffn_hidden") or (0 if cells.get("arch") == "moe" else 4 * hidden),
        gated_mlp=gated,
        attention=attention,
        vocab_size=_optional(cells, "vocab") or 51200,
        moe=_experts(cells),
        tied_embeddings=(cells.get("tied_embeddings") or str(int(not gated))) == "1",
    )


def _experts(cells: Mapping[str, str]) -> MixtureOfExperts | None:
    if cells.get("arch", "dense") != "moe":
        return None
    return MixtureOfExperts(
        num_experts=_number(cells, "n_experts"),
        experts_per_token=_number(cells, "topk"),
        expert_ffn_hidden_size=_number(cells, "moe_ffn_hidden"),
        num_shared_experts=_optional(cells, "n_shared_experts") or 0,
        first_moe_layer=_optional(cells, "n_dense_layers") or 0,
    )


def _workload(cells: Mapping[str, str], architecture: Architecture, stack: StackProfile) -> Workload:
    precision = _precision(cells, stack)
    return Workload(
        architecture=architecture,
        sequence_length=_number(cells, "seq_len"),
        global_batch_sequences=_number(cells, "gbs"),
        precision=precision,
        flash_attention=stack.habits.flash_attention,
        optimizer=_optimizer(precision, stack),
    )


def _optimizer(precision: Precision, stack: StackProfile) -> Optimizer:
    """Adam; weights of 32 bits are their own master."""
    gradient_bytes = stack.habits.gradient_bytes_per_parameter
    if precision == "fp32":
        return Optimizer(state_bytes_per_parameter=8.0, gradient_bytes_per_parameter=gradient_bytes)
    return Optimizer(gradient_bytes_per_parameter=gradient_bytes)


def _sharding(cells: Mapping[str, str], stack: StackProfile) -> str:
    stage = cells.get("zero_stage", "")
    if stage:
        return {"0": "ddp", "1": "zero1", "2": "zero1", "3": "fsdp"}.get(stage, stack.habits.sharding)
    if cells.get("fsdp") == "1":
        return "fsdp"
    return "zero1" if stack.habits.sharding == "fsdp" and cells.get("fsdp") == "0" else stack.habits.sharding


def _recompute(cells: Mapping[str, str], workload: Workload) -> str | None:
    """What the row says; else full if the reported rate counts a quarter more than the model's FLOPs."""
    text = cells.get("recompute", "").lower()
    if not text:
        return "full" if _counted_over_model(cells, workload) > COUNTED_RECOMPUTE else None
    if text.startswith("selective"):
        return "selective"
    return "none" if text == "none" else "full"


def _counted_over_model(cells: Mapping[str, str], workload: Workload) -> float:
    """FLOPs that the reported rate and time imply, over the model's own (full attention): 1 if not both given."""
    if not cells.get("tflops_per_gpu") or not cells.get("iter_time_s"):
        return 1.0
    rate = _positive(cells, "tflops_per_gpu") * 1e12 * _number(cells, "num_gpus")
    counted = rate * _positive(cells, "iter_time_s")
    per_token = model_flops_per_token(workload.architecture, workload.sequence_length, convention="full")
    return counted / (per_token * workload.tokens_per_iteration)


def _knobs(cells: Mapping[str, str], stack: StackProfile, workload: Workload) -> RunConfiguration:
    tp, pp = _number(cells, "tp"), _number(cells, "pp")
    cp, ep = _optional(cells, "cp") or 1, _optional(cells, "ep") or 1
    vpp, micro_batch = _optional(cells, "vpp"), _optional(cells, "mbs")
    total = _gpus_used(cells, workload)
    if total % (tp * pp * cp):
        raise SkipRow("tp * pp * cp does not divide num_gpus")
    dp = total // (tp * pp * cp)
    if (micro_batch or 1) > max(workload.global_batch_sequences // dp, 1):
        raise SkipRow("mbs is above the sequences of a replica")
    if (vpp or 1) > -(-workload.architecture.num_layers // pp):
        raise SkipRow("vpp is above the layers of a pipeline rank")
    expert_tp = re.search(r"expert TP=(\d+)", cells.get("notes", ""))
    inside = 1 if expert_tp and int(expert_tp[1]) == tp else tp
    schedule = cells.get("schedule", "").lower()
    interleaved = "interleaved" in schedule or (not schedule and stack.habits.interleaved)
    return RunConfiguration(
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=max(ep // inside, 1),
        vpp=vpp or (None if interleaved and pp > 1 else 1),
        micro_batch=micro_batch,
        recompute=_recompute(cells, workload),
        sharding=_sharding(cells, stack),
        schedule=schedule,
        one_layer_per_chunk="1 layer per chunk" in schedule,
        stage_layers=_stage_layers(cells, pp),
    )


def _stage_layers(cells: Mapping[str, str], pp: int) -> tuple[int, ...]:
    """Layers of each pipeline rank where they are stated."""
    stated = tuple(int(one) for one in re.findall(r"\d+", cells.get("stage_layers", "")))
    if not stated:
        return ()
    if len(stated) != pp or sum(stated) != _number(cells, "layers") or not all(stated):
        raise SkipRow("stage_layers does not give every pipeline rank its layers")
    return stated if pp > 1 else ()


def _gpus_used(cells: Mapping[str, str], workload: Workload) -> int:
    """GPUs of the run; the printed degrees where num_gpus would leave replicas without a sequence."""
    total = _number(cells, "num_gpus")
    model = _number(cells, "tp") * _number(cells, "pp") * (_optional(cells, "cp") or 1)
    printed = _optional(cells, "dp")
    if printed and total // model > workload.global_batch_sequences:
        return printed * model
    return total


def _measured_s(cells: Mapping[str, str], workload: Workload) -> float:
    """The iteration time, or the one that the reported rate implies under the source's FLOP convention."""
    if cells.get("iter_time_s"):
        return _positive(cells, "iter_time_s")
    if not cells.get("tflops_per_gpu"):
        raise SkipRow("no iteration time and no rate to derive one")
    architecture = workload.architecture
    kind = cells.get("tflops_kind", "").lower()
    total: float
    if "recompute" in kind:
        total = hardware_flops_sc21(
            batch=workload.global_batch_sequences,
            sequence=workload.sequence_length,
            num_layers=architecture.num_layers,
            hidden=architecture.hidden_size,
            vocab=architecture.vocab_size,
        )
    else:
        halved = "recipe" in kind or "causal" in kind or "nemo" not in cells.get("framework", "").lower()
        per_token = model_flops_per_token(
            architecture, workload.sequence_length, convention="causal" if halved else "full", with_mtp=False
        )
        total = per_token * workload.tokens_per_iteration
    return total / (_positive(cells, "tflops_per_gpu") * 1e12 * _gpus_used(cells, workload))


def _memory(cells: Mapping[str, str]) -> float | None:
    """Peak memory in bytes; a source that prints decimal gigabytes says so in its notes."""
    if not cells.get("peak_mem_gib"):
        return None
    unit = 1e9 if "in GB" in cells.get("notes", "") else 2.0**30
    return _positive(cells, "peak_mem_gib") * unit


def with_stack(runs: Sequence[Run], stack: StackProfile) -> list[Run]:
    """The runs under the constants of this profile; what a run states about sequence parallelism remains."""
    if stack.habits.flash_attention:
        return [replace(run, stack=stack) for run in runs]
    both = {split: stack.model_copy(update={"sequence_parallel": split}) for split in (False, True)}
    return [replace(run, stack=both[run.stack.sequence_parallel]) for run in runs]
