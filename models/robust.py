"""What if we are wrong? A plan for several worlds: the one whose worst, or expected, iteration is the shortest."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from models.base import Count, Frozen, Name, Seconds, SignedSeconds, TotalSeconds
from models.outcome import Reason
from models.question_parts import Change, Pointer, QuestionBase, Status, Witness

MAX_SCENARIOS = 64
MAX_RANGES = 5  # whose corners are 32 scenarios
Weight = Annotated[float, Field(gt=0, le=1e6, json_schema_extra={"unit": "1"})]


class SlowPool(Frozen):
    """A pool whose GPUs compute more slowly than their type."""

    pool: Name = Field(description="Its id.", examples=["west-h100"])
    times: Annotated[float, Field(gt=1, le=100, json_schema_extra={"unit": "1"})] = Field(
        description="How many times as long its GPUs take.", examples=[1.15]
    )


class Scenario(Frozen):
    """A world that may turn out to be the real one."""

    name: Name = Field(
        description="What it is called; unique among worlds, of which one is 'as requested'.", examples=["evening"]
    )
    changes: Annotated[tuple[Change, ...], Field(max_length=100)] = Field(
        (),
        description="What differs from the request.",
        examples=[[{"pointer": "/cluster/links/east-west/background_bytes_per_s", "value": 2e10}]],
    )
    slow_pools: Annotated[tuple[SlowPool, ...], Field(max_length=100)] = Field(
        (), description="Pools that straggle in it.", examples=[[]]
    )
    weight: Weight = Field(1.0, description="How often it is the real one, relative to the others.", examples=[8.0])

    @model_validator(mode="after")
    def _differs(self) -> Self:
        if not self.changes and not self.slow_pools:
            raise ValueError(f"scenario {self.name!r} changes nothing: give changes or slow_pools")
        return self


class Range(Frozen):
    """A value that is not known, but for its limits. All corners of the ranges together are scenarios."""

    name: Name = Field(description="What it is called.", examples=["latency"])
    pointer: Pointer = Field(description="Where.", examples=["/cluster/links/east-west/latency_s"])
    values: Annotated[tuple[Any, Any], Field()] = Field(
        description="The lower and the upper limit.", examples=[[0.002, 0.006]]
    )


class Robust(QuestionBase):
    """Which plan is best when it is not known which of several worlds is the real one?"""

    ask: Literal["robust"] = Field("robust", description="Tag.", examples=["robust"])
    scenarios: Annotated[tuple[Scenario, ...], Field(max_length=MAX_SCENARIOS)] = Field(
        (), description="Worlds.", examples=[[{}]]
    )
    ranges: Annotated[tuple[Range, ...], Field(max_length=MAX_RANGES)] = Field(
        (), description="Values between limits.", examples=[[]]
    )
    measure: Literal["worst", "expected"] = Field(
        "worst", description="worst: the longest iteration over the worlds. expected: their weighted mean.",
        examples=["worst"],
    )  # fmt: skip
    with_request: bool = Field(True, description="Whether the request as it is counts as a world.", examples=[True])

    @model_validator(mode="after")
    def _several_worlds(self) -> Self:
        if not self.scenarios and not self.ranges:
            raise ValueError("there is one world only: give scenarios or ranges")
        if len(self.scenarios) + 2 ** len(self.ranges) * bool(self.ranges) > MAX_SCENARIOS:
            raise ValueError(f"more than {MAX_SCENARIOS} worlds: give fewer scenarios or ranges")
        return self


class ScenarioFigure(Frozen):
    """What the plan does in one world, beside the best that this world alone would allow."""

    name: Name = Field(description="The world.", examples=["evening"])
    weight: Annotated[float, Field(ge=0)] = Field(
        description="Its part of the expected iteration; 0: it does not count.", examples=[0.5],
        json_schema_extra={"unit": "1"},
    )  # fmt: skip
    status: Status = Field(description="Whether this world has a plan.", examples=["planned"])
    iteration_s: Seconds | None = Field(
        description="Iteration time of the robust plan; null: it does not run here, or there is none.", examples=[6.9]
    )
    request_plan_s: Seconds | None = Field(
        description="The same of the plan that is best for the request as it is.", examples=[7.4]
    )
    best_s: Seconds | None = Field(description="Best plan found for this world alone.", examples=[6.7])
    lower_bound_s: TotalSeconds = Field(description="No plan takes less in this world: proven.", examples=[6.5])
    reasons: tuple[Reason, ...] = Field((), description="Why there is none, if that is proven.", examples=[[]])


class RobustAnswer(Frozen):
    """The plan for all worlds, its figure in each, what that costs where nothing goes wrong, and what it saves."""

    ask: Literal["robust"] = Field("robust", description="Tag.", examples=["robust"])
    outcome: Status = Field(
        description="planned: a plan runs in every world. infeasible: some world has none.", examples=["planned"]
    )
    measure: Literal["worst", "expected"] = Field(description="As asked.", examples=["worst"])
    stack_profile: Name = Field(description="The one software profile under all plans.", examples=["megatron-2025"])
    value_s: Seconds | None = Field(description="Worst or expected iteration of the plan.", examples=[7.0])
    lower_bound_s: TotalSeconds = Field(
        description="No plan has a shorter worst, or expected, one: proven.", examples=[6.8]
    )
    request_plan_value_s: Seconds | None = Field(
        description="The same of the plan that is best for the request as it is; null: it does not run everywhere.",
        examples=[7.4],
    )
    least_price_s: SignedSeconds | None = Field(
        description="Price of robustness: in the world of the request, the plan takes at least so much longer than "
        "the best plan there is.",
        examples=[0.0],
    )
    most_price_s: SignedSeconds | None = Field(
        description="And at most so much longer: proven by the bound of that world.", examples=[0.2]
    )
    figures: tuple[ScenarioFigure, ...] = Field(description="World by world; the request first.", examples=[[{}]])
    plan: Witness | None = Field(description="The plan; null without one.", examples=[None])
    num_compared: Count = Field(description="Plans that were timed in every world.", examples=[40])
    complete: bool = Field(description="False: stopped, or some world was not searched.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[60.0])
