"""Rules on the headline: iteration time and its parts, throughput, utilisation, cost, bound and gap.

The times they start from are judged by the rules on timelines.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping

from models.cluster import Pool
from models.stack import StackProfile
from solver.cost.compute import fastest_flops_per_s
from solver.cost.flops import model_flops_per_iteration
from solver.cost.optimizer import step_overhead_s
from solver.network.places import usable_gpus, usable_pools
from solver.verify.case import RELATIVE_TOLERANCE, Case, Finding, Rule, differs, exceeds, unequal

SECONDS_PER_HOUR = 3600.0  # the unit


def breakdown_sum(case: Case) -> Iterator[Finding]:
    """The parts of the iteration time add up to the total, and the total is the headline figure."""
    time = case.plan.time
    parts = [value for name, value in time if name != "total_s"]
    yield from unequal("time", "total_s", time.total_s, sum(parts), "the parts add up to")
    yield from unequal("time", "total_s", time.total_s, case.plan.metrics.iteration_s, "metrics.iteration_s")


def breakdown_work(case: Case) -> Iterator[Finding]:
    """Compute and in-layer communication are those of one pipeline rank of one route, all micro-batches together."""
    time = case.plan.time
    stated = (time.compute_s, time.tensor_parallel_s, time.context_parallel_s, time.expert_parallel_s)
    works = [
        rank_work(case, route, pipeline_rank)[:4]
        for route, pools in case.pools_by_route.items()
        for pipeline_rank in range(len(pools))
    ]
    if works and not any(_close(stated, work) for work in works):
        nearest = min(works, key=lambda work: sum(abs(a - b) for a, b in zip(stated, work, strict=True)))
        yield Finding(
            "time",
            "compute, tensor, context and expert parallel are "
            + ", ".join(f"{value:.6g}" for value in stated)
            + " s; no rank has these, the nearest has "
            + ", ".join(f"{value:.6g}" for value in nearest),
        )


def optimizer_time(case: Case) -> Iterator[Finding]:
    """Optimizer and overhead of a step are those of the slowest GPU."""
    slowest = max(
        (
            case.derived.optimizer_s(pool, rank)
            for pools in case.pools_by_route.values()
            for rank, pool in enumerate(pools)
        ),
        default=0.0,
    )
    overhead = float(step_overhead_s(case.derived.columns, case.derived.stack)[0])
    yield from unequal("time", "overhead_s", case.plan.time.overhead_s, overhead, "the profile gives")
    yield from unequal("time", "optimizer_s and overhead_s", case.plan.time.step_end_s, slowest, "the slowest")


def iteration_time(case: Case) -> Iterator[Finding]:
    """From zero to the end of the last operation and the last gradient exchange of any route, then the optimizer."""
    ends = [one.end_s for one in case.plan.timelines]
    ends += [exchange.end_s for exchange in case.plan.exchanges]
    derived = max(ends, default=0.0) + case.plan.time.step_end_s
    stated = case.plan.metrics.iteration_s
    yield from unequal("metrics", "iteration_s", stated, derived, "schedules and exchanges give")


def gpu_count(case: Case) -> Iterator[Finding]:
    """num_gpus is tp * cp * pp * dp."""
    stated, used = case.plan.metrics.num_gpus, case.configuration.degrees.num_gpus
    if stated != used:
        yield Finding("metrics", f"num_gpus {stated}, the degrees multiply to {used}")


def throughput(case: Case) -> Iterator[Finding]:
    """Tokens per second are the tokens of the batch over the iteration time, in all and per GPU."""
    metrics = case.plan.metrics
    rate = case.request.workload.tokens_per_iteration / metrics.iteration_s
    per_gpu = rate / case.configuration.degrees.num_gpus
    for name, derived in (("tokens_per_s", rate), ("tokens_per_s_per_gpu", per_gpu)):
        yield from unequal("metrics", name, getattr(metrics, name), derived, "tokens over time give")


def utilisation(case: Case) -> Iterator[Finding]:
    """MFU is the model's FLOPs over iteration time and the peak of the GPUs used, in the workload's precision."""
    stated = case.plan.metrics.model_flops_utilisation
    derived = _at_s(case, case.derived.peak_flops_per_s) / case.plan.metrics.iteration_s
    yield from unequal("metrics", "model_flops_utilisation", stated, derived, "FLOPs over peak and time give")


def cost(case: Case) -> Iterator[Finding]:
    """GPU-hours of the GPUs used and egress of every priced link, per million tokens; null when a price is unknown."""
    stated, derived = case.plan.metrics.usd_per_million_tokens, _usd_per_million_tokens(case)
    if derived is None or stated is None:
        if stated != derived:
            yield Finding("metrics", f"usd_per_million_tokens {stated}, the prices give {derived}")
    else:
        yield from unequal("metrics", "usd_per_million_tokens", stated, derived, "the prices give")


def speed_of_light(case: Case) -> Iterator[Finding]:
    """FLOPs over peak: no plan beats it on its GPUs."""
    used = _light_s(case)
    if exceeds(binding_light_s(case, used), case.plan.metrics.iteration_s):
        yield Finding("proof", f"iteration {case.plan.metrics.iteration_s:.9g} s is faster than light, {used:.9g} s")


def bound_below_time(case: Case) -> Iterator[Finding]:
    """The proven bound is not above the time of the plan itself."""
    bound, time = case.plan.proof.lower_bound_s, case.plan.metrics.iteration_s
    if exceeds(bound, time):
        yield Finding("proof", f"lower_bound_s {bound:.9g} is above the iteration time {time:.9g}")


def gap_arithmetic(case: Case) -> Iterator[Finding]:
    """The gap is (time - bound) / time, never below zero."""
    proof, time = case.plan.proof, case.plan.metrics.iteration_s
    derived = max(0.0, (time - proof.lower_bound_s) / time)
    if abs(proof.relative_gap - derived) > 1e-6:
        yield Finding("proof", f"relative_gap {proof.relative_gap:.9g}, time and bound give {derived:.9g}")


def optimal_within_gap(case: Case) -> Iterator[Finding]:
    """Optimal is claimed only within the gap that the request asks for."""
    proof, asked = case.plan.proof, case.request.options.relative_gap
    if proof.status == "optimal" and proof.relative_gap > asked + 1e-9:
        yield Finding("proof", f"optimal is claimed at a gap of {proof.relative_gap:.6g}, asked was {asked:.6g}")


def target_met(case: Case) -> Iterator[Finding]:
    """A plan for the fewest GPUs or bytes, or for the least cost in a time, reaches the iteration time asked for."""
    objective, time = case.request.objective, case.plan.metrics.iteration_s
    target = objective.target_iteration_s
    if objective.kind != "iteration_time" and target is not None and exceeds(time, target):
        yield Finding("metrics", f"iteration_s {time:.9g}, target_iteration_s is {target:.9g}")


def baseline_arithmetic(case: Case) -> Iterator[Finding]:
    """The speed-up over a baseline is its time over ours, and there is none without a time."""
    for baseline in case.plan.baselines:
        time = baseline.iteration_s
        derived = None if time is None else time / case.plan.metrics.iteration_s
        stated = baseline.speed_up
        if (stated is None) != (derived is None) or (stated and derived and differs(stated, derived)):
            yield Finding(f"baseline {baseline.name}", f"speed_up {stated}, the times give {derived}")


def alternatives_second(case: Case) -> Iterator[Finding]:
    """No alternative is better than the plan; its ratio is that of the times, or of the GPUs where those count."""
    kind, ours = case.request.objective.kind, case.plan.metrics
    for index, one in enumerate(case.plan.alternatives):
        ratios = {
            "iteration_time": one.iteration_s / ours.iteration_s,
            "fewest_gpus": one.degrees.num_gpus / ours.num_gpus,
        }
        if kind in ratios and abs(one.slower_by - (ratios[kind] - 1.0)) > RELATIVE_TOLERANCE:
            yield Finding(f"alternative {index}", f"slower_by {one.slower_by:.9g}, it is {ratios[kind] - 1.0:.9g}")
        if one.slower_by < -RELATIVE_TOLERANCE:
            yield Finding(f"alternative {index}", f"slower_by {one.slower_by:.9g}: it is better than the plan")
        if (
            kind == "fewest_gpus"
            and one.degrees.num_gpus == ours.num_gpus
            and exceeds(ours.iteration_s, one.iteration_s)
        ):
            yield Finding(f"alternative {index}", f"iteration_s {one.iteration_s:.9g} on as many GPUs: it is faster")


def convergence_ends(case: Case) -> Iterator[Finding]:
    """The history goes forward in time, no bound is above its incumbent, and it ends with this plan."""
    points, time = case.plan.convergence, case.plan.metrics.iteration_s
    for before, after in itertools.pairwise(points):
        if after.elapsed_s < before.elapsed_s:
            yield Finding("convergence", f"{after.elapsed_s:.6g} s comes after {before.elapsed_s:.6g} s")
    for one in points:
        if (
            one.incumbent_s is not None
            and one.lower_bound_s is not None
            and exceeds(one.lower_bound_s, one.incumbent_s)
        ):
            yield Finding("convergence", f"bound {one.lower_bound_s:.9g} above incumbent {one.incumbent_s:.9g}")
    if points and (points[-1].incumbent_s is None or differs(points[-1].incumbent_s, time)):
        yield Finding("convergence", f"ends with {points[-1].incumbent_s} s, the plan takes {time:.9g}")


def one_building(case: Case) -> Iterator[Finding]:
    """Without distance the same configuration is no slower than the plan and no faster than light."""
    near = case.plan.one_building_s
    if near is not None and (
        exceeds(near, case.plan.metrics.iteration_s) or exceeds(binding_light_s(case, _light_s(case)), near)
    ):
        yield Finding(
            "one_building_s",
            f"{near:.9g} is not between {_light_s(case):.9g} (speed of light) and {case.plan.metrics.iteration_s:.9g}",
        )


def rank_work(case: Case, route: str, pipeline_rank: int) -> tuple[float, float, float, float, float]:
    """Compute, tensor, context and expert parallel and gathering seconds of a rank over the iteration."""
    pool = case.pools_by_route[route][pipeline_rank]
    costs = [case.derived.stage(pool, stage) for stage in case.derived.stages_of(pipeline_rank)]
    tensor = sum(float(one.tensor_parallel_s[0]) for one in costs)
    context = sum(float(one.context_parallel_s[0]) for one in costs)
    expert = sum(float(one.expert_parallel_s[0]) for one in costs)
    gathered = sum(float(one.data_parallel_s[0]) for one in costs)
    compute = sum(float(one.total_s[0]) for one in costs) - tensor - context - expert - gathered
    m = case.configuration.num_microbatches
    return m * compute, m * tensor, m * context, m * expert, m * gathered


def _close(stated: tuple[float, ...], derived: tuple[float, ...]) -> bool:
    """Equal up to rounding of the whole, since the parts come from differences."""
    slack = 1e-6 * sum(derived)
    return all(abs(one - other) <= slack for one, other in zip(stated, derived, strict=True))


def _light_s(case: Case) -> float:
    """The model's FLOPs at the peak of all GPUs that the plan uses, each at its fastest unit."""
    return _at_s(case, lambda pool: _fastest_flops_per_s(case, pool))


def _at_s(case: Case, flops_per_s: Callable[[Pool], float]) -> float:
    """The model's FLOPs at a rate of all GPUs that the plan uses."""
    rate = sum(group.route.num_replicas * case.gpus_per_group * flops_per_s(group.pool) for group in case.groups)
    return model_flops_per_iteration(case.request.workload) / rate


def _fastest_flops_per_s(case: Case, pool: Pool) -> float:
    """Datasheet peak of the fastest matrix unit of one GPU that a step of the workload uses."""
    return fastest_flops_per_s(pool.gpu, case.request.workload.precision)


def binding_light_s(case: Case, light_s: float) -> float:
    """The speed of light where peaks bind; at most the mean work of a GPU where the request brings rates of its own.

    Measured layers, or constants of a profile, may beat a peak that is stated too low; the plan says so in its notes.
    """
    return min(light_s, _mean_work_s(case)) if brings_rates(case) else light_s


def brings_rates(case: Case) -> bool:
    """Whether the request measures layers or states constants: other configurations may then beat any peak."""
    return bool(case.request.workload.layer_profiles) or isinstance(case.request.options.stack_profile, StackProfile)


def _mean_work_s(case: Case) -> float:
    """Seconds of work of a stage group, on average over all of them."""
    work_s, groups = 0.0, 0
    for route, pools in case.pools_by_route.items():
        replicas = case.route_by_id[route].num_replicas
        work_s += replicas * sum(sum(rank_work(case, route, rank)) for rank in range(len(pools)))
        groups += replicas * len(pools)
    return work_s / max(groups, 1)


def usable_light_s(case: Case) -> float:
    """The model's FLOPs at the peak of the fastest GPUs that a plan could use, as many as it may."""
    left, total = usable_gpus(case.request), 0.0
    peaks = [(_fastest_flops_per_s(case, pool), pool.num_free_gpus) for pool in usable_pools(case.request)]
    for peak, free in sorted(peaks, reverse=True):
        total += min(left, free) * peak
        left -= min(left, free)
    return model_flops_per_iteration(case.request.workload) / total


def _usd_per_million_tokens(case: Case) -> float | None:
    metrics, hourly = case.plan.metrics, 0.0
    for group in case.groups:
        if group.pool.gpu.usd_per_gpu_hour is None:
            return None
        hourly += group.route.num_replicas * case.gpus_per_group * group.pool.gpu.usd_per_gpu_hour
    prices = {link.id: link.usd_per_gb or 0.0 for link in case.request.cluster.links}
    egress = sum(
        prices.get(load.link, 0.0) * flow.bytes_per_iteration / 1e9
        for load in case.plan.link_loads
        for flow in load.flows
    )
    usd = hourly * metrics.iteration_s / SECONDS_PER_HOUR + egress
    return usd / case.request.workload.tokens_per_iteration * 1e6


FAMILY: Mapping[str, Rule] = {
    "breakdown-sum": breakdown_sum,
    "breakdown-work": breakdown_work,
    "optimizer-time": optimizer_time,
    "iteration-time": iteration_time,
    "gpu-count": gpu_count,
    "throughput": throughput,
    "utilisation": utilisation,
    "cost": cost,
    "speed-of-light": speed_of_light,
    "bound-below-time": bound_below_time,
    "gap-arithmetic": gap_arithmetic,
    "optimal-within-gap": optimal_within_gap,
    "target-met": target_met,
    "baseline-arithmetic": baseline_arithmetic,
    "alternatives-second": alternatives_second,
    "convergence-ends": convergence_ends,
    "one-building": one_building,
}
