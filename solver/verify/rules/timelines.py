"""Rules on the timed problem of every route: it is this configuration, on these GPUs, at what the cost model says.

How it was scheduled is `schedule.py`, what travels between stages is `hops.py`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from models.catalogue import entry_names
from models.schedule import PipelineStage
from models.stack import StackProfile
from solver.cost.stage import StageCost
from solver.verify.case import Case, Finding, Rule, differs, exceeds, unequal

TIMES = ("forward_s", "input_grad_s", "weight_grad_s")
GATHERED = ("fsdp", "hsdp")


def stack_profile(case: Case) -> Iterator[Finding]:
    """The cost model's profile is the one that the request brings, or a packaged one: the one asked for if not auto."""
    used, asked = case.plan.stack_profile, case.request.options.stack_profile
    if isinstance(asked, StackProfile):
        if used != asked.name:
            yield Finding("stack_profile", f"{used!r} is used, the request brings {asked.name!r}")
        return
    if used not in entry_names("stacks"):
        yield Finding("stack_profile", f"{used!r} is not packaged: {', '.join(entry_names('stacks'))}")
    if asked not in ("auto", used):
        yield Finding("stack_profile", f"{used!r} is used, {asked!r} was asked for")


def timeline_per_route(case: Case) -> Iterator[Finding]:
    """Every route has one timeline, and every timeline a route."""
    timed = Counter(timeline.route for timeline in case.plan.timelines)
    for route in case.route_by_id:
        if timed[route] != 1:
            yield Finding(f"route {route}", f"has {timed[route]} timelines")
    for route in sorted(timed.keys() - case.route_by_id.keys()):
        yield Finding(f"timeline {route}", "belongs to no route")


def problem_shape(case: Case) -> Iterator[Finding]:
    """What was scheduled has the micro-batches, ranks and stages of the configuration, each stage on its rank."""
    used = case.configuration
    wanted = {
        "num_microbatches": used.num_microbatches,
        "ranks": used.degrees.pp,
        "stages": used.degrees.num_stages,
        "ranks of the stages": used.rank_of_stages,
    }
    for timeline in case.plan.timelines:
        problem = timeline.problem
        stated = (problem.num_microbatches, len(problem.ranks), len(problem.stages), problem.placement)
        for (name, expected), value in zip(wanted.items(), stated, strict=True):
            if value != expected:
                yield Finding(f"route {timeline.route}", f"{name}: {value}, the configuration has {expected}")


def stage_times(case: Case) -> Iterator[Finding]:
    """F, B and W take what the cost model says for these layers on these GPUs.

    Where every layer is gathered over the replicas (fsdp, hsdp) a wider tier may make them longer, never shorter.
    """
    may_be_longer = case.configuration.sharding in GATHERED
    for where, stated, cost in _stages(case):
        for name in TIMES:
            value, derived = getattr(stated, name), float(getattr(cost, name)[0])
            if exceeds(derived, value) or (differs(value, derived) and not may_be_longer):
                yield Finding(where, f"{name} {value:.9g}, the cost model says {derived:.9g}")


def stage_bytes(case: Case) -> Iterator[Finding]:
    """Activations and weight-gradient contexts are those of the cost model, whether or not backwards are fused."""
    for where, stated, cost in _stages(case):
        for name in ("activation_bytes", "weight_grad_context_bytes"):
            value, derived = getattr(stated, name), float(getattr(cost, name)[0])
            yield from unequal(where, name, value, derived, "the cost model says")


def memory_limit(case: Case) -> Iterator[Finding]:
    """Model state, buffers and the activations held at any instant of the schedule fit into the HBM asked for."""
    for (route, pipeline_rank), need in case.memory_needs.items():
        if exceeds(need.total_bytes, need.limit_bytes):
            yield Finding(
                f"route {route}, pipeline rank {pipeline_rank}",
                f"{need.total_bytes - need.activations_bytes:.6g} B of state and buffers +"
                f" {need.activations_bytes:.6g} B of activations"
                f" > {need.limit_bytes:.6g} B",
            )


def memory_report(case: Case) -> Iterator[Finding]:
    """The memory table has one true entry per pipeline rank, of the route that is closest to its limit."""
    counted = Counter(use.pipeline_rank for use in case.plan.memory)
    for pipeline_rank in sorted(set(range(case.configuration.degrees.pp)) | counted.keys()):
        if counted[pipeline_rank] != 1 or pipeline_rank >= case.configuration.degrees.pp:
            yield Finding(f"memory of rank {pipeline_rank}", f"{counted[pipeline_rank]} entries")
    for use in case.plan.memory:
        need = case.memory_needs.get((use.route, use.pipeline_rank))
        if need is None:
            yield Finding(f"memory of rank {use.pipeline_rank}", f"route {use.route!r} has no timed rank of this index")
            continue
        fullest = max(
            one.total_bytes - one.limit_bytes for key, one in case.memory_needs.items() if key[1] == use.pipeline_rank
        )
        if exceeds(fullest + need.limit_bytes, need.total_bytes):
            yield Finding(f"memory of rank {use.pipeline_rank}", f"route {use.route} is not the fullest")
        for name, derived in need.model_dump(exclude={"pipeline_rank", "route"}).items():
            yield from unequal(f"memory of rank {use.pipeline_rank}", name, getattr(use, name), derived, "derived")


def _stages(case: Case) -> Iterator[tuple[str, PipelineStage, StageCost]]:
    """Every timed stage with its cost on the GPUs of its pool."""
    for route, pools in case.pools_by_route.items():
        timeline = case.timeline_by_route.get(route)
        timed = () if timeline is None else timeline.problem.stages[: case.configuration.degrees.num_stages]
        for stage, stated in enumerate(timed):
            pool = pools[case.configuration.rank_of_stage(stage)]
            yield f"route {route}, stage {stage}", stated, case.derived.stage(pool, stage)


FAMILY: Mapping[str, Rule] = {
    "stack-profile": stack_profile,
    "timeline-per-route": timeline_per_route,
    "problem-shape": problem_shape,
    "stage-times": stage_times,
    "stage-bytes": stage_bytes,
    "memory-limit": memory_limit,
    "memory-report": memory_report,
}
