"""Rules on the configuration alone: degrees, batch, layers, sharding, and what the request allows."""

from collections.abc import Iterator, Mapping

from models.cluster import GpuType
from models.request import choices_of
from solver.cost.compute import peak_flops_per_s
from solver.network.places import usable_gpus, usable_pools
from solver.verify.case import Case, Finding, Rule
from solver.verify.frameworks import unsupported_schedules

WHERE = "configuration"


def batch_arithmetic(case: Case) -> Iterator[Finding]:
    """dp * num_microbatches * micro_batch_sequences = global_batch_sequences."""
    used, batch = case.configuration, case.request.workload.global_batch_sequences
    product = used.degrees.dp * used.num_microbatches * used.micro_batch_sequences
    if product != batch:
        yield Finding(
            WHERE,
            f"dp {used.degrees.dp} * {used.num_microbatches} micro-batches * {used.micro_batch_sequences} sequences"
            f" = {product}, but the global batch has {batch} sequences",
        )


def degrees_divide(case: Case) -> Iterator[Finding]:
    """tp divides the heads, cp the sequence, ep the experts; key/value heads split or repeat evenly over tp."""
    degrees, workload = case.configuration.degrees, case.request.workload
    attention = workload.architecture.attention
    wanted = [
        ("num_heads", attention.num_heads, "tp", degrees.tp),
        ("sequence_length", workload.sequence_length, "cp", degrees.cp),
    ]
    if workload.architecture.moe is not None:
        wanted.append(("num_experts", workload.architecture.moe.num_experts, "ep", degrees.ep))
    elif degrees.ep != 1:
        yield Finding(WHERE, f"ep {degrees.ep} although the architecture has no experts")
    if attention.kind == "gqa":
        small, large = sorted((attention.num_kv_heads, degrees.tp))
        wanted.append(("num_kv_heads and tp: the larger", large, "the smaller", small))
    for name, whole, degree_name, degree in wanted:
        if whole % degree:
            yield Finding(WHERE, f"{name} {whole} is not divisible by {degree_name} {degree}")


def expert_parallel_inside(case: Case) -> Iterator[Finding]:
    """ep splits the cp * dp ranks of one pipeline rank, so it divides them."""
    degrees = case.configuration.degrees
    if (degrees.dp * degrees.cp) % degrees.ep:
        yield Finding(WHERE, f"ep {degrees.ep} does not divide dp {degrees.dp} * cp {degrees.cp}")


def layers_complete(case: Case) -> Iterator[Finding]:
    """layers_per_stage adds up to the layers of the architecture."""
    placed = sum(case.configuration.layers_per_stage)
    wanted = case.request.workload.architecture.num_layers
    if placed != wanted:
        yield Finding("layers_per_stage", f"{placed} layers are placed, the architecture has {wanted}")


def layer_split(case: Case) -> Iterator[Finding]:
    """even: stages between the ends differ by one layer at most; by_gpu_type: every rank is on GPUs of one type.

    Shares by GPU type take two ranks or more, and types that differ: bounds cover no others.
    """
    used = case.configuration
    between = used.layers_per_stage[1:-1]
    if used.layer_split == "even" and max(between, default=0) - min(between, default=0) > 1:
        yield Finding(
            "layer_split",
            f"even, but the stages between the ends have {min(between)} to {max(between)} layers; state by_gpu_type if "
            "every pipeline rank is on one GPU type",
        )
    if used.layer_split == "by_gpu_type":
        kinds = {_kind(case, pool.gpu) for pool in usable_pools(case.request)}
        if used.degrees.pp == 1 or len(kinds) == 1:
            yield Finding("layer_split", f"by_gpu_type, but pp is {used.degrees.pp} on {len(kinds)} kinds of GPU")
        types: dict[int, set[str]] = {}
        for group in case.groups:
            types.setdefault(group.pipeline_rank, set()).add(group.pool.gpu.name)
        for rank, names in types.items():
            if len(names) > 1:
                yield Finding("layer_split", f"by_gpu_type, but rank {rank} is on {' and '.join(sorted(names))}")


def _kind(case: Case, gpu: GpuType) -> tuple[object, ...]:
    """What times and memory on a GPU type follow from, with the layers measured on it."""
    profiles = case.request.workload.layer_profiles
    return (
        frozenset(own.model_copy(update={"gpu": ""}) for own in profiles if own.gpu == gpu.name),
        peak_flops_per_s(gpu, case.request.workload.precision),
        gpu.bf16_flops_per_s,
        gpu.memory_bytes,
        gpu.memory_bytes_per_s,
        (gpu.scale_up_bytes_per_s, gpu.scale_up_domain_gpus, gpu.scale_up_full_mesh),
        gpu.num_multiprocessors or 0,
    )


def family_shape(case: Case) -> Iterator[Finding]:
    """one_way has one chunk per rank, v an even number; loop any."""
    family, vpp = case.configuration.family, case.configuration.degrees.vpp
    if family == "one_way" and vpp != 1:
        yield Finding("family", f"one_way has one chunk per pipeline rank, not vpp {vpp}")
    if family == "v" and vpp % 2:
        yield Finding("family", f"v folds chunks in pairs, vpp {vpp} is odd")


def shard_group(case: Case) -> Iterator[Finding]:
    """ddp: 1 replica per copy of the state; fsdp: all dp of them; zero1 a divisor of dp; hsdp one with copies."""
    used = case.configuration
    dp, group = used.degrees.dp, used.shard_group_replicas
    allowed = {
        "ddp": group == 1,
        "zero1": dp % group == 0,
        "fsdp": group == dp,
        "hsdp": dp % group == 0 and (group < dp or dp == 1),
    }[used.sharding]
    if not allowed:
        yield Finding("shard_group_replicas", f"{group} does not suit {used.sharding} over dp {dp}")


def allowed_values(case: Case) -> Iterator[Finding]:
    """Every value is one the request allows."""
    for name, value in choices_of(case.configuration).items():
        values = getattr(case.request.constraints.allowed, name)
        if values is not None and value not in values:
            yield Finding(name, f"{value} is not among the allowed {', '.join(map(str, values))}")


def framework_runs_it(case: Case) -> Iterator[Finding]:
    """Sharding, fold, schedules, backward and sends are those of the framework of the request; asynchronous without."""
    profile, used = case.request.constraints.framework, case.configuration
    if profile is None:
        for timeline in case.plan.timelines:
            if timeline.problem.sends != "asynchronous":
                yield Finding(f"timeline {timeline.route}", f"sends are {timeline.problem.sends}, no framework asks it")
        return
    yield from (Finding(name, detail) for name, detail in profile.lacks(used, case.request.workload))
    yield from unsupported_schedules(profile, used, case.plan.timelines)


def max_gpus(case: Case) -> Iterator[Finding]:
    """tp * cp * pp * dp remains within max_gpus."""
    limit, used = case.request.constraints.max_gpus, case.configuration.degrees.num_gpus
    if limit is not None and used > limit:
        yield Finding(WHERE, f"{used} GPUs are used, the request allows {limit}")


def use_all_gpus(case: Case) -> Iterator[Finding]:
    """With use_all_gpus, fewer GPUs stay idle than one more replica would take (within max_gpus)."""
    degrees = case.configuration.degrees
    if not case.request.constraints.use_all_gpus:
        return
    usable, replica = usable_gpus(case.request), degrees.num_gpus // degrees.dp
    if usable - degrees.num_gpus >= replica:
        yield Finding(
            WHERE, f"{usable - degrees.num_gpus} of {usable} usable GPUs stay idle, one replica takes {replica}"
        )


FAMILY: Mapping[str, Rule] = {
    "batch-arithmetic": batch_arithmetic,
    "degrees-divide": degrees_divide,
    "expert-parallel-inside": expert_parallel_inside,
    "layers-complete": layers_complete,
    "layer-split": layer_split,
    "family-shape": family_shape,
    "shard-group": shard_group,
    "allowed-values": allowed_values,
    "framework-runs-it": framework_runs_it,
    "max-gpus": max_gpus,
    "use-all-gpus": use_all_gpus,
}
