"""What a search ends with: a plan, the reasons why none exists (an answer, no exception), or nothing found in time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from models.base import Count, Frozen, Name, Ratio, Seconds, TotalSeconds
from models.diagnostic import Diagnostic
from models.plan import Plan


class Reason(Frozen):
    """One typed reason why no plan exists, with the numbers that clash and the cheapest remedies."""

    code: Literal[
        "memory-too-small",
        "too-few-gpus",
        "degrees-do-not-divide",
        "batch-too-small",
        "pins-contradict",
        "no-placement",
        "target-out-of-reach",
        "too-slow",
        "precision-unsupported",
        "nothing-allowed",
        "too-many-operations",
        "no-price",
        "links-missing",
    ] = Field(description="Kind of contradiction.", examples=["memory-too-small"])
    pointer: str = Field(
        "", max_length=300, description="JSON Pointer of the field to change.", examples=["/cluster/pools/0"]
    )
    detail: str = Field(
        max_length=800, description="The numbers that clash.", examples=["needs 91 GiB per GPU, has 80"]
    )
    remedies: tuple[str, ...] = Field(
        (), description="Changes that would help, cheapest first.", examples=[["allow tp 16"]]
    )


class RequestCheck(Frozen):
    """What can be said of a request without a search."""

    reasons: tuple[Reason, ...] = Field(
        (), description="Why no plan exists; none if arithmetic finds nothing.", examples=[[]]
    )
    diagnostics: tuple[Diagnostic, ...] = Field(
        (), description="The linter: errors (the reasons again), then warnings, then notes.", examples=[[]]
    )


class Planned(Frozen):
    """A judged plan."""

    status: Literal["planned"] = Field("planned", description="Tag.", examples=["planned"])
    plan: Plan = Field(description="The best plan found.", examples=[{}])
    complete: bool = Field(True, description="False if the search was stopped before its own end.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[12.3])


class Infeasible(Frozen):
    """Proven: no plan obeys the request."""

    status: Literal["infeasible"] = Field("infeasible", description="Tag.", examples=["infeasible"])
    reasons: tuple[Reason, ...] = Field(min_length=1, description="Why.", examples=[[{}]])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[0.1])


class NotFound(Frozen):
    """Neither a plan nor a proof that none exists within the time."""

    status: Literal["not_found"] = Field("not_found", description="Tag.", examples=["not_found"])
    lower_bound_s: TotalSeconds = Field(description="No plan can be faster than this.", examples=[5.1])
    detail: str = Field(max_length=800, description="What was tried.", examples=["3 of 210 configurations tried"])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[30.0])


Outcome = Annotated[Planned | Infeasible | NotFound, Field(discriminator="status")]


class Progress(Frozen):
    """One line of news from a running search."""

    phase: Name = Field(description="Phase of the search.", examples=["search"])
    elapsed_s: Seconds = Field(description="Since the start.", examples=[2.5])
    incumbent_s: Seconds | None = Field(None, description="Best judged iteration time so far.", examples=[6.5])
    lower_bound_s: TotalSeconds | None = Field(
        None,
        description="Proven so far: no plan iterates faster; null where nothing is, as "
        "where something else than time is minimised.",
        examples=[6.2],
    )
    relative_gap: Ratio | None = Field(None, description="Gap so far, of what is minimised.", examples=[0.04])
    num_configurations: Count = Field(0, description="Configurations in the space.", examples=[2310])
    num_explored: Count = Field(0, description="Tried so far.", examples=[12])
    num_pruned: Count = Field(0, description="Discarded by their bound so far.", examples=[900])
    message: str = Field(
        "", max_length=300, description="What just happened.", examples=["better plan: DP-out, tp 8 pp 16"]
    )
