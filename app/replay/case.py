"""What every process of an executed schedule needs to know: orders, times, messages, all scaled, as one document.

Owns the scaling and the reading of a problem's hops as messages. Never knows PyTorch and never starts anything.
"""

from __future__ import annotations

from pydantic import Field

from app.exporters.torch_schedule_csv import compute_and_comms, compute_only
from app.faults import Fault, Refused
from models.base import Count, Frozen, PositiveCount, Seconds
from models.schedule import LinkTimeline, Operation, PipelineHop, PipelineProblem, PipelineSchedule

MAX_RANKS = 32
DEFAULT_OPERATION_S = 0.03


class Message(Frozen):
    """What the consumer of an operation's result waits for."""

    operation: str = Field(description="The operation that sends it; B stands for BW, too.", examples=["1F0"])
    occupancy_s: Seconds = Field(description="Time it takes its link.", examples=[0.01])
    latency_s: Seconds = Field(description="Delay after that; occupies nobody.", examples=[0.08])


class ReplayCase(Frozen):
    """One schedule to execute. Times are real seconds of the execution: planned times times `scale`."""

    name: str = Field(description="Name in the report.", examples=["zb_h1"])
    schedule_csv: str = Field(description="PyTorch's compute-only form.", examples=["0F0,0I0,0W0\n"])
    comms_csv: str = Field("", description="The form with messages, if that one is loaded.", examples=[""])
    num_microbatches: PositiveCount = Field(description="Micro-batches of the step.", examples=[8])
    rank_of_stage: tuple[Count, ...] = Field(description="Process of every stage.", examples=[[0, 1, 2, 3]])
    forward_s: tuple[Seconds, ...] = Field(description="Time of F, by stage.", examples=[[0.03]])
    input_grad_s: tuple[Seconds, ...] = Field(description="Time of B (PyTorch: I), by stage.", examples=[[0.03]])
    weight_grad_s: tuple[Seconds, ...] = Field(description="Time of W, by stage.", examples=[[0.03]])
    channels: tuple[tuple[Message, ...], ...] = Field(
        description="Messages in the order in which each link and direction carries them.", examples=[[]]
    )
    free_messages: tuple[Message, ...] = Field(description="Messages that occupy no link.", examples=[[]])
    scale: float = Field(gt=0, description="Real seconds per planned second.", examples=[12.5])
    predicted_s: Seconds = Field(description="Planned first start to last end, scaled.", examples=[1.2])

    @property
    def num_ranks(self) -> int:
        """Processes."""
        return max(self.rank_of_stage) + 1

    @property
    def num_stages(self) -> int:
        """Stages over all processes."""
        return len(self.rank_of_stage)


def replay_case(
    name: str,
    problem: PipelineProblem,
    schedule: PipelineSchedule,
    operation_s: float = DEFAULT_OPERATION_S,
    *,
    planned_messages: bool = False,
) -> ReplayCase:
    """The case in which an operation takes `operation_s` on average, whatever the plan's own scale is.

    The runtime adds the messages itself, or takes them from the export with communication (`planned_messages`).
    """
    _check(problem, schedule)
    scale = operation_s / mean_operation_s(schedule)
    hops = {hop.from_stage: hop for hop in problem.hops}
    orders = [_messages(row, hops, scale) for row in schedule.transfers if row.direction != "both"]
    stages = problem.stages
    return ReplayCase(
        name=name,
        schedule_csv=compute_only(schedule),
        comms_csv=compute_and_comms(schedule) if planned_messages else "",
        num_microbatches=problem.num_microbatches,
        rank_of_stage=problem.placement,
        forward_s=tuple(stage.forward_s * scale for stage in stages),
        input_grad_s=tuple(stage.input_grad_s * scale for stage in stages),
        weight_grad_s=tuple(stage.weight_grad_s * scale for stage in stages),
        channels=tuple(order for order in orders if any(one.occupancy_s > 0 for one in order)),
        free_messages=tuple(one for order in orders for one in order if one.occupancy_s == 0 and one.latency_s > 0),
        scale=scale,
        predicted_s=computing_s(schedule) * scale,
    )


def mean_operation_s(schedule: PipelineSchedule) -> float:
    """Mean planned duration of an operation."""
    spans = [end - start for row in schedule.ranks for start, end in zip(row.start_s, row.end_s, strict=True)]
    return sum(spans) / len(spans)


def computing_s(schedule: PipelineSchedule) -> float:
    """First start to last end of the operations: the makespan without gradient exchanges, which are not executed."""
    return max(end for row in schedule.ranks for end in row.end_s) - min(
        start for row in schedule.ranks for start in row.start_s
    )


def _messages(row: LinkTimeline, hops: dict[int, PipelineHop], scale: float) -> tuple[Message, ...]:
    return tuple(_message(text, hops, scale) for text in row.transfers)


def _message(text: str, hops: dict[int, PipelineHop], scale: float) -> Message:
    operation = Operation.parse(text)
    hop = hops.get(operation.stage if operation.kind == "F" else operation.stage - 1)
    if hop is None or operation.kind == "W":
        raise _refused(f"the schedule has a transfer {text}, but the problem has no hop for it")
    sender = f"{operation.stage}{'F' if operation.kind == 'F' else 'B'}{operation.microbatch}"
    return Message(operation=sender, occupancy_s=hop.occupancy_s * scale, latency_s=hop.latency_s * scale)


def _check(problem: PipelineProblem, schedule: PipelineSchedule) -> None:
    """The schedule is one of this problem, as far as an execution needs it."""
    if len(schedule.ranks) != len(problem.ranks):
        raise _refused(f"the schedule has {len(schedule.ranks)} ranks, the problem {len(problem.ranks)}")
    if len(problem.ranks) > MAX_RANKS:
        raise Refused((Fault("limit-exceeded", f"{len(problem.ranks)} pipeline ranks need as many processes", "/ranks",
                             f"at most {MAX_RANKS}", "Replay a schedule with fewer ranks."),))  # fmt: skip
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
    return Refused((Fault("invalid-plan", what, "/schedule", remedy="Give the schedule and the problem it answers."),))
