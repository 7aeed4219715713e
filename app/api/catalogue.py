"""What a client can name or copy: examples, catalogue entries, issue codes.

Routes only; everything here ships with the program.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from app.api.answers import IssueType
from app.api.examples import title
from app.api.problems import DEFAULT_STATUS, STATUSES, documented, not_found
from app.faults import ISSUE_TYPES
from models.catalogue import Kind, entry_names, named_entry

router = APIRouter(prefix="/v1", tags=["catalogue"])
PublicKind = Literal["gpus", "models", "clusters"]
EntryName = Annotated[str, Path(max_length=120, description="Name of the entry.")]


class ExampleLink(BaseModel):
    """One example request."""

    id: str = Field(description="Name of the example.", examples=["llama-405b-two-buildings"])
    title: str = Field(description="The name in words.", examples=["Llama 405b two buildings"])
    href: str = Field(description="Where the body is.", examples=["/v1/examples/llama-405b-two-buildings"])


@router.get("/examples", response_model=list[ExampleLink], summary="List requests that are ready to post")
def list_examples() -> list[ExampleLink]:
    """Each can be sent to POST /v1/plans as it is."""
    return [ExampleLink(id=name, title=title(name), href=f"/v1/examples/{name}") for name in entry_names("examples")]


@router.get("/examples/{name}", response_model=dict[str, Any], responses=documented(400, 404),
            summary="Read an example request")  # fmt: skip
def read_example(name: EntryName) -> Any:
    """A body for POST /v1/plans."""
    return _entry("examples", name)


@router.get("/catalogue/{kind}", response_model=list[str], responses=documented(400), summary="List catalogue entries")
def list_catalogue(kind: PublicKind) -> list[str]:
    """Names that a request may use in place of the whole object."""
    return list(entry_names(kind))


@router.get("/catalogue/{kind}/{name}", response_model=dict[str, Any], responses=documented(400, 404),
            summary="Read a catalogue entry")  # fmt: skip
def read_catalogue(kind: PublicKind, name: EntryName) -> Any:
    """The whole object, with the source of its numbers."""
    return _entry(kind, name)


@router.get("/issue-types", response_model=list[IssueType], summary="List the codes that problems carry")
def list_issue_types() -> list[IssueType]:
    """The published catalogue: codes are never renamed."""
    return [
        IssueType(code=code, status=STATUSES.get(code, DEFAULT_STATUS), meaning=meaning)
        for code, meaning in ISSUE_TYPES.items()
    ]


def _entry(kind: Kind, name: str) -> Any:
    assert kind in get_args(Kind)
    if name not in entry_names(kind):
        known = ", ".join(entry_names(kind))
        raise not_found(f"{kind} has no entry {name!r}", f"Use one of {known}.")
    return named_entry(kind, name)
