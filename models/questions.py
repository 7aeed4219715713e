"""Questions about a request, and their answers: why there is no plan, and what changes would be worth."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, RootModel, model_validator

from models.base import Count, Frozen, Name, OfObjective, Seconds, check_unique
from models.least import Frontier, FrontierAnswer, Sizing, SizingAnswer
from models.outcome import Reason
from models.question_parts import Change, Gain, QuestionBase, Status, Witness
from models.robust import Robust, RobustAnswer
from models.what_now import WhatIfLost, WhatIfLostAnswer, WhatNow, WhatNowAnswer
from models.worth import Curves, CurvesAnswer, Worth, WorthAnswer

MAX_VARIANTS = 200


class WhyNot(QuestionBase):
    """Why is there no plan? Which wishes clash, with what, and the least that has to give."""

    ask: Literal["why_not"] = Field("why_not", description="Tag.", examples=["why_not"])


class Variant(Frozen):
    """One changed world."""

    name: Name = Field(description="What it is called; unique.", examples=["400 Gb/s more"])
    changes: Annotated[tuple[Change, ...], Field(min_length=1, max_length=100)] = Field(
        description="What differs from the request.",
        examples=[[{"pointer": "/cluster/links/0/latency_s", "value": 0.002}]],
    )


class WhatIf(QuestionBase):
    """What would each of these changes gain or lose?"""

    ask: Literal["what_if"] = Field("what_if", description="Tag.", examples=["what_if"])
    variants: Annotated[tuple[Variant, ...], Field(min_length=1, max_length=MAX_VARIANTS)] = Field(
        description="Changed worlds, each beside the same base.", examples=[[{"name": "2 ms", "changes": [{}]}]]
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = sorted(variant.name for variant in self.variants)
        check_unique(names, "two variants are called {!r}: give each a name of its own")
        return self


Question = Annotated[
    WhyNot | WhatIf | WhatNow | WhatIfLost | Robust | Worth | Curves | Sizing | Frontier, Field(discriminator="ask")
]


class AnyQuestion(RootModel[Question]):
    """A question of any kind; `ask` says which."""


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


class WhatIfAnswer(Frozen):
    """What each change gains, as intervals that the bounds of both sides prove."""

    ask: Literal["what_if"] = Field("what_if", description="Tag.", examples=["what_if"])
    outcome: Status = Field(description="What became of the base.", examples=["planned"])
    unit: Name = Field(description="Unit of values and gains; the lower a value, the better.", examples=["s/iteration"])
    stack_profile: Name = Field(description="The one software profile under all plans.", examples=["megatron-2025"])
    value: OfObjective | None = Field(description="Value of the base's best plan found.", examples=[6.4])
    lower_bound: OfObjective | None = Field(description="No plan of the base has a lower value.", examples=[6.2])
    plan: Witness | None = Field(description="The base's plan; null without one.", examples=[None])
    reasons: tuple[Reason, ...] = Field((), description="Why the base has none, if that is proven.", examples=[[]])
    gains: tuple[Gain, ...] = Field(description="One per variant, in their order.", examples=[[{}]])
    complete: bool = Field(description="Whether every variant had its turn.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[60.0])


Reply = Annotated[
    WhyNotAnswer
    | WhatIfAnswer
    | WhatNowAnswer
    | WhatIfLostAnswer
    | RobustAnswer
    | WorthAnswer
    | CurvesAnswer
    | SizingAnswer
    | FrontierAnswer,
    Field(discriminator="ask"),
]
