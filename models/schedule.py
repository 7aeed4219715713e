"""A pipeline to be timed (`PipelineProblem`) and its answer (`PipelineSchedule`), with the text form of one operation.

Both are the documents of `/v1/schedules`. Whatever makes a problem well-formed is checked when it is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from models.base import (
    Bytes,
    Count,
    Fraction,
    Frozen,
    JoinedName,
    PositiveCount,
    Seconds,
    SignedSeconds,
    TimeLimit,
    TotalBytes,
    TotalSeconds,
)

MAX_OPERATIONS = 1_000_000
MAX_STAGES = 4096

Layout = Literal["one_way", "v", "loop", "custom"]
OperationKind = Literal["F", "B", "W", "BW"]
LinkDirection = Literal["up", "down", "both"]
Backward = Literal["split_allowed", "fused"]
Sends = Literal["asynchronous", "blocking"]
ScheduleStatus = Literal["optimal", "feasible"]

_OPERATION = re.compile(r"(\d{1,7})(BW|F|B|W)(\d{1,7})")


class Operation(NamedTuple):
    """One compute operation: `kind` of micro-batch `microbatch` on `stage`; B is the input gradient, BW is fused.

    >>> Operation.parse("0F1")
    Operation(stage=0, kind='F', microbatch=1)
    >>> str(Operation(12, "BW", 3))
    '12BW3'
    """

    stage: int
    kind: OperationKind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Operation:
        """Read the text form; anything before, between or after the three parts is refused."""
        match = _OPERATION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an operation: write stage, F, B, W or BW, micro-batch, as in 0F1")
        stage, kind, microbatch = match.groups()
        return cls(int(stage), kind, int(microbatch))  # type: ignore[arg-type]


class PipelineRank(Frozen):
    """One pipeline rank: it runs one operation at a time."""

    activation_budget_bytes: Bytes | None = Field(
        default=None,
        description="Activation memory of this rank, kept at every instant; null: unlimited.",
        examples=[8.0],
    )


class PipelineStage(Frozen):
    """What one stage (a model chunk) costs for one micro-batch."""

    forward_s: Seconds = Field(description="Time of F.", examples=[1.0])
    input_grad_s: Seconds = Field(description="Time of B, the gradient of the input.", examples=[1.0])
    weight_grad_s: Seconds = Field(description="Time of W, the gradient of the weights.", examples=[1.0])
    activation_bytes: Bytes = Field(
        default=0.0, description="Held from the start of F to the end of the input gradient.", examples=[1.0]
    )
    weight_grad_context_bytes: Bytes = Field(
        default=0.0, description="Held from the end of the input gradient to the end of W.", examples=[0.5]
    )
    gradient_sync_s: Seconds = Field(
        default=0.0, description="Gradient exchange after the last W of the stage; overlaps everything.", examples=[0.0]
    )
    gradient_sync_link: JoinedName | None = Field(
        default=None,
        description="Link the exchange occupies in both directions; null: a free-standing one.",
        examples=[None],
    )


class PipelineHop(Frozen):
    """The way from one stage to the next: the activation takes it, and the gradient takes it back."""

    from_stage: Count = Field(description="Sending stage of the activation.", examples=[3])
    to_stage: Count = Field(description="Receiving stage of the activation: from_stage + 1.", examples=[4])
    latency_s: Seconds = Field(default=0.0, description="Delay after the transfer; occupies nothing.", examples=[2.0])
    transfer_s: Seconds = Field(
        default=0.0, description="Time one message occupies the link in its direction, alone.", examples=[0.25]
    )
    link: JoinedName | None = Field(
        default=None, description="Hops of one link name share it; null: a link of its own.", examples=["A-B"]
    )
    num_sharing_replicas: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1,
        description="Replicas that take the link one after another; a message then waits for the last of them "
        "unless they are staggered.",
        examples=[1],
    )
    staggered: bool = Field(
        default=False,
        description="The sharing replicas run this schedule one transfer after another: each message arrives after its"
        " own transfer and latency, while the link stays taken for the whole round.",
        examples=[False],
    )

    @property
    def link_name(self) -> str:
        """The link, named after the hop when it is a link of its own.

        >>> PipelineHop(from_stage=3, to_stage=4).link_name
        'hop 3-4'
        """
        return self.link if self.link is not None else f"hop {self.from_stage}-{self.to_stage}"

    @property
    def occupancy_s(self) -> float:
        """Time the link is taken per message, all replicas of the round included."""
        return self.transfer_s * self.num_sharing_replicas

    @property
    def lag_s(self) -> float:
        """From the end of the occupancy to the arrival; below zero where staggered replicas still have their turns.

        >>> PipelineHop(from_stage=0, to_stage=1, latency_s=1.0, transfer_s=2.0, num_sharing_replicas=3).lag_s
        1.0
        """
        return self.latency_s + (self.transfer_s - self.occupancy_s if self.staggered else 0.0)


class PipelineOptions(Frozen):
    """How long and how well to search."""

    time_limit_s: TimeLimit = Field(default=20.0, description="Wall-clock limit of the search.", examples=[20.0])
    relative_gap: Fraction = Field(
        default=0.001,
        description="Stop once (value - bound) / value is at most this; a complete proof is tried for 5 s first.",
        examples=[0.001],
    )
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Seed of the search.", examples=[0])
    workers: int = Field(default=2, ge=1, le=128, description="Threads the search may use.", examples=[2])


class PipelineProblem(Frozen):
    """A pipeline whose stages are placed and measured: only order and start times are open."""

    num_microbatches: PositiveCount = Field(description="Micro-batches of one step.", examples=[16])
    ranks: tuple[PipelineRank, ...] = Field(min_length=1, description="The pipeline ranks.", examples=[[{}, {}]])
    layout: Layout = Field(default="one_way", description="How stages lie on ranks; custom: as stated.", examples=["v"])
    rank_of_stage: tuple[Count, ...] | None = Field(
        default=None, description="Rank of every stage in model order; needed for custom.", examples=[[0, 1, 1, 0]]
    )
    stages: tuple[PipelineStage, ...] = Field(
        min_length=1,
        max_length=MAX_STAGES,
        description="Stages in model order, chunks included.",
        examples=[[{"forward_s": 1.0, "input_grad_s": 1.0, "weight_grad_s": 1.0}] * 2],
    )
    hops: tuple[PipelineHop, ...] = Field(
        default=(), description="Delays between consecutive stages; no hop means no delay.", examples=[[]]
    )
    backward: Backward = Field(
        default="split_allowed", description="fused: B and W are one operation BW.", examples=["fused"]
    )
    sends: Sends = Field(
        default="asynchronous",
        description="blocking: from the end of an F or B whose message takes any time until that message has landed, "
        "the sending rank runs nothing but W. asynchronous: it goes on at once.",
        examples=["blocking"],
    )
    objective: Literal["makespan", "span"] = Field(
        default="makespan",
        description="makespan: first start to last end over all ranks; span: the largest of that per rank.",
        examples=["makespan"],
    )
    options: PipelineOptions = Field(default=PipelineOptions(), description="Limits of the search.", examples=[{}])

    @property
    def num_stages(self) -> int:
        """Stages in model order."""
        return len(self.stages)

    @property
    def num_operations(self) -> int:
        """Compute operations of the schedule: 3 per stage and micro-batch, 2 when fused."""
        return self.num_stages * self.num_microbatches * (2 if self.backward == "fused" else 3)

    def without_exchanges(self) -> PipelineProblem:
        """The same pipeline with no gradient exchange behind it."""
        silent = {"gradient_sync_s": 0.0, "gradient_sync_link": None}
        return self.model_copy(update={"stages": tuple(one.model_copy(update=silent) for one in self.stages)})

    @property
    def placement(self) -> tuple[int, ...]:
        """Rank of every stage, stated or implied by the layout."""
        if self.rank_of_stage is not None:
            return self.rank_of_stage
        return layout_placement(self.layout, len(self.stages), len(self.ranks))

    @model_validator(mode="after")
    def _size(self) -> Self:
        if self.num_operations > MAX_OPERATIONS:
            raise ValueError(
                f"{self.num_operations:,} operations (micro-batches x stages x kinds) exceed the limit of "
                f"{MAX_OPERATIONS:,}: state fewer num_microbatches or merge stages"
            )
        return self

    @model_validator(mode="after")
    def _layout(self) -> Self:
        if self.rank_of_stage is None and self.layout == "custom":
            raise ValueError("layout custom needs rank_of_stage: one rank for every stage")
        _check_placement(self.placement, len(self.stages), len(self.ranks))
        if self.layout != "custom" and self.rank_of_stage is not None:
            implied = layout_placement(self.layout, len(self.stages), len(self.ranks))
            if implied != self.rank_of_stage:
                raise ValueError(f"rank_of_stage contradicts layout {self.layout}, which means {list(implied)}: "
                                 "leave one of them out or state layout custom")  # fmt: skip
        return self

    @model_validator(mode="after")
    def _hops(self) -> Self:
        seen: set[int] = set()
        for index, hop in enumerate(self.hops):
            where = f"hops[{index}] ({hop.from_stage} to {hop.to_stage})"
            if hop.to_stage >= len(self.stages):
                raise ValueError(f"{where}: there are only stages 0 to {len(self.stages) - 1}")
            if hop.to_stage <= hop.from_stage:
                raise ValueError(f"{where} would make the pipeline cyclic: to_stage must be from_stage + 1")
            if hop.to_stage != hop.from_stage + 1:
                raise ValueError(f"{where} skips stages: to_stage must be from_stage + 1")
            if hop.from_stage in seen:
                raise ValueError(f"{where} is stated twice: add the delays up in one hop")
            seen.add(hop.from_stage)
        return self

    @model_validator(mode="after")
    def _budgets(self) -> Self:
        for rank, need_bytes in enumerate(minimum_budget_bytes(self.placement, self.stages, self.backward)):
            budget_bytes = self.ranks[rank].activation_budget_bytes
            if budget_bytes is not None and budget_bytes < need_bytes:
                raise ValueError(
                    f"ranks[{rank}].activation_budget_bytes is {budget_bytes:g}, but one micro-batch alone needs "
                    f"{need_bytes:g} on this rank: raise the budget or move stages"
                )
        return self


class LinkTimeline(Frozen):
    """The messages of one link in one direction, in the planned order; their intervals do not overlap."""

    link: str = Field(description="Link name.", examples=["A-B"])
    direction: LinkDirection = Field(
        description="up: towards the higher rank; both: gradient exchange.", examples=["up"]
    )
    transfers: tuple[str, ...] = Field(description="Producing operation, or stage and SYNC.", examples=[["3F0", "3F1"]])
    start_s: tuple[SignedSeconds, ...] = Field(
        description="When each begins to occupy the link.", examples=[[4.0, 5.0]]
    )
    end_s: tuple[SignedSeconds, ...] = Field(
        description="When each leaves the link (arrival: latency later).", examples=[[4.25, 5.25]]
    )


class RankTimeline(Frozen):
    """The operations of one rank in order, with their times."""

    operations: tuple[str, ...] = Field(description="Text form of each operation.", examples=[["0F0", "0B0", "0W0"]])
    start_s: tuple[SignedSeconds, ...] = Field(description="Start of each operation.", examples=[[0.0, 3.0, 4.0]])
    end_s: tuple[SignedSeconds, ...] = Field(description="End of each operation.", examples=[[1.0, 4.0, 5.0]])
    peak_memory_bytes: TotalBytes = Field(description="Largest activation memory at any instant.", examples=[8.0])


class PipelineSchedule(Frozen):
    """The answer: who does what when, how good it is, and what is proven about it."""

    ranks: tuple[RankTimeline, ...] = Field(description="One timeline per rank.", examples=[[]])
    transfers: tuple[LinkTimeline, ...] = Field(description="One timeline per used link and direction.", examples=[[]])
    objective: Literal["makespan", "span"] = Field(description="What was minimised.", examples=["makespan"])
    objective_value_s: TotalSeconds = Field(description="Its value in the exact replay.", examples=[55.0])
    makespan_s: TotalSeconds = Field(description="First start to last end over all ranks.", examples=[55.0])
    span_s: TotalSeconds = Field(description="Largest per-rank first start to last end.", examples=[48.0])
    lower_bound_s: TotalSeconds = Field(description="No schedule of this problem has a smaller value.", examples=[55.0])
    gap: Fraction = Field(description="(value - bound) / value.", examples=[0.0])
    status: ScheduleStatus = Field(
        description="optimal only when the gap is proven within the tolerance.", examples=["optimal"]
    )
    generator: str = Field(description="Where the order came from.", examples=["zb_h1"])
    seconds: Seconds = Field(description="Wall-clock time spent.", examples=[0.8])
    text: str = Field(description="One line per rank: its operations, separated by commas.", examples=["0F0,0B0,0W0"])


class ScheduleProgress(Frozen):
    """One step of the search, reported as it happens."""

    phase: str = Field(description="Phase of the search.", examples=["cpsat"])
    objective_value_s: TotalSeconds = Field(description="Value of the incumbent.", examples=[57.0])
    lower_bound_s: TotalSeconds = Field(description="Bound proven so far.", examples=[55.0])
    generator: str = Field(description="Where the incumbent came from.", examples=["greedy"])
    seconds: Seconds = Field(description="Since the start.", examples=[0.3])


class PipelineViolation(Frozen):
    """One broken rule of a pipeline schedule, named, with the place where it breaks."""

    rule: str = Field(description="Short name of the rule.", examples=["rank_exclusive"])
    where: str = Field(description="Rank, link, stage or operation.", examples=["rank 2"])
    detail: str = Field(description="The numbers that clash.", examples=["2F1 starts at 3.0 before 2F0 ends at 4.0"])


@lru_cache(maxsize=64)
def layout_placement(layout: str, num_stages: int, num_ranks: int) -> tuple[int, ...]:
    """Rank of every stage for a named layout: straight, zigzag, or round and round.

    >>> layout_placement("v", 6, 3), layout_placement("loop", 4, 2)
    ((0, 1, 2, 2, 1, 0), (0, 1, 0, 1))
    """
    if layout == "one_way" and num_stages != num_ranks:
        raise ValueError(f"layout one_way needs one stage per rank, not {num_stages} stages on {num_ranks} ranks")
    if num_stages % num_ranks:
        raise ValueError(
            f"layout {layout} needs the same number of stages on every rank, not {num_stages} on {num_ranks}"
        )
    if layout != "v":
        return tuple(stage % num_ranks for stage in range(num_stages))
    turns = (divmod(stage, num_ranks) for stage in range(num_stages))
    return tuple(place if turn % 2 == 0 else num_ranks - 1 - place for turn, place in turns)


def minimum_budget_bytes(
    placement: Sequence[int], stages: Sequence[PipelineStage], backward: Backward
) -> tuple[float, ...]:
    """Least memory per rank that lets one micro-batch through alone.

    All stages of the rank hold their activation when the last forward has run; then each context replaces its
    activation, later stages being gone already.
    """
    held = [0.0] * (max(placement) + 1)
    peak = [0.0] * (max(placement) + 1)
    for rank, stage in zip(placement, stages, strict=True):
        context_bytes = 0.0 if backward == "fused" else stage.weight_grad_context_bytes
        peak[rank] = max(peak[rank], held[rank] + context_bytes)
        held[rank] += stage.activation_bytes
    return tuple(max(pair) for pair in zip(held, peak, strict=True))


def _check_placement(placement: tuple[int, ...], num_stages: int, num_ranks: int) -> None:
    if len(placement) != num_stages:
        raise ValueError(f"rank_of_stage has {len(placement)} entries for {num_stages} stages: state one for each")
    if max(placement) >= num_ranks:
        raise ValueError(f"rank_of_stage names rank {max(placement)}, but there are only ranks 0 to {num_ranks - 1}")
    idle = sorted(set(range(num_ranks)) - set(placement))
    if idle:
        raise ValueError(f"rank {idle[0]} holds no stage: remove it from ranks or give it a stage")
