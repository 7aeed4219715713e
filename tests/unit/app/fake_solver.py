"""A planner that finds one tiny plan, or fails in a chosen way: options.seed says which.

Lets the tests of the service run in milliseconds and reach every way a search can end.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil

from models.errors import InvalidRequest
from models.figures import MemoryUse, TimeBreakdown
from models.outcome import Infeasible, NotFound, Outcome, Planned, Progress, Reason, RequestCheck
from models.plan import (
    Configuration,
    Degrees,
    Metrics,
    Placement,
    Plan,
    Proof,
    RankRange,
    Route,
    RouteTimeline,
)
from models.questions import Question, Reply, WhyNotAnswer
from models.request import PlanRequest
from models.schedule import LinkTimeline, PipelineProblem, PipelineSchedule, RankTimeline, ScheduleProgress
from models.verdict import Verdict, Violation
from models.what_now import PreparedLoss, ReplanPoint, WhatIfLostAnswer, WhatNowAnswer
from models.worth import Curve, CurvePoint, CurvesAnswer
from solver.questions.searches import witness_of

if TYPE_CHECKING:
    from solver.search.warm_start import WarmStart

FINDS, INFEASIBLE, NOT_FOUND, UNTIL_STOPPED, IGNORES_STOP, MEMORY_BOMB, CRASHES, KILLED, REFUSES, NOTHING_YET = range(
    10
)
TAKES_ITS_TIME, HALF_MESSAGE, KILLS_WORKER, PROVES, STUCK = range(10, 15)

STATE = b"made up"
PROBLEM = PipelineProblem.model_validate(
    {
        "num_microbatches": 2,
        "ranks": [{}, {}],
        "stages": [{"forward_s": 1.0, "input_grad_s": 1.0, "weight_grad_s": 1.0, "activation_bytes": 8.0}] * 2,
        "hops": [{"from_stage": 0, "to_stage": 1, "transfer_s": 0.5, "link": "east-west"}],
    }
)
SCHEDULE = PipelineSchedule(
    ranks=(
        RankTimeline(
            operations=("0F0", "0F1", "0B0", "0W0", "0B1", "0W1"),
            start_s=(0.0, 1.0, 4.0, 5.0, 7.0, 8.0),
            end_s=(1.0, 2.0, 5.0, 6.0, 8.0, 9.0),
            peak_memory_bytes=16.0,
        ),
        RankTimeline(
            operations=("1F0", "1B0", "1F1", "1B1", "1W0", "1W1"),
            start_s=(1.5, 2.5, 3.5, 4.5, 5.5, 6.5),
            end_s=(2.5, 3.5, 4.5, 5.5, 6.5, 7.5),
            peak_memory_bytes=8.0,
        ),
    ),
    transfers=(
        LinkTimeline(link="east-west", direction="up", transfers=("0F0", "0F1"), start_s=(1.0, 2.0), end_s=(1.5, 2.5)),
    ),
    objective="makespan",
    objective_value_s=9.0,
    makespan_s=9.0,
    span_s=9.0,
    lower_bound_s=8.0,
    gap=1 / 9,
    status="feasible",
    generator="zb_h1",
    seconds=0.01,
    text="0F0,0F1,0B0,0W0,0B1,0W1\n1F0,1B0,1F1,1B1,1W0,1W1",
)


NO_TIME = dict.fromkeys(
    ("tensor_parallel_s", "context_parallel_s", "expert_parallel_s", "bubble_s", "pipeline_s", "data_parallel_s",
     "optimizer_s", "overhead_s"), 0.0,
)  # fmt: skip
CONFIGURATION = Configuration(
    degrees=Degrees(tp=1, pp=2, dp=1),
    micro_batch_sequences=1,
    num_microbatches=2,
    sharding="ddp",
    recompute="none",
    layers_per_stage=(1, 1),
)


def _placement(places: tuple[str, str]) -> Placement:
    pools = ("p1", "=p2")
    return Placement(
        routes=(Route(id="r0", places=places, pools=pools, num_replicas=1, first_replica=0),),
        rank_map=tuple(
            RankRange(first_rank=rank, num_ranks=1, pipeline_rank=rank, route="r0", pool=pool, first_gpu=0)
            for rank, pool in enumerate(pools)
        ),
        crossing="pp_out",
    )


def _memory(rank: int) -> MemoryUse:
    causes = ("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes")
    rest = {"buffers_bytes": 0.0, "framework_bytes": 0.0, "limit_bytes": 7e10}
    return MemoryUse.model_validate({"pipeline_rank": rank, "route": "r0", **dict.fromkeys(causes, 1e9), **rest})


def tiny_plan(iteration_s: float, places: tuple[str, str] = ("east", "west")) -> Plan:
    """A plan of two GPUs in the form of a real one; its figures mean nothing."""
    return Plan(
        configuration=CONFIGURATION,
        placement=_placement(places),
        timelines=(RouteTimeline(route="r0", problem=PROBLEM, schedule=SCHEDULE),),
        transport=(),
        link_loads=(),
        memory=(_memory(0), _memory(1)),
        time=TimeBreakdown.model_validate({"compute_s": iteration_s, "total_s": iteration_s, **NO_TIME}),
        metrics=Metrics(
            iteration_s=iteration_s,
            tokens_per_s=1.0,
            tokens_per_s_per_gpu=0.5,
            model_flops_utilisation=0.1,
            num_gpus=2,
            cross_building_bytes=1.0,
        ),
        proof=Proof(
            lower_bound_s=1.0,
            relative_gap=1 - 1 / iteration_s,
            status="feasible",
            speed_of_light_s=0.5,
            num_configurations=3,
            num_pruned=1,
            num_explored=2,
            proven="nothing: this plan is made up",
        ),
        verdict=Verdict(accepted=True, rules_checked=("made-up",)),
        stack_profile="none",
    )


def plan(
    request: PlanRequest,
    *,
    progress: Callable[[Progress], None],
    incumbent: Callable[[Planned], None],
    cancelled: Callable[[], bool],
    clock: Callable[[], float],
    keep: Callable[[bytes], None],
    begin_with: WarmStart | None = None,
    **_others: object,
) -> Outcome:
    """The outcome that options.seed chooses; it keeps a state that cannot be read."""
    started = clock()
    case = request.options.seed
    who = f"process {os.getpid()}{_told(begin_with)}"  # a test which kills processes knows whose search it was
    keep(STATE)
    progress(Progress(phase="lint", elapsed_s=0.0, message=who))
    if case == INFEASIBLE:
        return Infeasible(reasons=(Reason(code="too-few-gpus", detail="needs 2, has 1"),), elapsed_s=0.0)
    if case == NOT_FOUND:
        return NotFound(lower_bound_s=1.0, detail="0 of 3 tried", elapsed_s=0.0)
    if case == REFUSES:
        raise InvalidRequest("no such thing", pointer="/workload", remedy="ask for another")
    if case not in (NOTHING_YET, STUCK):
        for iteration_s in (3.0, 2.0):
            incumbent(Planned(plan=tiny_plan(iteration_s), complete=case == PROVES, elapsed_s=clock() - started))
    progress(
        Progress(
            phase="search",
            elapsed_s=clock() - started,
            incumbent_s=2.0,
            lower_bound_s=1.0,
            relative_gap=0.5,
            message=who,
        )
    )
    if case == HALF_MESSAGE:
        _die_in_the_middle_of(incumbent)
    while case == TAKES_ITS_TIME and clock() - started < request.options.time_limit_s and not cancelled():
        time.sleep(0.02)
    _fail(case, cancelled)
    if case == NOTHING_YET:
        return NotFound(lower_bound_s=1.0, detail="stopped", elapsed_s=0.0)
    complete = not cancelled()
    return Planned(plan=tiny_plan(2.0), complete=complete, elapsed_s=clock() - started)


def _told(begin_with: WarmStart | None) -> str:
    """What the search begins with."""
    if begin_with is None:
        return ""
    plan = begin_with.plan
    return f", begins with {'no plan' if plan is None else plan.metrics.iteration_s}; {begin_with.why_anew}"


def _die_in_the_middle_of(incumbent: Callable[[Planned], None]) -> None:
    """Send the beginning of a message by the pipe that news goes through, and die."""
    held = (cell.cell_contents for cell in incumbent.__closure__ or ())
    channel = next(one for one in held if not isinstance(one, str))
    announced_bytes = struct.pack("!i", 1000)
    os.write(channel._pipe.fileno(), announced_bytes + b"incumbent\n{")  # noqa: SLF001
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(case: int, cancelled: Callable[[], bool]) -> None:
    if case == MEMORY_BOMB:
        hoard = [bytearray(64 * 1024 * 1024) for _ in range(1_000)]
        raise AssertionError(f"{len(hoard)} blocks fitted")
    if case == CRASHES:
        raise RuntimeError("made to crash")
    if case == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if case == KILLS_WORKER:
        # The parent of a child is the fork server; the worker is above it, or the first process if it is gone already.
        worker = psutil.Process(os.getppid()).ppid()
        if worker > 1:
            os.kill(worker, signal.SIGKILL)
    while case in (IGNORES_STOP, PROVES, STUCK) or (
        case in (UNTIL_STOPPED, NOTHING_YET, KILLS_WORKER) and not cancelled()
    ):
        time.sleep(0.01)


def check(request: PlanRequest) -> RequestCheck:
    """One reason for the infeasible case, none otherwise."""
    if request.options.seed == INFEASIBLE:
        return RequestCheck(reasons=(Reason(code="too-few-gpus", detail="needs 2, has 1"),))
    return RequestCheck()


def judge(_request: PlanRequest, plan: Plan) -> Verdict:
    """Objects to plans slower than 2.5 s."""
    slow = plan.metrics.iteration_s > 2.5
    violations = (Violation(rule="too-slow", where="plan", detail="slower than 2.5 s"),) if slow else ()
    return Verdict(accepted=not slow, rules_checked=("too-slow",), violations=violations)


def warm_up(**_part: int) -> None:
    """Nothing here is compiled."""


def warm_up_for_long(**_part: int) -> None:
    """There is much to compile."""
    time.sleep(60.0)


def warm_up_but_for_one(part: int, **_of: int) -> None:
    """All parts but the first are compiled."""
    if part == 0:
        raise RuntimeError("the first part does not compile")


def schedule(
    problem: PipelineProblem,
    *,
    progress: Callable[[ScheduleProgress], None],
    incumbent: Callable[[PipelineSchedule], None],
    cancelled: Callable[[], bool],
    clock: Callable[[], float],
) -> PipelineSchedule:
    """The one schedule there is; seed 3 takes as long as it may, seed 4 longer."""
    started = clock()
    incumbent(SCHEDULE)
    progress(ScheduleProgress(phase="x", objective_value_s=9.0, lower_bound_s=8.0, generator="zb_h1", seconds=0.0))
    while (
        problem.options.seed == UNTIL_STOPPED and not cancelled() and clock() - started < problem.options.time_limit_s
    ):
        time.sleep(0.01)
    while problem.options.seed == IGNORES_STOP:
        time.sleep(0.01)
    return SCHEDULE


def lint(request: PlanRequest) -> tuple[Reason, ...]:
    """Objects when only one GPU is allowed."""
    if request.constraints.max_gpus == 1:
        detail, pointer = "needs 2 GPUs, 1 is allowed", "/constraints/max_gpus"
        return (Reason(code="too-few-gpus", pointer=pointer, detail=detail, remedies=("allow 2",)),)
    return ()


def _ways_on(plan: Plan) -> WhatNowAnswer:
    """The plan as it is, of which one group moves."""
    point = ReplanPoint(num_groups=2, num_moved=1, least_moved=1, num_untouched_replicas=0, iteration_s=2.0,
                        lower_bound_s=1.0, state_bytes=1e9, checkpoint_bytes=0.0, transfer_s=0.1, fetches=(),
                        plan=witness_of(plan))  # fmt: skip
    return WhatNowAnswer(outcome="planned", stack_profile="s", before_s=2.0, num_groups_before=2, num_groups_lost=1,
                         time_tolerance=0.15, points=(point,), chosen=0, lower_bound_s=1.0, complete=True,
                         elapsed_s=0.0, plan=plan)  # fmt: skip


def ask(
    question: Question, *, found: Callable[[Reply], None], cancelled: Callable[[], bool], clock: Callable[[], float]
) -> Reply:
    """Says that nothing is known, then that everything is; how it ends is up to the seed of the request."""
    case, began = question.asked.options.seed, clock()
    nothing = WhyNotAnswer(outcome="infeasible", wishes=(), conflicts=(), relaxations=(), undecided=(), complete=False,
                           num_searches=0, elapsed_s=0.0)  # fmt: skip
    if question.plan is not None and question.ask == "what_now":
        return _ways_on(question.plan)
    if question.plan is not None and question.ask == "what_if_lost":
        loss = PreparedLoss(kind="building", name="west", answer=_ways_on(question.plan))
        return WhatIfLostAnswer(stack_profile="s", before_s=2.0, losses=(loss,), complete=True, elapsed_s=0.0)
    if question.ask == "curves":
        point = CurvePoint(factor=1.0, status="planned", value=2.0, lower_bound=1.0, relative_gap=0.5, plan=None)
        return CurvesAnswer(outcome="planned", unit="s/iteration", stack_profile="none", complete=True, elapsed_s=0.0,
                            curves=(Curve(over="memory", monotone=True, points=(point,)),))  # fmt: skip
    if question.plan is not None:
        return nothing.model_copy(update={"outcome": "planned", "complete": True, "plan": witness_of(question.plan)})
    if case != NOTHING_YET:
        found(nothing)
    if case == CRASHES:
        raise RuntimeError("as wished")
    while case in (UNTIL_STOPPED, NOTHING_YET) and not cancelled() and clock() - began < 60.0:
        time.sleep(0.01)
    return nothing.model_copy(update={"complete": case == FINDS, "num_searches": 1})
