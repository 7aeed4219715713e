"""Questions about a request, and their answers: why there is no plan, and what changes would be worth.

Owns the one grammar: a question names a request and changes it by JSON Pointer; an answer holds intervals, the plans
behind them and what remains undecided. Nothing here computes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, RootModel, model_validator

from models.base import Count, Frozen, Name, Seconds
from models.outcome import Reason
from models.plan import Configuration, Crossing, Route
from models.request import PlanRequest

ChangeKind = Literal["replace", "add", "remove", "increase", "multiply"]
Status = Literal["planned", "infeasible", "not_found"]
MAX_VARIANTS = 200
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

    time_limit_s: Annotated[float, Field(gt=0, le=86_400, json_schema_extra={"unit": "s"})] = Field(
        60.0, description="Wall-clock time; what is known then is the answer.", examples=[60.0]
    )


class _Question(Frozen):
    """What every question holds."""

    request: PlanRequest = Field(
        description="The request asked about; its time limit is that of its own plan.",
        examples=[{"cluster": "two-buildings", "workload": {"architecture": "llama-3.1-405b"}}],
    )
    changes: Changes = Field((), description="Made to the request before anything is asked.", examples=[[]])
    options: Limits = Field(default_factory=Limits, description="How long to look.", examples=[{"time_limit_s": 60}])


class WhyNot(_Question):
    """Why is there no plan? Which wishes clash, with what, and the least that has to give."""

    ask: Literal["why_not"] = Field("why_not", description="Tag.", examples=["why_not"])


class Variant(Frozen):
    """One changed world."""

    name: Name = Field(description="What it is called; unique.", examples=["400 Gb/s more"])
    changes: Annotated[tuple[Change, ...], Field(min_length=1, max_length=100)] = Field(
        description="What differs from the request.",
        examples=[[{"pointer": "/cluster/links/0/latency_s", "value": 0.002}]],
    )


class WhatIf(_Question):
    """What would each of these changes gain or lose?"""

    ask: Literal["what_if"] = Field("what_if", description="Tag.", examples=["what_if"])
    variants: Annotated[tuple[Variant, ...], Field(min_length=1, max_length=MAX_VARIANTS)] = Field(
        description="Changed worlds, each beside the same base.", examples=[[{"name": "2 ms", "changes": [{}]}]]
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [variant.name for variant in self.variants]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two variants are called {twice[0]!r}: give each a name of its own")
        return self


Question = Annotated[WhyNot | WhatIf, Field(discriminator="ask")]


class AnyQuestion(RootModel[Question]):
    """A question of any kind; `ask` says which."""


class Witness(Frozen):
    """A judged plan in short: configuration and places are enough to time it again."""

    iteration_s: Seconds = Field(description="Its iteration time.", examples=[6.45])
    num_gpus: Count = Field(description="GPUs that it uses.", examples=[16384])
    crossing: Crossing = Field(description="Which dimension crosses buildings.", examples=["dp_out"])
    configuration: Configuration = Field(description="Everything that does not say where.", examples=[{}])
    routes: tuple[Route, ...] = Field(description="Where its replicas are.", examples=[[]])


class Wish(Frozen):
    """A constraint that the request states, which its writer could give up."""

    name: Name = Field(description="Name used in conflicts.", examples=["constraints.allowed.tp"])
    pointer: str = Field(max_length=300, description="Where it stands.", examples=["/constraints/allowed/tp"])
    stated: str = Field(max_length=300, description="What it says.", examples=["[8]"])


class Conflict(Frozen):
    """Wishes that no plan meets together, though without any one of them there is one."""

    wishes: tuple[Name, ...] = Field(
        description="Their names; none: what is wished for is not the cause.", examples=[["constraints.allowed.tp"]]
    )
    physics: tuple[Name, ...] = Field(
        description="What of the hardware they clash with: parts without which these wishes could be met. None: the "
        "wishes clash among themselves, or no single part stands in the way.",
        examples=[["memory of the GPUs"]],
    )
    minimal: bool = Field(
        description="Whether each wish is proven to be needed: without it there is a plan.", examples=[True]
    )
    unsure: tuple[Name, ...] = Field(
        (), description="Wishes without which it is not decided whether there is a plan.", examples=[[]]
    )
    reasons: tuple[Reason, ...] = Field(description="Why no plan meets these wishes alone.", examples=[[{}]])


class Relaxation(Frozen):
    """A change after which there is a plan."""

    kind: Literal["wish", "hardware"] = Field(
        description="wish: something that was asked for is given up. hardware: something has to be bought.",
        examples=["wish"],
    )
    text: str = Field(max_length=600, description="The change in words.", examples=["allow tp 16"])
    changes: tuple[Change, ...] = Field(description="The change, to be made to the request.", examples=[[{}]])
    least_proven: str = Field(
        "", max_length=300, description="The largest step known not to be enough; empty: none was tried.", examples=[""]
    )
    plan: Witness = Field(description="The plan that there is then.", examples=[{}])


class WhyNotAnswer(Frozen):
    """Why there is no plan: every minimal conflict among the wishes, and the least that has to give."""

    ask: Literal["why_not"] = Field("why_not", description="Tag.", examples=["why_not"])
    outcome: Status = Field(description="What became of the request as it is.", examples=["infeasible"])
    wishes: tuple[Wish, ...] = Field(description="The wishes that the request states.", examples=[[{}]])
    conflicts: tuple[Conflict, ...] = Field(description="The conflicts found, the shortest first.", examples=[[{}]])
    relaxations: tuple[Relaxation, ...] = Field(
        description="Changes that lead to a plan, verified; fewest wishes first, hardware last.", examples=[[{}]]
    )
    undecided: tuple[tuple[Name, ...], ...] = Field(
        description="Sets of wishes of which neither a plan nor a proof was found in time.", examples=[[]]
    )
    complete: bool = Field(
        description="True: these are all minimal conflicts. False: time ran out, or sets are undecided.",
        examples=[True],
    )
    num_searches: Count = Field(description="Searches that were made.", examples=[12])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[4.2])
    plan: Witness | None = Field(None, description="A plan of the request as it is, if it has one.", examples=[None])


class Gain(Frozen):
    """What one variant gains over the base: an interval that holds the difference of the two best plans there are."""

    name: Name = Field(description="The variant.", examples=["400 Gb/s more"])
    status: Status | Literal["not_tried"] = Field(
        description="What its search ended with; not_tried: time ran out.", examples=["planned"]
    )
    direction: Literal["more", "less"] | None = Field(
        None,
        description="more: nothing but more capacity, memory, hosts or freedom, or less distance and loss, which never "
        "hurts: the gain is 0 or more. less: the reverse. Null: neither.",
        examples=["more"],
    )
    least: float | None = Field(
        description="The best plan improves by at least this, in `unit`; below 0: a loss. Null: not known.",
        examples=[0.11],
        json_schema_extra={"unit": "unit of the objective"},
    )
    most: float | None = Field(
        description="And by at most this; null: not known.",
        examples=[0.38],
        json_schema_extra={"unit": "unit of the objective"},
    )
    least_fraction: float | None = Field(
        description="`least` over the value of the base's best plan found.",
        examples=[0.02],
        json_schema_extra={"unit": "1"},
    )
    most_fraction: float | None = Field(
        description="`most` over the same.", examples=[0.06], json_schema_extra={"unit": "1"}
    )
    verdict: Literal["gains", "loses", "not decided yet", "no plan"] = Field(
        description="not decided yet: the interval includes 0.", examples=["gains"]
    )
    value: float | None = Field(
        description="Value of the best plan found, in `unit`.",
        examples=[6.1],
        json_schema_extra={"unit": "unit of the objective"},
    )
    lower_bound: float | None = Field(
        description="No plan of the variant has a lower value.",
        examples=[5.9],
        json_schema_extra={"unit": "unit of the objective"},
    )
    plan: Witness | None = Field(description="The plan; null without one.", examples=[None])
    reasons: tuple[Reason, ...] = Field((), description="Why there is none, if that is proven.", examples=[[]])


class WhatIfAnswer(Frozen):
    """What each change gains, as intervals that the bounds of both sides prove."""

    ask: Literal["what_if"] = Field("what_if", description="Tag.", examples=["what_if"])
    outcome: Status = Field(description="What became of the base.", examples=["planned"])
    unit: Name = Field(description="Unit of values and gains; the lower a value, the better.", examples=["s/iteration"])
    stack_profile: Name = Field(description="The one software profile under all plans.", examples=["megatron-2025"])
    value: float | None = Field(
        description="Value of the base's best plan found.",
        examples=[6.4],
        json_schema_extra={"unit": "unit of the objective"},
    )
    lower_bound: float | None = Field(
        description="No plan of the base has a lower value.",
        examples=[6.2],
        json_schema_extra={"unit": "unit of the objective"},
    )
    plan: Witness | None = Field(description="The base's plan; null without one.", examples=[None])
    reasons: tuple[Reason, ...] = Field((), description="Why the base has none, if that is proven.", examples=[[]])
    gains: tuple[Gain, ...] = Field(description="One per variant, in their order.", examples=[[{}]])
    complete: bool = Field(description="Whether every variant had its turn.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[60.0])


Reply = Annotated[WhyNotAnswer | WhatIfAnswer, Field(discriminator="ask")]
