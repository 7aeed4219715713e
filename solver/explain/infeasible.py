"""Why nothing fits: the numbers of the configuration that comes closest, and what was checked to help.

By arithmetic, without a search; a remedy is offered only where with it the same arithmetic finds what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import floor, inf

import numpy as np

from models.cluster import GpuType
from models.outcome import Reason
from models.request import AllowedDegrees, PlanRequest
from models.schedule import MAX_OPERATIONS
from models.statements import SPACE_LIMITS
from solver.arrays import IntArray
from solver.bounds.work import lower_bounds, memory_needs
from solver.configurations.enumerate import OPERATIONS_EACH, Space, enumerate_space
from solver.configurations.framework import within_framework
from solver.configurations.unusual import with_every_degree
from solver.context import Context
from solver.cost.columns import FSDP, RECOMPUTE_CODES, SHARDING_CODES
from solver.network.places import alike_pools, usable_gpus, usable_pools, with_one_of_each
from solver.objective import LONGEST_S

GIB, DAY_S = 2.0**30, 86_400.0  # the units
MAX_ROWS = 200_000  # of a larger space nothing is said before a search has priced it
PORTION = 8_192  # rows at a time, which keeps memory small
MOST_TRIED = 512  # configurations, those that need least memory, that a remedy is checked on
MORE_GPUS = (2, 4, 16)  # times as many hosts, tried in this order
COUNTED_GPUS = 64  # of so few, one less matters, and every degree is tried; of more the usual ones, which is quicker
MOST_NAMED = 6  # pools in a sentence
MOST_HALVED = 10  # times, of what shares out a batch: 16 sequences a micro-batch for each of 64 replicas
Late = Callable[[], bool]
Helps = Callable[[PlanRequest], bool]
Offer = tuple[str, PlanRequest]


def space_reasons(context: Context, late: Late = lambda: False) -> tuple[Reason, ...]:
    """The allowed values leave no configuration at all."""
    request = context.request
    batch = request.workload.global_batch_sequences
    unlimited = enumerate_space(request, most_operations=inf)
    if len(unlimited):
        if too_long := _too_long(context, unlimited, late):
            return too_long
        if least := _least_need(context, unlimited):
            return _memory_too_small(context, unlimited, *least, late)
    offers = chain(_joined(request), _lifted(request))
    remedies = _checked(request, offers, lambda changed: bool(len(enumerate_space(changed))), late)
    idle, alike = _leaving_gpus_idle(request), _on_types_alike(request)
    return (
        Reason(
            code="nothing-allowed",
            pointer=f"/constraints/{'use_all_gpus' if idle else 'allowed/layer_split' if alike else 'allowed'}",
            detail=idle
            or alike
            or (
                f"no combination of the allowed degrees divides {context.job.num_layers} layers, "
                f"{context.job.num_heads} heads, {context.job.num_experts} experts and a batch of {batch} sequences on "
                f"{context.usable_gpus} GPUs{_own_limit(request, lambda changed: bool(len(enumerate_space(changed))))}"
            ),
            remedies=remedies or ("change several of constraints.allowed, the batch and the GPUs together",),
        ),
    )


def _own_limit(request: PlanRequest, helps: Helps) -> str:
    """A limit of the framework's own, where that is all that is in the way; else empty."""
    framework, free = request.constraints.framework, request.with_constraints(framework=None)
    if framework is None or not helps(free):
        return ""
    one = _tried(free).columns
    for tp, cp, size in zip(one.tp.tolist(), one.cp.tolist(), one.micro_batch.tolist(), strict=True):
        limit = framework.token_limit(request.workload, tp=tp, cp=cp, micro_batch_sequences=size)
        limit = limit or next(framework.tensor_limits(request.workload.architecture, tp), "")
        if limit:
            return f"; {limit}"
    return f"; {framework.name} has limits of its own"


def _leaving_gpus_idle(request: PlanRequest) -> str:
    """What all configurations leave idle, where the wish that they do not is all that is in the way; else empty."""
    if not request.constraints.use_all_gpus:
        return ""
    free = enumerate_space(request.with_constraints(use_all_gpus=False))
    if not len(free):
        return ""
    return (
        "use_all_gpus is set, but every configuration leaves the GPUs of another replica idle: the largest takes "
        f"{int(free.columns.num_gpus.max()):,} of {usable_gpus(request):,}, as the allowed degrees, the batch and "
        "what may cross buildings have it"
    )


def _on_types_alike(request: PlanRequest) -> str:
    """Why no layers are shared out by GPU type, where that wish is all that is in the way; else empty."""
    only = request.constraints.allowed.layer_split == ("by_gpu_type",)
    if not only or not len(enumerate_space(_with_allowed(request, layer_split=None))):
        return ""
    return (
        "layer_split by_gpu_type alone is allowed, which takes two pipeline ranks or more, on GPU types that differ in "
        "speed or memory: no combination of the allowed degrees has both on the GPUs to use"
    )


def _too_long(context: Context, unlimited: Space, late: Late) -> tuple[Reason, ...]:
    """Empty unless something fits into memory once pipelines of any length may be timed."""
    long = unlimited.take(unlimited.num_operations() > MAX_OPERATIONS)
    row = _shortest_that_fits(context, long)
    if row is None:
        return ()
    request, one = context.request, long.columns.take(np.array([row]))
    tp, cp, pp, vpp, dp = (int(column[0]) for column in (one.tp, one.cp, one.pp, one.vpp, one.dp))
    microbatches, size = int(one.num_microbatches[0]), int(one.micro_batch[0])
    stages = f"each of {pp * vpp} stages" if pp * vpp > 1 else "one stage"
    allowed = request.constraints.allowed
    unit = (dp if allowed.dp else 1) * (size if allowed.micro_batch_sequences else 1)
    nearest = islice(_helpful(_other_batches(request, unit, pp * vpp), _fits, late), 1)
    return (
        Reason(
            code="too-many-operations",
            pointer="/workload/global_batch_sequences",
            detail=(
                f"the shortest pipeline that fits into memory has {long.num_operations()[row]:,} operations: "
                f"{OPERATIONS_EACH} for each of {microbatches:,} micro-batches of {size} on {stages} "
                f"(tp {tp}, cp {cp}, pp {pp}, dp {dp}), which make up the batch of "
                f"{request.workload.global_batch_sequences:,}. This program times none of more than "
                f"{MAX_OPERATIONS:,}: a limit of the program, the hardware has none"
            ),
            remedies=(*nearest, *_checked(request, _lifted(request), _fits, late)),
        ),
    )


def _shortest_that_fits(context: Context, space: Space) -> int | None:
    """The row with the fewest operations of those that fit into memory."""
    shortest_first = np.argsort(space.num_operations(), kind="stable")[:MAX_ROWS]
    for first in range(0, len(shortest_first), PORTION):
        rows = shortest_first[first : first + PORTION]
        fits, _ = memory_needs(context, space.take(rows))
        if bool(fits.any()):
            return int(rows[int(np.argmax(fits))])
    return None


def _other_batches(request: PlanRequest, unit: int, num_stages: int) -> Iterator[Offer]:
    """Smaller batches, of multiples of `unit`, that pipelines of so many stages are short enough for; nearest first."""
    batch, most = request.workload.global_batch_sequences, MAX_OPERATIONS // (OPERATIONS_EACH * num_stages)
    parts = [unit << power for power in range(MOST_HALVED + 1)]
    found = {part * min(batch // part, most) for part in parts if part <= batch}
    for other in sorted(found, reverse=True):
        workload = request.workload.model_copy(update={"global_batch_sequences": other})
        yield f"set global_batch_sequences to {other}", request.model_copy(update={"workload": workload})


def memory_reasons(context: Context, space: Space, late: Late = lambda: False) -> tuple[Reason, ...]:
    """Empty when some configuration fits, or where the space is too large to say; else the one that needs least."""
    least = _least_need(context, space)
    return () if least is None else memory_reason(context, space, *least, late=late)


def _least_need(context: Context, space: Space) -> tuple[float, int] | None:
    """Bytes that the least row needs, and that row; None where one fits, or where the space is too large to say."""
    if len(space) > MAX_ROWS:
        return None
    least = (inf, 0)
    for rows in np.array_split(_least_memory_first(space), -(-len(space) // PORTION)):
        fits, need_bytes = memory_needs(context, space.take(rows))
        if bool(fits.any()):
            return None
        place = int(np.argmin(need_bytes))
        least = min(least, (float(need_bytes[place]), int(rows[place])))
    return least


def memory_reason(
    context: Context, space: Space, need_bytes: float, row: int, *, late: Late = lambda: False
) -> tuple[Reason, ...]:
    """Nothing fits; this row of the space needs least, so many bytes, against the largest memory.

    Unless the request leaves longer pipelines than can be timed, of which one fits.
    """
    most_operations = OPERATIONS_EACH * context.job.num_layers * context.request.workload.global_batch_sequences
    if most_operations > MAX_OPERATIONS and not late():
        too_long = _too_long(context, enumerate_space(context.request, most_operations=inf), late)
        if too_long:
            return too_long
    return _memory_too_small(context, space, need_bytes, row, late)


def _memory_too_small(context: Context, space: Space, need_bytes: float, row: int, late: Late) -> tuple[Reason, ...]:
    """What this row needs against the largest memory, and what would make it fit."""
    gpu = max((gpu_class.gpu for gpu_class in context.gpu_classes.values()), key=lambda one: one.memory_bytes)
    columns, limit_bytes = space.columns, context.memory_limit_bytes(gpu)
    where = "" if need_bytes > limit_bytes else " on the ends of the pipeline, and more between them"
    shape = f"tp {columns.tp[row]}, cp {columns.cp[row]}, ep {columns.ep[row]}, pp {columns.pp[row]}"
    request = context.request
    offers = chain(_allowing(request), _joined(request), _lower_headroom(request, gpu, need_bytes), _lifted(request))
    headroom = request.constraints.memory_headroom_fraction
    return (
        Reason(
            code="memory-too-small",
            pointer="/cluster/pools",
            detail=(
                f"the smallest state needs {need_bytes / GIB:.1f} GiB per GPU{where} ({shape}, "
                f"{SHARDING_CODES[columns.sharding[row]]}, recompute {RECOMPUTE_CODES[columns.recompute[row]]}), "
                f"{gpu.name} has {gpu.memory_bytes / GIB:.1f} GiB, {limit_bytes / GIB:.1f} after headroom"
                f"{_own_limit(request, _fits)}"
            ),
            remedies=(
                *_checked(request, offers, _fits, late),
                f"use GPUs with {need_bytes / (1.0 - headroom) / GIB + 0.05:.1f} GiB or more",
            ),
        ),
    )


def placement_reasons(context: Context, space: Space, late: Late = lambda: False) -> tuple[Reason, ...]:
    """Configurations fit into memory, but GPUs and links leave none of them a place within the constraints."""
    request = context.request
    return (
        Reason(
            code="no-placement",
            pointer="/constraints",
            detail=f"some of the {len(space):,} configurations fit into memory, but the {context.usable_gpus} GPUs, "
            "the links between them and the constraints leave none of these a place",
            remedies=_checked(request, chain(_joined(request), _anywhere(request), _lifted(request)), _has_place, late)
            or ("give up several of the constraints together",),
        ),
    )


def target_reasons(context: Context, fastest_s: float) -> tuple[Reason, ...]:
    """No configuration that is looked for can be as fast as the objective asks; which these are is said."""
    target_s = context.request.objective.target_iteration_s or 0.0
    return (
        Reason(
            code="target-out-of-reach",
            pointer="/objective/target_iteration_s",
            detail=f"the target is {target_s:.4g} s, no configuration that is looked for on the {context.usable_gpus} "
            f"GPUs takes less than {fastest_s:.4g} s. {SPACE_LIMITS.statement()}",
            remedies=(
                f"set target_iteration_s above {fastest_s:.4g}; the objective iteration_time finds what is reached",
            ),
        ),
    )


def duration_reasons(context: Context, least_s: float) -> tuple[Reason, ...]:
    """Empty unless every iteration is so long that some figure of the request can only be in a wrong unit."""
    if not LONGEST_S < least_s < inf:
        return ()
    return (
        Reason(
            code="too-slow",
            pointer="/cluster/pools",
            detail=f"an iteration takes at least {least_s:.4g} s, {least_s / DAY_S:.3g} days, on the "
            f"{context.usable_gpus} GPUs; plans take up to {LONGEST_S:,.0f} s",
            remedies=(
                "state rates in SI units: FLOP/s (989 TFLOP/s is 9.89e14), B/s (400 Gb/s is 5e10)",
                "state layer profiles in seconds of one micro-batch",
                "lower global_batch_sequences",
            ),
        ),
    )


def _least_memory_first(space: Space) -> IntArray:
    """Rows that split model and activations most first, then those with small micro-batches and recomputation."""
    columns = space.columns
    shards = np.where(columns.sharding >= FSDP, columns.dp, 1)
    split = columns.tp * columns.cp * columns.pp * columns.ep * shards
    return np.lexsort((-columns.recompute, columns.micro_batch, -split))


def _fits(request: PlanRequest) -> bool:
    """Whether some configuration fits into memory; only those that need least are looked at."""
    space = _tried(request)
    return bool(len(space) and memory_needs(Context.of(request), space)[0].any())


def _has_place(request: PlanRequest) -> bool:
    """Whether some configuration fits into memory and may be placed, of those that need least."""
    space = _tried(request)
    if not len(space):
        return False
    bounds = lower_bounds(Context.of(request), space)
    return bool((bounds.fits & np.isfinite(bounds.iteration_s)).any())


def _tried(request: PlanRequest) -> Space:
    """The configurations of a request that need least memory."""
    space = enumerate_space(request)
    return space.take(_least_memory_first(space)[:MOST_TRIED])


def _checked(request: PlanRequest, offers: Iterator[Offer], helps: Helps, late: Late) -> tuple[str, ...]:
    """The offers that help, of those that there is time to check, and the fewest GPUs more that do."""
    helpful = tuple(_helpful(offers, helps, late))
    return (*helpful, *(_higher_limit(request, helps, late) or islice(_helpful(_more_gpus(request), helps, late), 1)))


def _higher_limit(request: PlanRequest, helps: Helps, late: Late) -> tuple[str, ...]:
    """The least max_gpus that helps, where the cluster has more GPUs than it allows; near ones are tried first."""
    low, there = request.constraints.max_gpus, sum(pool.num_free_gpus for pool in usable_pools(request))
    if low is None or low >= there:
        return ()

    def does(most: int) -> bool:
        higher = within_framework(request.with_constraints(max_gpus=most))
        every = with_every_degree(higher) if most <= COUNTED_GPUS else None
        return not late() and (helps(higher) or (every is not None and helps(every)))

    step = 1
    while not does(high := min(low + step, there)):
        if high == there or late():
            return ()
        low, step = high, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle, high)
    return (f"set constraints.max_gpus to {high}",)


def _helpful(offers: Iterator[Offer], helps: Helps, late: Late) -> Iterator[str]:
    return (text for text, changed in offers if not late() and helps(within_framework(changed)))


def _with_allowed(request: PlanRequest, **changes: object) -> PlanRequest:
    return request.with_constraints(allowed=request.constraints.allowed.model_copy(update=changes))


def _allowing(request: PlanRequest) -> Iterator[Offer]:
    """One more value where a choice is restricted."""
    allowed = request.constraints.allowed
    for name, value in (("recompute", "full"), ("sharding", "fsdp"), ("micro_batch_sequences", 1)):
        values = getattr(allowed, name)
        if values is not None and value not in values:
            yield f"allow {name} {value}", _with_allowed(request, **{name: (*values, value)})


def _lifted(request: PlanRequest) -> Iterator[Offer]:
    """Each restriction lifted alone, then all of them."""
    allowed = request.constraints.allowed
    named = [name for name in AllowedDegrees.model_fields if getattr(allowed, name) is not None]
    for name in named:
        yield f"set constraints.allowed.{name} to null", _with_allowed(request, **{name: None})
    if request.constraints.framework is not None:
        yield "set constraints.framework to null", request.with_constraints(framework=None)
    if request.constraints.use_all_gpus:
        yield "set constraints.use_all_gpus to false", request.with_constraints(use_all_gpus=False)
    if len(named) > 1:
        free = _with_allowed(request, **dict.fromkeys(named))
        yield f"leave all of constraints.allowed open{_without_limit(request)}", free.with_constraints(max_gpus=None)


def _joined(request: PlanRequest) -> Iterator[Offer]:
    """Pools of one place that differ in names and sizes alone stated as one, which larger stage groups fit into."""
    if found := alike_pools(request):
        names = ", ".join(pool.id for pool in found[0][:MOST_NAMED])
        more = "" if len(found) == 1 and len(found[0]) <= MOST_NAMED else " and all others that are alike in one place"
        yield f"state the pools {names}{more} as one", with_one_of_each(request)


def _without_limit(request: PlanRequest) -> str:
    return "" if request.constraints.max_gpus is None else " and set constraints.max_gpus to null"


def _anywhere(request: PlanRequest) -> Iterator[Offer]:
    """Each constraint on places lifted alone."""
    stated = request.constraints
    for name, free, text in (
        ("pins", (), "give up constraints.pins"),
        ("forbidden_places", (), "give up constraints.forbidden_places"),
        ("max_cross_building_bytes_per_iteration", None, "set max_cross_building_bytes_per_iteration to null"),
        ("pipeline_may_cross_buildings", True, "set pipeline_may_cross_buildings to true"),
        ("data_parallel_may_cross_buildings", True, "set data_parallel_may_cross_buildings to true"),
    ):
        if getattr(stated, name) != free:
            yield text, request.with_constraints(**{name: free})


def _lower_headroom(request: PlanRequest, gpu: GpuType, need_bytes: float) -> Iterator[Offer]:
    """The largest headroom under which the least state fits, where the memory itself is large enough."""
    fraction = floor(1_000 * (1.0 - need_bytes / gpu.memory_bytes)) / 1_000
    if 0.0 <= fraction < request.constraints.memory_headroom_fraction:
        text = f"lower constraints.memory_headroom_fraction to {fraction:g}"
        yield text, request.with_constraints(memory_headroom_fraction=fraction)


def _more_gpus(request: PlanRequest) -> Iterator[Offer]:
    """The same pools with more hosts, at most as many as help."""
    for times in MORE_GPUS:
        pools = tuple(pool.model_copy(update={"num_hosts": times * pool.num_hosts}) for pool in request.cluster.pools)
        text = f"use {times} times as many GPUs{_without_limit(request)}"
        yield text, request.with_cluster(pools=pools).with_constraints(max_gpus=None)
