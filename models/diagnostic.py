"""What the linter says of a request: how grave, where, what, and what to do."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from models.base import Frozen, Name

Severity = Literal["error", "warning", "note"]
FROM_TEXT = "text"  # the rule of a warning that a plan of an earlier version states as its text alone
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


class Diagnostic(Frozen):
    """One remark of the linter: an error refuses the request, a warning deserves a look, a note tells what follows."""

    rule: Name = Field(description="The rule that found it.", examples=["latency-unit"])
    severity: Severity = Field(description="How grave it is.", examples=["warning"])
    pointer: str = Field(
        "", max_length=300, description="JSON Pointer into the request.", examples=["/cluster/links/0/latency_s"]
    )
    detail: str = Field(
        max_length=800, description="What was found, with its numbers.", examples=["2 s is 408,000 km of fibre"]
    )
    remedies: tuple[str, ...] = Field((), description="What to do about it.", examples=[["write 2 ms as 0.002"]])


def _from_text(value: Any) -> Any:
    """A warning of an earlier version, which was its text alone."""
    return {"rule": FROM_TEXT, "severity": "warning", "detail": value} if isinstance(value, str) else value


DiagnosticOrText = Annotated[Diagnostic, BeforeValidator(_from_text, json_schema_input_type=Diagnostic | str)]
