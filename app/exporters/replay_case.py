"""What every process of an executed iteration needs to know: orders, times, messages, as one document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import Field

from app.exporters.torch_schedule_csv import compute_and_comms, compute_only
from app.faults import Refused, refused
from models.base import Count, Frozen, PositiveCount, Seconds
from models.plan import Plan, StageExchange
from models.request import PlanRequest
from models.schedule import Operation, PipelineHop, PipelineProblem, PipelineSchedule

CASE_FILE = "iteration.json"
TORCH_VERSION = "2.13.0"
MAX_RANKS = 32
DEFAULT_OPERATION_S = 0.03
EXCHANGE = "SYNC"
SAME_INSTANT = 1e-12  # relative: an end on the links, and a start that may have waited for it


class Wait(Frozen):
    """What an exchange has to wait for."""

    operation: str = Field(description="An exchange.", examples=["3SYNC"])
    lag_s: Seconds = Field(description="From its start to that of the one that waits.", examples=[0.05])


class Message(Frozen):
    """What the consumer of an operation's result waits for: B stands for BW, too; 3SYNC is the exchange of stage 3."""

    operation: str = Field(description="The operation that sends it.", examples=["1F0"])
    occupancy_s: Seconds = Field(description="Time it takes its link.", examples=[0.01])
    lag_s: float = Field(
        description="From then to its arrival; below zero where replicas have time slots.", examples=[0.08],
        json_schema_extra={"unit": "s"},
    )  # fmt: skip
    after: tuple[Wait, ...] = Field(
        (), description="Of an exchange: those whose links or cards it takes.", examples=[[]]
    )

    def scaled(self, factor: float) -> Message:
        """The same with all times times `factor`."""
        changes = {"occupancy_s": self.occupancy_s * factor, "lag_s": self.lag_s * factor}
        after = tuple(one.model_copy(update={"lag_s": one.lag_s * factor}) for one in self.after)
        return self.model_copy(update={**changes, "after": after})


class ReplayPipeline(Frozen):
    """The pipeline of the replicas of a route: order, times, messages."""

    schedule_csv: str = Field(description="PyTorch's compute-only form.", examples=["0F0,0I0,0W0\n"])
    comms_csv: str = Field("", description="The form with messages, if that one is loaded.", examples=[""])
    forward_s: tuple[Seconds, ...] = Field(description="Time of F, by stage.", examples=[[0.03]])
    input_grad_s: tuple[Seconds, ...] = Field(description="Time of B (PyTorch: I), by stage.", examples=[[0.03]])
    weight_grad_s: tuple[Seconds, ...] = Field(description="Time of W, by stage.", examples=[[0.03]])
    channels: tuple[tuple[Message, ...], ...] = Field(
        description="Messages in the order in which each link and direction carries them.", examples=[[]]
    )
    free_messages: tuple[Message, ...] = Field(description="Messages that occupy no link.", examples=[[]])

    def scaled(self, factor: float) -> ReplayPipeline:
        """The same with all times times `factor`."""
        times = {name: tuple(one * factor for one in getattr(self, name)) for name in STAGE_TIMES}
        channels = tuple(tuple(one.scaled(factor) for one in order) for order in self.channels)
        free = tuple(one.scaled(factor) for one in self.free_messages)
        return self.model_copy(update=times | {"channels": channels, "free_messages": free})


STAGE_TIMES = ("forward_s", "input_grad_s", "weight_grad_s")


class Replica(Frozen):
    """One copy of the model: a process for each of its pipeline ranks."""

    pipeline: Count = Field(description="Which of the pipelines it runs.", examples=[0])
    shift_s: Seconds = Field(0.0, description="How much later its replicas run everything.", examples=[0.0])


class ReplayCase(Frozen):
    """What is executed. Times are real seconds of the execution: planned times times `scale`.

    Processes are numbered as the plan numbers its ranks: process = pipeline rank * replicas + replica.
    """

    name: str = Field(description="Name in the report.", examples=["zb_h1"])
    num_microbatches: PositiveCount = Field(description="Micro-batches of a replica and step.", examples=[8])
    rank_of_stage: tuple[Count, ...] = Field(description="Pipeline rank of every stage.", examples=[[0, 1, 2, 3]])
    blocking: bool = Field(description="A rank runs nothing but W until what it sent has landed.", examples=[False])
    pipelines: tuple[ReplayPipeline, ...] = Field(min_length=1, description="One per route.", examples=[[{}]])
    replicas: tuple[Replica, ...] = Field(min_length=1, description="Data parallel replicas.", examples=[[{}]])
    exchanges: tuple[Message, ...] = Field(
        (), description="Exchanges of gradients in the order in which they begin.", examples=[[]]
    )
    head_start_s: tuple[Seconds, ...] = Field(
        (), description="By stage, how long before its last W an exchange may begin.", examples=[[0.0]]
    )
    closing_s: Seconds = Field(0.0, description="Optimizer step and host work at the end.", examples=[0.02])
    operation_s: Seconds = Field(description="Mean time of an operation.", examples=[0.03])
    scale: float = Field(gt=0, description="Real seconds per planned second.", examples=[12.5])
    predicted_s: Seconds = Field(description="Planned first start to the end of all, scaled.", examples=[1.2])

    @property
    def num_ranks(self) -> int:
        """Pipeline ranks."""
        return max(self.rank_of_stage) + 1

    @property
    def num_processes(self) -> int:
        """Processes: one for each pipeline rank of each replica."""
        return self.num_ranks * len(self.replicas)

    @property
    def num_stages(self) -> int:
        """Stages over all processes."""
        return len(self.rank_of_stage)

    def pipeline_of(self, replica: int) -> ReplayPipeline:
        """What a replica runs."""
        return self.pipelines[self.replicas[replica].pipeline]

    def taking(self, operation_s: float) -> Self:
        """The same with all times scaled alike, so that an operation takes `operation_s` on average."""
        factor = operation_s / self.operation_s
        replicas = tuple(one.model_copy(update={"shift_s": one.shift_s * factor}) for one in self.replicas)
        changes = {name: getattr(self, name) * factor for name in ("closing_s", "operation_s", "scale", "predicted_s")}
        changes["head_start_s"] = tuple(one * factor for one in self.head_start_s)
        parts = {name: tuple(one.scaled(factor) for one in getattr(self, name)) for name in ("pipelines", "exchanges")}
        return self.model_copy(update=changes | parts | {"replicas": replicas})


def replay_case(
    name: str,
    problem: PipelineProblem,
    schedule: PipelineSchedule,
    operation_s: float = DEFAULT_OPERATION_S,
    *,
    planned_messages: bool = False,
) -> ReplayCase:
    """One pipeline, without exchanges; an operation takes `operation_s` on average, whatever the plan's own scale is.

    The runtime adds the messages itself, or takes them from the export with communication (`planned_messages`).
    """
    pipeline = _pipeline(problem, schedule, planned_messages=planned_messages)
    case = ReplayCase(
        name=name,
        num_microbatches=problem.num_microbatches,
        rank_of_stage=problem.placement,
        blocking=problem.sends == "blocking",
        pipelines=(pipeline,),
        replicas=(Replica(pipeline=0),),
        operation_s=mean_operation_s(schedule),
        scale=1.0,
        predicted_s=computing_s(schedule),
    )
    return case.taking(operation_s)


def iteration_case(plan: Plan, request: PlanRequest | None = None) -> ReplayCase:
    """An iteration of a plan with all its replicas, in planned seconds: pipelines, exchanges, optimizer step."""
    _check_plan(plan)
    order = {timeline.route: number for number, timeline in enumerate(plan.timelines)}
    timelines = {one.route: one for one in plan.timelines}
    problem = plan.timelines[0].problem
    replicas = [
        Replica(pipeline=order[route.id], shift_s=timelines[route.id].stagger_s * at / max(route.num_replicas - 1, 1))
        for route in sorted(plan.placement.routes, key=lambda one: one.first_replica)
        for at in range(route.num_replicas)
    ]
    exchanges = sorted(plan.exchanges, key=lambda one: (one.start_s, max(one.private_s, one.shared_s), one.stage))
    return ReplayCase(
        name=request.workload.architecture.name if request else "plan",
        num_microbatches=problem.num_microbatches,
        rank_of_stage=problem.placement,
        blocking=problem.sends == "blocking",
        pipelines=tuple(_pipeline(one.problem, one.schedule) for one in plan.timelines),
        replicas=tuple(replicas),
        exchanges=tuple(
            Message(
                operation=f"{one.stage}{EXCHANGE}",
                occupancy_s=one.shared_s,
                lag_s=_exchange_s(one, plan.transport_policy.num_exchange_chunks) - one.shared_s,
                after=_waits(one, exchanges[:number], plan.configuration.rank_of_stages),
            )
            for number, one in enumerate(exchanges)
        ),
        head_start_s=tuple(one.overlap_s for one in sorted(exchanges, key=lambda one: one.stage)),
        closing_s=plan.time.optimizer_s + plan.time.overhead_s,
        operation_s=sum(mean_operation_s(one.schedule) for one in plan.timelines) / len(plan.timelines),
        scale=1.0,
        predicted_s=plan.metrics.iteration_s,
    )


def _check_plan(plan: Plan) -> None:
    """Every pipeline rank of every replica is a process of one machine, and every route has a timeline."""
    degrees = plan.configuration.degrees
    number = degrees.pp * degrees.dp
    if number > MAX_RANKS:
        what = f"{degrees.pp} pipeline ranks of {degrees.dp} replicas need {number} processes"
        raise refused("limit-exceeded", what, "/placement", f"at most {MAX_RANKS}",
                      "Take a smaller plan; isthmus replay PLAN runs one replica.")  # fmt: skip
    without = sorted({route.id for route in plan.placement.routes} - {one.route for one in plan.timelines})
    if without:
        what = f"route {without[0]!r} has no timeline"
        raise refused("invalid-plan", what, "/timelines", remedy="Give a plan that the judge accepts.")


def losses(plan: Plan, _request: PlanRequest | None = None) -> Iterator[str]:
    """What an execution on one machine leaves out."""
    degrees = plan.configuration.degrees
    if degrees.gpus_per_stage_group > 1:
        yield f"one process stands for the {degrees.gpus_per_stage_group} GPUs of a stage group"
    yield "arithmetic: a small model is trained, and an operation sleeps for the rest of its planned time"
    yield "the network: messages and exchanges between processes come as late as the plan's links would bring them"
    yield "sharding: gradients are all-reduced and every process keeps the whole state of its stages"


def _waits(one: StageExchange, before: list[StageExchange], rank_of_stage: tuple[int, ...]) -> tuple[Wait, ...]:
    """Those that have left the links in the plan when it begins, if both take links, and those of its rank."""
    waits = list[Wait]()
    for other in before:
        both_on_links = min(one.shared_s, other.shared_s) > 0
        operation = f"{other.stage}{EXCHANGE}"
        if rank_of_stage[other.stage] == rank_of_stage[one.stage]:
            waits.append(Wait(operation=operation, lag_s=max(other.private_s, other.shared_s)))
        elif both_on_links and other.start_s + other.shared_s <= one.start_s * (1.0 + SAME_INSTANT):
            waits.append(Wait(operation=operation, lag_s=other.shared_s))
    return tuple(waits)


def _exchange_s(one: StageExchange, num_chunks: int) -> float:
    """The longer part and one chunk of the shorter: chunks are pipelined over the cards of a place and the links."""
    return max(one.private_s, one.shared_s) + min(one.private_s, one.shared_s) / num_chunks


def _pipeline(
    problem: PipelineProblem, schedule: PipelineSchedule, *, planned_messages: bool = False
) -> ReplayPipeline:
    _check(problem, schedule)
    hops = {hop.from_stage: hop for hop in problem.hops}
    orders = [
        tuple(_message(text, hops) for text in row.transfers) for row in schedule.transfers if row.direction != "both"
    ]
    return ReplayPipeline(
        schedule_csv=compute_only(schedule),
        comms_csv=compute_and_comms(schedule) if planned_messages else "",
        **{name: tuple(getattr(stage, name) for stage in problem.stages) for name in STAGE_TIMES},
        channels=tuple(order for order in orders if any(one.occupancy_s > 0 for one in order)),
        free_messages=tuple(one for order in orders for one in order if one.occupancy_s == 0 and one.lag_s > 0),
    )


def mean_operation_s(schedule: PipelineSchedule) -> float:
    """Mean planned duration of an operation."""
    spans = [end - start for row in schedule.ranks for start, end in zip(row.start_s, row.end_s, strict=True)]
    return sum(spans) / len(spans)


def computing_s(schedule: PipelineSchedule) -> float:
    """First start to last end of the operations: the makespan without gradient exchanges."""
    first_s = min(start_s for row in schedule.ranks for start_s in row.start_s)
    return max(end_s for row in schedule.ranks for end_s in row.end_s) - first_s


def _message(text: str, hops: dict[int, PipelineHop]) -> Message:
    operation = Operation.parse(text)
    hop = hops.get(operation.stage if operation.kind == "F" else operation.stage - 1)
    if hop is None or operation.kind == "W":
        raise _refused(f"the schedule has a transfer {text}, but the problem has no hop for it")
    sender = f"{operation.stage}{'F' if operation.kind == 'F' else 'B'}{operation.microbatch}"
    return Message(operation=sender, occupancy_s=hop.occupancy_s, lag_s=hop.lag_s)


def _check(problem: PipelineProblem, schedule: PipelineSchedule) -> None:
    """The schedule is one of this problem, as far as an execution needs it."""
    if len(schedule.ranks) != len(problem.ranks):
        raise _refused(f"the schedule has {len(schedule.ranks)} ranks, the problem {len(problem.ranks)}")
    if len(problem.ranks) > MAX_RANKS:
        raise refused("limit-exceeded", f"{len(problem.ranks)} pipeline ranks need as many processes", "/ranks",
                      f"at most {MAX_RANKS}", "Replay a schedule with fewer ranks.")  # fmt: skip
    for rank, row in enumerate(schedule.ranks):
        if not row.operations or not len(row.operations) == len(row.start_s) == len(row.end_s):
            raise _refused(f"rank {rank} of the schedule has no operations, or not one start and end for each")
        for text in row.operations:
            _check_operation(text, rank, problem)
    if mean_operation_s(schedule) <= 0:
        raise _refused("the operations of the schedule take no time, so nothing can be measured")


def _check_operation(text: str, rank: int, problem: PipelineProblem) -> None:
    try:
        one = Operation.parse(text)
    except ValueError as error:
        raise _refused(str(error)) from None
    if one.stage >= problem.num_stages or one.microbatch >= problem.num_microbatches:
        raise _refused(f"{text}: the problem has {problem.num_stages} stages, {problem.num_microbatches} micro-batches")
    if problem.placement[one.stage] != rank:
        raise _refused(f"{text} is on rank {rank}, but the problem has stage {one.stage} on another rank")


def _refused(what: str) -> Refused:
    return refused("invalid-plan", what, "/schedule", remedy="Give the schedule and the problem it answers.")
