"""What is the least that reaches a target, and what is the frontier of time against what is spent?"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from models.base import (
    Bytes,
    Count,
    Frozen,
    Name,
    OfObjective,
    PositiveFraction,
    PositiveSeconds,
    Ratio,
    Relative,
    Seconds,
    TotalSeconds,
    Watts,
)
from models.outcome import Reason
from models.question_parts import Change, QuestionBase, Status, Witness

Least = Literal["gpus", "cost", "fibre", "memory"]
Spent = Literal["gpus", "money", "bytes", "energy"]
InUnit = Annotated[float, Field(json_schema_extra={"unit": "as `unit` says"})]
Positive = Annotated[float, Field(gt=0, le=1e18)]


class Target(Frozen):
    """What is to be reached: one of an iteration time, a rate of tokens, and a token budget with its dates."""

    iteration_s: PositiveSeconds | None = Field(None, description="Iteration time.", examples=[12.0])
    tokens_per_s: Positive | None = Field(
        None, description="Tokens per second.", examples=[None], json_schema_extra={"unit": "token/s"}
    )
    tokens: Annotated[Positive, Field(json_schema_extra={"unit": "token"})] | None = Field(
        None, description="Token budget.", examples=[None]
    )
    begins_at: AwareDatetime | None = Field(
        None, description="When training begins, with its time zone; needed with tokens.", examples=[None]
    )
    ends_at: AwareDatetime | None = Field(
        None, description="When it is to have ended; needed with tokens.", examples=[None]
    )
    training_fraction: PositiveFraction = Field(
        1.0, description="Of the time from begin to end, what is not lost to failures and pauses.", examples=[0.9]
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        given = [name for name in ("iteration_s", "tokens_per_s", "tokens") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"one target is needed, not {len(given)}: iteration_s, tokens_per_s, or tokens with dates")
        dates = [one for one in (self.begins_at, self.ends_at) if one is not None]
        if len(dates) != (2 if self.tokens is not None else 0):
            raise ValueError("begins_at and ends_at belong to tokens, both of them")
        if dates and dates[0] >= dates[1]:
            raise ValueError("ends_at is not after begins_at")
        return self


class Sizing(QuestionBase):
    """What is the least that reaches the target: GPUs, cost, fibre between buildings, memory?"""

    ask: Literal["least"] = Field("least", description="Tag.", examples=["least"])
    target: Target = Field(description="What is to be reached.", examples=[{"iteration_s": 12.0}])
    of: Annotated[tuple[Least, ...], Field(min_length=1, max_length=4)] = Field(
        ("gpus", "cost", "fibre", "memory"),
        description="gpus: the fewest. cost: the cheapest mix per token; without prices, the fewest GPU-hours. "
        "fibre: capacity of all links, each narrower by the same factor. memory: of every GPU, by one factor, too.",
        examples=[["gpus", "fibre"]],
    )


class LeastAnswer(Frozen):
    """The least of one thing: between the largest amount proven not to be enough and one that a plan does with."""

    of: Least = Field(description="What it is the least of.", examples=["gpus"])
    unit: Name = Field(description="Its unit.", examples=["GPUs"])
    status: Status | Literal["not_tried"] = Field(
        description="planned: `value` is enough. infeasible: proven, nothing that there is reaches the target.",
        examples=["planned"],
    )
    value: InUnit | None = Field(description="Enough: `plan` does with it.", examples=[512.0])
    lower_bound: InUnit | None = Field(description="Proven: with less, no plan reaches the target.", examples=[480.0])
    there: InUnit | None = Field(description="How much the request has of it.", examples=[16384.0])
    changes: tuple[Change, ...] = Field((), description="What makes the request have just so much.", examples=[[]])
    plan: Witness | None = Field(None, description="The plan that does with it.", examples=[None])
    gpus_of_pool: dict[Name, Count] = Field(
        default_factory=dict, description="GPUs that the plan takes of each pool.", examples=[{"p1": 512}]
    )
    detail: str = Field("", max_length=600, description="Why there is none, or what is assumed.", examples=[""])


class SizingAnswer(Frozen):
    """The least of everything asked for that reaches the target."""

    ask: Literal["least"] = Field("least", description="Tag.", examples=["least"])
    outcome: Status = Field(description="Whether all that there is reaches the target.", examples=["planned"])
    target_iteration_s: Seconds = Field(description="The target as an iteration time.", examples=[12.0])
    stack_profile: Name = Field(description="The one software profile under all plans.", examples=["megatron-2025"])
    fastest: Witness | None = Field(description="A plan within the target, with all there is.", examples=[None])
    fastest_lower_bound_s: TotalSeconds | None = Field(description="No plan is faster than this.", examples=[4.2])
    reasons: tuple[Reason, ...] = Field((), description="Why none reaches it, if that is proven.", examples=[[]])
    least: tuple[LeastAnswer, ...] = Field(description="One of each, in the order asked.", examples=[[{}]])
    complete: bool = Field(description="Whether each had its turn.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[60.0])


class Frontier(QuestionBase):
    """How much time is saved by how much of something: plans of which none is better in both?"""

    ask: Literal["frontier"] = Field("frontier", description="Tag.", examples=["frontier"])
    against: Annotated[tuple[Spent, ...], Field(min_length=1, max_length=4)] = Field(
        ("gpus",),
        description="gpus: in use. money: per million tokens, of GPUs by their prices and of egress. bytes: between "
        "buildings per iteration. energy: per million tokens, of GPUs at their stated power.",
        examples=[["gpus", "bytes"]],
    )
    max_points: Annotated[int, Field(ge=2, le=40)] = Field(8, description="Points of each at most.", examples=[8])
    slowest_times: Annotated[float, Field(gt=1, le=1000, json_schema_extra={"unit": "1"})] = Field(
        8.0, description="Of the fastest plan's time: what is slower is of no interest.", examples=[8.0]
    )
    watts_of_gpu: Annotated[dict[Name, Watts], Field(max_length=100)] = Field(
        default_factory=dict,
        description="Power of a GPU by the name of its type; left out: the board power that the type states.",
        examples=[{}],
    )


class FrontierPoint(Frozen):
    """A plan of which no other that was found is better in time and in what is spent."""

    iteration_s: Seconds = Field(description="Iteration time.", examples=[6.4])
    num_gpus: Count = Field(description="GPUs in use.", examples=[8192])
    usd_per_million_tokens: Ratio | None = Field(
        description="Cost; null without prices.", examples=[None], json_schema_extra={"unit": "USD/Mtoken"}
    )
    cross_building_bytes: Bytes = Field(description="Bytes between buildings per iteration.", examples=[1e12])
    kwh_per_million_tokens: Ratio | None = Field(
        description="Energy of the GPUs; null where a power is not known.",
        examples=[0.4],
        json_schema_extra={"unit": "kWh/Mtoken"},
    )
    limit: float = Field(
        description="What this plan takes of the limited quantity.",
        examples=[8192.0],
        json_schema_extra={"unit": "as `limited` says"},
    )
    lower_bound: OfObjective | None = Field(
        description="Of plans that take no more, none has less of what was minimised; null: not known.", examples=[6.3]
    )
    relative_gap: Relative | None = Field(
        description="Of what was minimised: (value - bound) / value.", examples=[0.02]
    )
    plan: Witness = Field(description="The plan.", examples=[{}])


class FrontierAgainst(Frozen):
    """The frontier of time against one quantity."""

    against: Spent = Field(description="What is spent.", examples=["gpus"])
    limited: Literal["gpus", "bytes", "iteration_s"] = Field(
        description="What was limited point by point; the other one of the two was minimised.", examples=["gpus"]
    )
    points: tuple[FrontierPoint, ...] = Field(description="The fastest first.", examples=[[{}]])
    num_dominated: Count = Field(description="Plans found that others beat in both; they are left out.", examples=[0])
    detail: str = Field("", max_length=600, description="Why there is none, or what is assumed.", examples=[""])


class FrontierAnswer(Frozen):
    """Frontiers of time against what is spent."""

    ask: Literal["frontier"] = Field("frontier", description="Tag.", examples=["frontier"])
    outcome: Status = Field(description="What became of the request as it is.", examples=["planned"])
    stack_profile: Name = Field(description="The one software profile under all plans.", examples=["megatron-2025"])
    reasons: tuple[Reason, ...] = Field((), description="Why there is no plan, if that is proven.", examples=[[]])
    frontiers: tuple[FrontierAgainst, ...] = Field(description="One per quantity, as asked.", examples=[[{}]])
    complete: bool = Field(description="Whether every point had its turn.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[60.0])
