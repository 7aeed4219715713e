"""What a study shows: which of its points are best, which may be, and where differences are below the gaps."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from models.base import Count, Frozen, Name

SecondsPerMillionTokens = Annotated[float, Field(ge=0, json_schema_extra={"unit": "s/million tokens"})]


class StudyPoint(Frozen):
    """A member with a plan, in a unit that all members share."""

    index: Count = Field(description="Number of the member.", examples=[0])
    value: SecondsPerMillionTokens = Field(description="Time of its plan per million tokens.", examples=[0.38])
    lower_bound: SecondsPerMillionTokens | None = Field(
        description="No plan of this member takes less; null: not known.", examples=[0.36]
    )
    num_gpus: Count = Field(description="GPUs that the plan uses.", examples=[16384])


class AxisFindings(Frozen):
    """One axis: of neighbouring values, all else equal, how many differences are proven."""

    pointer: str = Field(max_length=300, description="What varies.", examples=["/constraints/max_gpus"])
    values: tuple[Any, ...] = Field(description="Its values.", examples=[[8192, 16384]])
    num_pairs: Count = Field(description="Pairs of neighbours of which both have plans.", examples=[3])
    num_decided: Count = Field(
        description="Of these, pairs whose order no longer search can change: one's plan is below the other's bound.",
        examples=[2],
    )
    says: str = Field(max_length=300, description="The same in words.", examples=["2 of 3 differences are proven"])


class StudyFindings(Frozen):
    """What the plans of a study, with their bounds, say together."""

    stack_profiles: tuple[Name, ...] = Field(
        description="Software profiles under the plans; more than one: some differences are the profile's.",
        examples=[["megatron-2025"]],
    )
    points: tuple[StudyPoint, ...] = Field(description="Members with plans.", examples=[[{}]])
    frontier: tuple[Count, ...] = Field(
        description="Members than which none has both fewer GPUs and a shorter time, fewest GPUs first.",
        examples=[[3, 1]],
    )
    best: Count | None = Field(description="The member with the shortest time; null without plans.", examples=[1])
    may_be_best: tuple[Count, ...] = Field(
        description="Other members whose bound is below that time: a longer search may find them as good or better.",
        examples=[[0]],
    )
    axes: tuple[AxisFindings, ...] = Field(description="The axes, one by one.", examples=[[{}]])
    says: str = Field(
        max_length=600, description="In words; says so where the differences are below the gaps.",
        examples=["member 1 is the fastest: no longer search changes that"],
    )  # fmt: skip
