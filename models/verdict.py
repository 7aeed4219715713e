"""What the judge says of a plan: broken rules, and the fields that it does not judge."""

from __future__ import annotations

from pydantic import Field

from models.base import Frozen, Name


class Violation(Frozen):
    """A rule that a plan breaks, as the judge names it."""

    rule: Name = Field(description="Name of the rule.", examples=["pool-capacity"])
    where: str = Field(max_length=300, description="Which object.", examples=["pool east-1-h100"])
    detail: str = Field(max_length=600, description="The numbers that clash.", examples=["9000 GPUs used, 8192 free"])


class Unjudged(Frozen):
    """A field that the judge neither derived nor checked, and why."""

    pointer: str = Field(
        max_length=300,
        description="JSON Pointer (RFC 6901) of the field; all inside it counts.",
        examples=["/convergence"],
    )
    reason: str = Field(
        max_length=600, description="Why, and what the judge could confirm.", examples=["the search is not repeated"]
    )


class Verdict(Frozen):
    """What the judge says of the plan."""

    accepted: bool = Field(description="No rule is broken.", examples=[True])
    rules_checked: tuple[Name, ...] = Field(description="Rules that were checked.", examples=[["pool-capacity"]])
    violations: tuple[Violation, ...] = Field((), max_length=1000, description="Rules that are broken.", examples=[[]])
    unjudged: tuple[Unjudged, ...] = Field(
        (),
        max_length=10_000,
        description="What the judge did not derive anew; every other figure follows from the request and the plan's "
        "own decisions.",
        examples=[[{"pointer": "/convergence", "reason": "the search is not repeated"}]],
    )
