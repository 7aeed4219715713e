"""What now? A plan after a loss or a change: what can stay, what has to move, and prepared answers for every loss."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.base import Bytes, Count, Frozen, JoinedName, Name, Seconds, TotalSeconds
from models.cluster import PlaceId
from models.outcome import Reason
from models.plan import Plan
from models.question_parts import Change, QuestionBase, Status, Witness

LossKind = Literal["building", "pool", "link"]
Tolerance = Annotated[float, Field(ge=0, le=100, json_schema_extra={"unit": "1"})]
TOLERANCE = Field(
    0.15,
    description="How much longer than the fastest plan of the changed world an iteration may take, as a part of it, if "
    "that moves fewer stage groups.",
    examples=[0.05],
)


class WhatNow(QuestionBase):
    """Something is lost or has changed under a plan: what is the new plan, and how little has to move?

    `request` and `plan` are those before; `changes` and `lost` say what has happened.
    """

    ask: Literal["what_now"] = Field("what_now", description="Tag.", examples=["what_now"])
    lost: tuple[Name, ...] = Field(
        (), max_length=1000, description="Ids of places, pools and links, and names of hosts, that are gone.",
        examples=[["west"]],
    )  # fmt: skip
    time_tolerance: Tolerance = TOLERANCE

    @model_validator(mode="after")
    def _something_happened(self) -> Self:
        if not self.lost and not self.changes:
            raise ValueError("nothing has happened: name what is lost, or give changes")
        return self


class WhatIfLost(QuestionBase):
    """What now, asked in advance for every building, pool and link that a plan uses, one at a time."""

    ask: Literal["what_if_lost"] = Field("what_if_lost", description="Tag.", examples=["what_if_lost"])
    kinds: tuple[LossKind, ...] = Field(
        ("building", "pool", "link"), min_length=1, max_length=3, description="What may be lost.",
        examples=[["building"]],
    )  # fmt: skip
    time_tolerance: Tolerance = TOLERANCE


class StateMove(Frozen):
    """State that stage groups in a place fetch from another, or from a checkpoint."""

    from_place: PlaceId | None = Field(
        description="Where the nearest copy stands; null: no copy is left, a checkpoint has it.", examples=["east"]
    )
    to_place: PlaceId = Field(description="Where it is needed.", examples=["west"])
    num_groups: Count = Field(
        description="Stage groups that are set up anew there; 0: groups that stay take over larger parts.", examples=[4]
    )
    num_bytes: Bytes = Field(description="Weights and optimizer state.", examples=[1.2e12])
    links: tuple[JoinedName, ...] = Field(description="Links and uplinks on the way.", examples=[["east-west"]])
    seconds: Seconds = Field(
        description="Time at the full rate of links and network cards, beside all other fetches; 0 for a checkpoint, "
        "whose storage is not known.",
        examples=[12.0],
    )


class ReplanPoint(Frozen):
    """One way on: no other plan that was found moves fewer groups and takes less time."""

    num_groups: Count = Field(description="Stage groups: pipeline ranks times replicas.", examples=[1024])
    num_moved: Count = Field(description="Of these, set up where their layers do not stand already.", examples=[0])
    least_moved: Count = Field(description="No plan of this iteration time or less moves fewer: proven.", examples=[0])
    num_untouched_replicas: Count = Field(
        description="Replicas of which nothing moves: they can go on while the others are set up.", examples=[256]
    )
    iteration_s: Seconds = Field(description="Iteration time.", examples=[3.02])
    lower_bound_s: TotalSeconds = Field(description="No plan that moves so few takes less: proven.", examples=[2.9])
    state_bytes: Bytes = Field(description="State that has to be fetched.", examples=[0.0])
    checkpoint_bytes: Bytes = Field(description="Of that, what only a checkpoint has.", examples=[0.0])
    transfer_s: Seconds = Field(description="Longest of the fetches between GPUs.", examples=[0.0])
    fetches: tuple[StateMove, ...] = Field(description="What is fetched, from where to where.", examples=[[]])
    plan: Witness = Field(description="The plan in short.", examples=[{}])


class WhatNowAnswer(Frozen):
    """The ways on after a loss or a change, by moves and by time, and the one that is recommended."""

    ask: Literal["what_now"] = Field("what_now", description="Tag.", examples=["what_now"])
    outcome: Status = Field(description="Whether the changed world has a plan.", examples=["planned"])
    lost: tuple[Name, ...] = Field((), description="What was named as lost.", examples=[["west"]])
    lost_changes: tuple[Change, ...] = Field(
        (), description="The loss as changes, to be made to the request after the question's own.", examples=[[{}]]
    )
    stack_profile: Name = Field(description="The one software profile under all plans.", examples=["megatron-2025"])
    before_s: Seconds | None = Field(
        description="Iteration time of the plan before; null: it had none.", examples=[1.87]
    )
    num_groups_before: Count = Field(description="Stage groups of the plan before.", examples=[1536])
    num_groups_lost: Count = Field(description="Of these, on GPUs that are gone.", examples=[512])
    time_tolerance: Tolerance = Field(description="As asked.", examples=[0.15])
    points: tuple[ReplanPoint, ...] = Field(description="Ways on, fewest moves first.", examples=[[{}]])
    chosen: Count | None = Field(
        description="Number of the point with the fewest moves within the tolerance; null without one.", examples=[0]
    )
    lower_bound_s: TotalSeconds = Field(
        description="No plan of the changed world takes less, whatever moves: proven.", examples=[2.5]
    )
    reasons: tuple[Reason, ...] = Field((), description="Why there is none, if that is proven.", examples=[[]])
    complete: bool = Field(description="Whether every step had its turn.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[30.0])
    plan: Plan | None = Field(
        None, description="The chosen plan, judged; null until the end, and without one.", examples=[None]
    )


class PreparedLoss(Frozen):
    """The answer for one loss."""

    kind: LossKind = Field(description="What is lost.", examples=["building"])
    name: Name = Field(description="Its id.", examples=["west"])
    answer: WhatNowAnswer | None = Field(description="What then; null: not tried, time ran out.", examples=[None])


class WhatIfLostAnswer(Frozen):
    """Prepared answers, one for each loss."""

    ask: Literal["what_if_lost"] = Field("what_if_lost", description="Tag.", examples=["what_if_lost"])
    stack_profile: Name = Field(description="The one software profile under all plans.", examples=["megatron-2025"])
    before_s: Seconds | None = Field(
        description="Iteration time of the plan before; null: it had none.", examples=[1.87]
    )
    losses: tuple[PreparedLoss, ...] = Field(description="Buildings, then pools, then links.", examples=[[{}]])
    complete: bool = Field(description="Whether every loss had its turn.", examples=[True])
    elapsed_s: Seconds = Field(description="Time spent.", examples=[30.0])
