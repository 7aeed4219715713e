"""Contradictions that arithmetic alone can show, before any search.

Memory needs the cost model and is explained by `explain/infeasible.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from models.outcome import Reason
from models.request import PlanRequest
from solver.diagnostics.joins import LINKS_MISSING
from solver.diagnostics.pins import (
    MinimumDegrees,
    pinned_ranks_exist,
    pins_agree,
    pins_apart,
    pins_hold,
    pins_too_large,
    too_many_replicas,
)
from solver.diagnostics.rule import LONGEST_DETAIL, forbidden_with_gpus, gpus_by_building, listed
from solver.network.paths import islands
from solver.network.places import has_precision, usable_pools
from solver.network.topology import build_topology
from solver.pipeline.generators.registry import GENERATORS

Check = Callable[[PlanRequest], Iterator[Reason]]


def lint(request: PlanRequest) -> tuple[Reason, ...]:
    """Every contradiction found; empty when the request may have a plan."""
    reasons = [reason for check in CHECKS for reason in check(request)]
    return tuple(reasons)


def _gpus_exist(request: PlanRequest) -> Iterator[Reason]:
    if usable_pools(request):
        return
    free = request.cluster.num_free_gpus
    where = "forbidden places hold them all" if free else "all are reserved or unhealthy"
    others = forbidden_with_gpus(request, "")
    yield Reason(
        code="too-few-gpus",
        pointer="/constraints/forbidden_places" if free else "/cluster/pools",
        detail=f"no GPU is left to plan on: {free} are free in the cluster, {where}",
        remedies=(others,) if others else ("free reserved or unhealthy GPUs", "add GPUs"),
    )


def _precision_exists(request: PlanRequest) -> Iterator[Reason]:
    """Some pool that may be used has the precision of the job; those without it are left out then."""
    precision = request.workload.precision
    usable = {pool.id for pool in usable_pools(request)}
    for index, pool in enumerate(request.cluster.pools):
        if pool.id in usable and not has_precision(pool.gpu, precision):
            yield Reason(
                code="precision-unsupported",
                pointer=f"/cluster/pools/{index}/gpu",
                detail=f"precision {precision} is asked for, but {pool.gpu.name} states no {precision} peak",
                remedies=(
                    "set workload.precision to bf16",
                    f"give the GPU type its {precision}_flops_per_s",
                ),
            )


def _tensor_degrees_fit(request: PlanRequest) -> Iterator[Reason]:
    wanted, pools = request.constraints.allowed.tp, usable_pools(request)
    if wanted is None or not pools:
        return
    domains = sorted({pool.gpu.scale_up_domain_gpus for pool in pools})
    attention = request.workload.architecture.attention
    heads, keys = attention.num_heads, attention.num_kv_heads

    def divides(tp: int) -> bool:
        return any(domain % tp == 0 for domain in domains) and heads % tp == 0 and (keys % tp == 0 or tp % keys == 0)

    if any(divides(tp) for tp in wanted):
        return
    yield Reason(
        code="degrees-do-not-divide",
        pointer="/constraints/allowed/tp",
        detail=(
            f"no allowed tp of {listed(wanted)} divides the scale-up domain of {' or '.join(map(str, domains))} "
            f"GPUs, the {heads} heads and the {keys} key/value heads"
        ),
        remedies=(f"allow tp {', '.join(str(tp) for tp in range(1, domains[-1] + 1) if divides(tp))}",),
    )


def _replicas_divide_batch(request: PlanRequest) -> Iterator[Reason]:
    """Every replica runs the same number of whole micro-batches: no framework of the catalogue starts otherwise."""
    allowed, batch = request.constraints.allowed, request.workload.global_batch_sequences
    replicas, sizes = allowed.dp or (1,), allowed.micro_batch_sequences or (1,)
    if any(batch % (dp * size) == 0 for dp in replicas for size in sizes):
        return
    given = [
        f"{name} of {listed(values)}"
        for name, values in (("dp", allowed.dp), ("micro_batch_sequences", allowed.micro_batch_sequences))
        if values is not None
    ]
    least, name = min(replicas) * min(sizes), "dp" if allowed.dp is not None else "micro_batch_sequences"
    alone = allowed.dp is None or any(batch % size == 0 for size in sizes)
    yield Reason(
        code="batch-too-small" if least > batch else "degrees-do-not-divide",
        pointer=f"/constraints/allowed/{name}",
        detail=f"no allowed {' by '.join(given)} divides the global batch of {batch} sequences; Megatron-Core, "
        "DeepSpeed and torchtitan all stop where dp * micro-batch does not divide the batch",
        remedies=(
            f"allow {name} 1" if alone else "allow dp 1 and micro_batch_sequences 1",
            f"set global_batch_sequences to a multiple of {least}: {_nearest_multiple(batch, least)}",
        ),
    )


def _nearest_multiple(number: int, of: int) -> int:
    return max(round(number / of), 1) * of


def _degrees_exist(request: PlanRequest) -> Iterator[Reason]:
    """Some allowed ep divides the experts, some cp the sequence, and some pp leaves every rank a layer."""
    allowed, workload = request.constraints.allowed, request.workload
    model, length = workload.architecture, workload.sequence_length
    experts, layers = model.moe.num_experts if model.moe else 1, model.num_layers
    divisor = "allow a divisor of the number of experts"
    for name, wanted, fits, why, remedies in (
        ("ep", allowed.ep, lambda ep: experts % ep == 0, f"divides the {experts} experts", ("allow ep 1", divisor)),
        ("cp", allowed.cp, lambda cp: length % cp == 0, f"divides the sequence of {length} tokens", ("allow cp 1",)),
        ("pp", allowed.pp, lambda pp: pp <= layers, f"is within the {layers} layers of the model",
         (f"allow a pp of at most {layers}",)),
    ):  # fmt: skip
        if wanted is not None and not any(map(fits, wanted)):
            yield Reason(
                code="degrees-do-not-divide",
                pointer=f"/constraints/allowed/{name}",
                detail=f"no allowed {name} of {listed(wanted)} {why}",
                remedies=remedies,
            )


def _fixed_degrees_fit(request: PlanRequest) -> Iterator[Reason]:
    least = MinimumDegrees.of(request).num_gpus
    free = sum(pool.num_free_gpus for pool in usable_pools(request))
    limit = min(free, request.constraints.max_gpus or free)
    if not free or least <= limit:
        return
    yield Reason(
        code="too-few-gpus",
        pointer="/constraints/max_gpus" if limit < free else "/constraints/allowed",
        detail=f"the smallest allowed tp * cp * pp * dp is {least} GPUs{_because_of_pins(request)}, but {limit} may be "
        f"used ({free} are free)",
        remedies=(
            "allow smaller degrees",
            f"set max_gpus to {least} or more" if least <= free else f"add GPUs: at least {least} have to be free",
        ),
    )


def _because_of_pins(request: PlanRequest) -> str:
    return " with the ranks and replicas that are pinned" if request.constraints.pins else ""


def _joined_places_hold(request: PlanRequest) -> Iterator[Reason]:
    """A plan fits into one of the parts of the cluster that nothing joins."""
    island, joined = islands(build_topology(request.cluster)), dict[int, int]()
    for pool in usable_pools(request):
        joined[island[pool.place]] = joined.get(island[pool.place], 0) + pool.num_free_gpus
    least, largest = MinimumDegrees.of(request).num_gpus, max(joined.values(), default=0)
    if largest < least <= sum(joined.values()):
        yield Reason(
            code="too-few-gpus",
            pointer="/cluster/links",
            detail=f"the smallest allowed tp * cp * pp * dp is {least} GPUs{_because_of_pins(request)}; nothing joins "
            f"{len(joined)} parts of the cluster, and the largest has {largest} to use",
            remedies=("state links that join the parts", "allow smaller degrees"),
        )


def _buildings_hold(request: PlanRequest) -> Iterator[Reason]:
    """What may not cross buildings fits into one of them."""
    stated, size, held = request.constraints, MinimumDegrees.of(request), gpus_by_building(request)
    largest = max(held.values(), default=0)
    pipeline, replicas = stated.pipeline_may_cross_buildings, stated.data_parallel_may_cross_buildings
    for name, what, least in (
        ("pipeline_may_cross_buildings", "replica has tp * cp * pp", size.group_gpus * size.ranks),
        ("data_parallel_may_cross_buildings", "pipeline rank has tp * cp * dp", size.group_gpus * size.replicas),
    ):
        whole = least if pipeline or replicas else size.num_gpus
        told = what if pipeline or replicas else "plan has tp * cp * pp * dp"
        if getattr(stated, name) or not 0 < largest < whole:
            continue
        yield Reason(
            code="too-few-gpus",
            pointer=f"/constraints/{name}",
            detail=f"the smallest allowed {told} of {whole} GPUs{_because_of_pins(request)}, all in one building as "
            f"{name} is false; the largest building has {largest} to use",
            remedies=(f"set {name} to true", "allow smaller degrees", "use a larger building"),
        )
        return


def _cost_has_prices(request: PlanRequest) -> Iterator[Reason]:
    """Least cost is asked for, and no GPU that may be used states a price."""
    pools = usable_pools(request)
    if request.objective.kind != "cost_per_token" or not pools or any(one.gpu.usd_per_gpu_hour for one in pools):
        return
    yield Reason(
        code="no-price",
        pointer="/objective/kind",
        detail="the objective is cost_per_token, but no GPU that may be used states a usd_per_gpu_hour above 0",
        remedies=(
            "give the GPU types their usd_per_gpu_hour",
            "set the objective to fewest_gpus with a target_iteration_s, or to iteration_time",
        ),
    )


def _links_stated(request: PlanRequest) -> Iterator[Reason]:
    """Buildings that nothing stated joins would be planned as if the way between them was free."""
    for pointer, detail in LINKS_MISSING.find(request):
        yield Reason(code="links-missing", pointer=pointer, detail=detail[:LONGEST_DETAIL],
                     remedies=LINKS_MISSING.remedies)  # fmt: skip


def _schedules_known(request: PlanRequest) -> Iterator[Reason]:
    """Every schedule that the framework of the request names is one that can be made here."""
    framework = request.constraints.framework
    for index, name in enumerate((framework and framework.schedules) or ()):
        if name not in GENERATORS:
            yield Reason(
                code="nothing-allowed",
                pointer=f"/constraints/framework/schedules/{index}",
                detail=f"no schedule is called {name!r}; these are known: {', '.join(GENERATORS)}"[:LONGEST_DETAIL],
                remedies=("name one of these, or leave it out", "set schedules to null: any order"),
            )


CHECKS: tuple[Check, ...] = (
    _gpus_exist,
    _links_stated,
    _precision_exists,
    _tensor_degrees_fit,
    _replicas_divide_batch,
    _degrees_exist,
    _fixed_degrees_fit,
    _joined_places_hold,
    _buildings_hold,
    pins_hold,
    pinned_ranks_exist,
    pins_agree,
    pins_too_large,
    too_many_replicas,
    pins_apart,
    _cost_has_prices,
    _schedules_known,
)
