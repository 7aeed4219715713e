"""What is it worth? A little and much more of all that a request has so much of, and all of it in one building."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from models.base import Frozen, JoinedName, Name, OfObjective, PositiveFraction, Relative, Seconds
from models.outcome import Reason
from models.question_parts import Change, Gain, Pointer, QuestionBase, Status, Witness

ResourceKind = Literal["link", "uplink", "hosts", "network_cards", "memory", "limit"]
Quantity = Literal["bandwidth", "latency", "memory"]
Factor = Annotated[float, Field(gt=0, le=1000, json_schema_extra={"unit": "1"})]


class Worth(QuestionBase):
    """What is a little, and what is much more of every link, pool and limit worth; what does distance cost?"""

    ask: Literal["worth"] = Field("worth", description="Tag.", examples=["worth"])
    of: Annotated[tuple[Literal["links", "pools", "limits", "distance"], ...], Field(min_length=1, max_length=4)] = (
        Field(
            ("links", "pools", "limits", "distance"),
            description="links: capacity, and oversubscription of uplinks. pools: hosts, network cards, memory. "
            "limits: what the constraints state. distance: the same GPUs in one building.",
            examples=[["links", "distance"]],
        )
    )
    small_fraction: PositiveFraction = Field(0.1, description="The small increase, over what there is.", examples=[0.1])
    useful_fraction: Annotated[float, Field(gt=0, le=100, json_schema_extra={"unit": "1"})] = Field(
        1.0, description="The useful increase, over what there is; a limit is given up.", examples=[1.0]
    )


class Value(Frozen):
    """What more of one resource is worth."""

    kind: ResourceKind = Field(description="What it is.", examples=["link"])
    name: JoinedName = Field(description="Which one.", examples=["link east-west"])
    together: bool = Field(description="Whether these are all of the kind.", examples=[False])
    there: str = Field(max_length=300, description="How much there is.", examples=["3,200 Gb/s east to west"])
    small: Gain | None = Field(description="Gain of the small increase; null: it is no number.", examples=[{}])
    useful: Gain = Field(description="Gain of the useful increase.", examples=[{}])
    useful_changes: tuple[Change, ...] = Field(description="The useful increase, as changes.", examples=[[{}]])
    plan_held_s: Seconds | None = Field(
        description="Seconds that the useful increase saves while the plan stays as it is, by the dual prices of its "
        "links; a better plan may save more. Null: no dual is known.",
        examples=[0.02],
    )


class WorthAnswer(Frozen):
    """What more of each resource is worth, the most valuable first."""

    ask: Literal["worth"] = Field("worth", description="Tag.", examples=["worth"])
    outcome: Status = Field(description="What became of the request as it is.", examples=["planned"])
    unit: Name = Field(description="Unit of values and gains; the lower a value, the better.", examples=["s/iteration"])
    stack_profile: Name = Field(description="The one software profile under all plans.", examples=["megatron-2025"])
    value: OfObjective | None = Field(description="Value of the best plan found.", examples=[6.4])
    lower_bound: OfObjective | None = Field(description="No plan has a lower value.", examples=[6.2])
    plan: Witness | None = Field(description="The plan; null without one.", examples=[None])
    reasons: tuple[Reason, ...] = Field((), description="Why there is none, if that is proven.", examples=[[]])
    values: tuple[Value, ...] = Field(
        description="First what is proven to gain most, then what gained most between the plans found.", examples=[[{}]]
    )
    in_one_building: Gain | None = Field(
        description="What the same GPUs gain in one building, by a search of its own: the cost of distance. "
        "It may be negative as well; null: not asked.",
        examples=[None],
    )
    complete: bool = Field(description="Whether everything had its turn.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[60.0])


class Curves(QuestionBase):
    """How does the best plan change with the bandwidth, latency or memory?"""

    ask: Literal["curves"] = Field("curves", description="Tag.", examples=["curves"])
    over: Annotated[tuple[Quantity | Pointer, ...], Field(min_length=1, max_length=10)] = Field(
        ("bandwidth", "latency", "memory"),
        description="bandwidth and latency: of all links. memory: of all GPUs. Or the pointer of a number.",
        examples=[["bandwidth"]],
    )
    factors: Annotated[tuple[Factor, ...], Field(min_length=1, max_length=20)] = Field(
        (0.25, 0.5, 2.0, 4.0),
        description="What is there is multiplied by each; 1, as it is, is a point in any case.",
        examples=[[0.5, 2.0]],
    )


class CurvePoint(Frozen):
    """The best plan at one factor."""

    factor: Factor = Field(description="Over what the request states.", examples=[0.5])
    status: Status | Literal["not_tried", "refused"] = Field(
        description="What its search ended with; not_tried: time ran out; refused: no such request, `detail` says why.",
        examples=["planned"],
    )
    value: OfObjective | None = Field(description="Value of the best plan found, there or with less.", examples=[6.4])
    lower_bound: OfObjective | None = Field(
        description="No plan has a lower value, there or with less.", examples=[6.2]
    )
    relative_gap: Relative | None = Field(description="(value - bound) / value.", examples=[0.03])
    plan: Witness | None = Field(description="The plan; null without one.", examples=[None])
    detail: str = Field("", max_length=600, description="Why there is none.", examples=[""])


class Curve(Frozen):
    """The best plan over one quantity."""

    over: str = Field(max_length=300, description="The quantity, as asked.", examples=["bandwidth"])
    monotone: bool = Field(
        description="Whether more of it, or less, is known never to hurt: plans and bounds then hold for neighbours.",
        examples=[True],
    )
    points: tuple[CurvePoint, ...] = Field(description="By factor, the least first.", examples=[[{}]])


class CurvesAnswer(Frozen):
    """Curves of the best plan's value, each point with its plan and its bound."""

    ask: Literal["curves"] = Field("curves", description="Tag.", examples=["curves"])
    outcome: Status = Field(description="What became of the request as it is.", examples=["planned"])
    unit: Name = Field(description="Unit of the values; the lower, the better.", examples=["s/iteration"])
    stack_profile: Name = Field(description="The one software profile under all plans.", examples=["megatron-2025"])
    reasons: tuple[Reason, ...] = Field((), description="Why there is no plan, if that is proven.", examples=[[]])
    curves: tuple[Curve, ...] = Field(description="One per quantity, in their order.", examples=[[{}]])
    complete: bool = Field(description="Whether every point had its turn.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[60.0])
