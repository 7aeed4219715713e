"""Rules on what a plan says in words, on where its time goes, and on the counts and the claim of its proof.

Assumptions, warnings, the idle parts of the breakdown, and what of the proof and of the rivals can be derived.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from models.diagnostic import FROM_TEXT
from models.statements import PROVEN, assumptions_of
from solver.cost.uncertainty import evidence_warnings
from solver.diagnostics.table import plan_diagnostics
from solver.verify.case import RELATIVE_TOLERANCE, Case, Finding, Rule, exceeds, unequal
from solver.verify.joint_columns import end_with_hops
from solver.verify.rules.totals import brings_rates, rank_work, usable_light_s

EXACT = 1e-9  # relative: float sums


def assumptions_stated(case: Case) -> Iterator[Finding]:
    """The rules of the model and every constant of the stack profile in use, with its evidence, in this order."""
    measured = bool(case.request.workload.layer_profiles)
    gpus = [pool.gpu.name for pools in case.pools_by_route.values() for pool in pools]
    wanted = assumptions_of(case.derived.stack, case.configuration.layer_split, gpus, measured=measured)
    stated = case.plan.assumptions
    for one in wanted:
        if one not in stated:
            yield Finding("assumptions", f"do not state: {one.what} ({one.origin}, {one.source})")
    for one in stated:
        if one not in wanted:
            yield Finding("assumptions", f"nothing rests on: {one.what} ({one.origin}, {one.source})")
    if set(stated) == set(wanted) and stated != wanted:
        yield Finding("assumptions", "are not in the order of the model, or stated twice")


def warnings_stated(case: Case) -> Iterator[Finding]:
    """Every remark on the request, its links in use and its idle pools, and no other; of old plans their texts."""
    wanted = plan_diagnostics(
        case.request,
        case.network.topology,
        used_links={load.link for load in case.plan.link_loads},
        used_pools={pool.id for *_, pool in case.groups},
    ) + evidence_warnings(case.derived.stack, case.prediction.evidence)
    stated = case.plan.warnings
    if stated and all(one.rule == FROM_TEXT for one in stated):
        wanted = tuple(one for one in wanted if one.rule == "switch-buffer")
        if tuple(one.detail for one in stated) == tuple(one.detail for one in wanted):
            return
    missing = [one for one in wanted if one not in stated]
    if stated != wanted:
        yield Finding("warnings", f"not stated: {missing[0].detail}" if missing else "do not follow from the request")


def breakdown_idle(case: Case) -> Iterator[Finding]:
    """Idle time of the busiest rank of the slowest route: what the same order without hops would not have is
    pipeline_s, the rest bubble_s; what runs after the pipeline is data_parallel_s.
    """
    time, ends = case.plan.time, {route: one.end_s for route, one in case.timeline_by_route.items()}
    end_s = max(ends.values())
    faults: list[str] = []
    for route in (route for route in ends if ends[route] >= end_s * (1.0 - EXACT)):
        works = [rank_work(case, route, rank) for rank in range(len(case.pools_by_route[route]))]
        most = max(sum(work) for work in works)
        idle = max(end_s - most, 0.0)
        waiting = min(max(end_s - end_with_hops(case.timeline_by_route[route], ()), 0.0), idle)
        after = max((max(0.0, one.end_s - end_s) for one in case.plan.exchanges), default=0.0)
        for work in (work for work in works if sum(work) >= most * (1.0 - EXACT)):
            derived = (*work[:4], idle - waiting, waiting, work[4] + after)
            stated = (
                time.compute_s,
                time.tensor_parallel_s,
                time.context_parallel_s,
                time.expert_parallel_s,
                time.bubble_s,
                time.pipeline_s,
                time.data_parallel_s,
            )
            if all(abs(one - other) <= EXACT * time.total_s for one, other in zip(stated, derived, strict=True)):
                return
            faults.append(", ".join(f"{value:.6g}" for value in derived))
    yield Finding("time", f"work, bubble, pipeline and data parallel of the busiest rank are {faults[0]} s")


def replay_stated(case: Case) -> Iterator[Finding]:
    """A plan says what it takes with shared links."""
    if case.plan.metrics.shared_replay_s is None:
        yield Finding("metrics", "shared_replay_s is not stated")


def proof_counts(case: Case) -> Iterator[Finding]:
    """No more is pruned or explored than exists, and the sentence is that of the objective."""
    proof = case.plan.proof
    if proof.num_pruned + proof.num_explored > proof.num_configurations:
        yield Finding(
            "proof",
            f"{proof.num_pruned} pruned and {proof.num_explored} explored of {proof.num_configurations} configurations",
        )
    if proof.proven != PROVEN[case.request.objective.kind]:
        yield Finding("proof", "does not say what the bound of this objective covers")


def proof_status(case: Case) -> Iterator[Finding]:
    """Optimal is said within the gap asked for, and only there."""
    proof, asked = case.plan.proof, case.request.options.relative_gap
    if proof.status == "feasible" and proof.relative_gap <= asked - EXACT:
        yield Finding("proof", f"feasible is said at a gap of {proof.relative_gap:.6g}, asked was {asked:.6g}")


def proof_light(case: Case) -> Iterator[Finding]:
    """The speed of light is that of all usable GPUs, and a bound on the iteration time is not below it."""
    stated, light = case.plan.proof.speed_of_light_s, usable_light_s(case)
    yield from unequal("proof", "speed_of_light_s", stated, light, "all usable GPUs together take")
    bound = case.plan.proof.lower_bound_s
    if case.request.objective.kind == "iteration_time" and not brings_rates(case) and exceeds(light, bound):
        yield Finding("proof", f"lower_bound_s {bound:.9g} is below the speed of light {light:.9g}")


def rivals_possible(case: Case) -> Iterator[Finding]:
    """No rival is faster than light or, where time counts, than the plan; a baseline has a time or a reason."""
    light, time = usable_light_s(case), case.plan.metrics.iteration_s
    by_time = case.request.objective.kind == "iteration_time"
    times = [(f"baseline {one.name}", one.iteration_s) for one in case.plan.baselines]
    times += [(f"alternative {index}", one.iteration_s) for index, one in enumerate(case.plan.alternatives)]
    for where, rival_s in times:
        if rival_s is not None and not brings_rates(case) and exceeds(light, rival_s):
            yield Finding(where, f"{rival_s:.9g} s is faster than light, {light:.9g} s")
        if rival_s is not None and by_time and exceeds(time, rival_s):
            yield Finding(where, f"{rival_s:.9g} s is faster than the plan, {time:.9g} s")
    for one in case.plan.baselines:
        if (one.iteration_s is None) != bool(one.reason):
            yield Finding(f"baseline {one.name}", "has a time or a reason why it has none, not both or neither")
    for index, other in enumerate(case.plan.alternatives):
        whole = other.configuration
        shared = ("degrees", "sharding", "recompute", "family", "layer_split")
        if whole is not None and any(getattr(other, name) != getattr(whole, name) for name in shared):
            yield Finding(f"alternative {index}", "is not the configuration that it states")
    names = [one.name for one in case.plan.baselines]
    if len(set(names)) < len(names):
        yield Finding("baselines", "name one twice")


def alternatives_differ(case: Case) -> Iterator[Finding]:
    """Alternatives come best first, and use no more GPUs than there are."""
    values = [one.slower_by for one in case.plan.alternatives]
    if any(exceeds(before, after) and before - after > RELATIVE_TOLERANCE for before, after in pairwise(values)):
        yield Finding("alternatives", "are not in order, best first")
    free = sum(pool.num_free_gpus for pool in case.request.cluster.pools)
    for index, one in enumerate(case.plan.alternatives):
        if one.degrees.num_gpus > free:
            yield Finding(f"alternative {index}", f"uses {one.degrees.num_gpus} GPUs, {free} are free")


def near_stated(case: Case) -> Iterator[Finding]:
    """Where nothing crosses buildings, one building takes as long as the plan."""
    near, time = case.plan.one_building_s, case.plan.metrics.iteration_s
    if near is not None and case.plan.placement.crossing == "none":
        yield from unequal("one_building_s", "stated", near, time, "nothing crosses, and the plan takes")


FAMILY: Mapping[str, Rule] = {
    "assumptions-stated": assumptions_stated,
    "warnings-stated": warnings_stated,
    "breakdown-idle": breakdown_idle,
    "replay-stated": replay_stated,
    "proof-counts": proof_counts,
    "proof-status": proof_status,
    "proof-light": proof_light,
    "rivals-possible": rivals_possible,
    "alternatives-differ": alternatives_differ,
    "near-stated": near_stated,
}
