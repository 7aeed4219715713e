"""What questions and answers share: a change at a JSON Pointer, whose request it is made to, a witness, a gain."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from models.base import Count, Frozen, JoinedName, OfObjective, Relative, Seconds, TimeLimit
from models.outcome import Reason
from models.plan import Configuration, Crossing, Plan, Route
from models.request import PlanRequest

ChangeKind = Literal["replace", "add", "remove", "increase", "multiply"]
Status = Literal["planned", "infeasible", "not_found"]
Pointer = Annotated[str, Field(min_length=2, max_length=300, pattern="^/")]


class Change(Frozen):
    """One change of a request at a JSON Pointer; in a list, a part may also be the id of an element, or * for all."""

    pointer: Pointer = Field(description="Where.", examples=["/cluster/links/east-west/capacity_bytes_per_s"])
    op: ChangeKind = Field(
        "replace",
        description="replace: put the value there. add: append it to the list. remove: take away an element, or set a "
        "field to null. increase: add the value to the number there. multiply: multiply the number by it.",
        examples=["increase"],
    )
    value: Any = Field(None, description="The value; not used by remove.", examples=[5e10])

    @model_validator(mode="after")
    def _number_given(self) -> Self:
        is_number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if self.op in ("increase", "multiply") and not is_number:
            raise ValueError(f"{self.op} needs a number: give one as value")
        return self


Changes = Annotated[tuple[Change, ...], Field(max_length=100)]


class Limits(Frozen):
    """How long a question may take, all its searches together."""

    time_limit_s: TimeLimit = Field(
        60.0, description="Wall-clock time; what is known then is the answer.", examples=[60.0]
    )


class QuestionBase(Frozen):
    """What every question holds: a request, or the stored plan whose request it is."""

    request: PlanRequest | None = Field(
        None,
        description="The request asked about; its time limit is that of its own plan. Null: that of `plan_id`.",
        examples=[{"cluster": "two-buildings", "workload": {"architecture": "llama-3.1-405b"}}],
    )
    plan_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,40}$")] | None = Field(
        None,
        description="A stored plan, asked about instead of a request: nothing is searched again that it has.",
        examples=[None],
    )
    plan: Plan | None = Field(
        None,
        description="The plan of the request to begin with, where it has one that the judge accepts. The service fills "
        "it in from `plan_id`.",
        examples=[None],
    )
    changes: Changes = Field((), description="Made to the request before anything is asked.", examples=[[]])
    options: Limits = Field(default_factory=Limits, description="How long to look.", examples=[{"time_limit_s": 60}])

    @model_validator(mode="after")
    def _something_is_named(self) -> Self:
        if self.request is None and self.plan_id is None:
            raise ValueError("the question is about nothing: give a request, or the plan_id of a stored plan")
        return self

    @property
    def asked(self) -> PlanRequest:
        """The request asked about, once it is filled in."""
        assert self.request is not None
        return self.request


class Witness(Frozen):
    """A judged plan in short: configuration and places are enough to time it again."""

    iteration_s: Seconds = Field(description="Its iteration time.", examples=[6.45])
    num_gpus: Count = Field(description="GPUs that it uses.", examples=[16384])
    crossing: Crossing = Field(description="Which dimension crosses buildings.", examples=["dp_out"])
    configuration: Configuration = Field(description="Everything that does not say where.", examples=[{}])
    routes: tuple[Route, ...] = Field(description="Where its replicas are.", examples=[[]])


class Gain(Frozen):
    """What one variant gains over the base: an interval that holds the difference of the two best plans there are."""

    name: JoinedName = Field(description="The variant.", examples=["400 Gb/s more"])
    status: Status | Literal["not_tried"] = Field(
        description="What is known of it; planned also where a plan with less is one of it. not_tried: time ran out.",
        examples=["planned"],
    )
    direction: Literal["more", "less"] | None = Field(
        None,
        description="more: nothing but more capacity, memory, hosts or freedom, or less distance and loss, which never "
        "hurts: the gain is 0 or more. less: the reverse. Null: neither.",
        examples=["more"],
    )
    least: OfObjective | None = Field(
        description="The best plan improves by at least this, in `unit`; below 0: a loss. Null: not known.",
        examples=[0.11],
    )
    most: OfObjective | None = Field(description="And by at most this; null: not known.", examples=[0.38])
    least_fraction: Relative | None = Field(
        description="`least` over the value of the base's best plan found.", examples=[0.02]
    )
    most_fraction: Relative | None = Field(description="`most` over the same.", examples=[0.06])
    verdict: Literal["gains", "loses", "changes nothing", "not decided yet", "no plan"] = Field(
        description="changes nothing: the interval is 0, proven. not decided yet: it includes 0 and more.",
        examples=["gains"],
    )
    value: OfObjective | None = Field(description="Value of the best plan found, in `unit`.", examples=[6.1])
    lower_bound: OfObjective | None = Field(description="No plan of the variant has a lower value.", examples=[5.9])
    plan: Witness | None = Field(description="The plan; null without one.", examples=[None])
    reasons: tuple[Reason, ...] = Field((), description="Why there is none, if that is proven.", examples=[[]])
