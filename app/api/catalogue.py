"""What a client can name or copy: examples, catalogue entries, issue codes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from app.api.examples import REQUEST_EXAMPLES, about, title
from app.api.problems import ISSUE_TYPES, documented, not_found
from app.api.strict import StrictRoute
from app.wire import IssueType
from models.catalogue import Kind, entry_names, named_entry

router = APIRouter(prefix="/v1", tags=["catalogue"], route_class=StrictRoute)
PublicKind = Annotated[
    Literal["gpus", "models", "clusters", "frameworks", "stacks"],
    Path(
        description="gpus: GPU types; models: architectures; clusters; frameworks: what training frameworks can run; "
        "stacks: calibrated software-stack profiles, for options.stack_profile."
    ),
]
EntryName = Annotated[str, Path(max_length=120, description="Name of the entry, as the list shows it.")]


def _showing(kind: Kind, name: str) -> dict[int | str, dict[str, Any]]:
    """An entry as the example of an answer in the OpenAPI document."""
    return {200: {"content": {"application/json": {"example": named_entry(kind, name)}}}}


class ExampleLink(BaseModel):
    """One example request."""

    id: str = Field(description="Name of the example.", examples=["llama-405b-two-buildings"])
    title: str = Field(description="The name in words.", examples=["Llama 405b two buildings"])
    description: str = Field(
        description="What it plans, and how large that is.",
        examples=["llama-3.1-405b on up to 16,384 GPUs of cluster two-buildings."],
    )
    href: str = Field(description="Where the body is.", examples=["/v1/examples/llama-405b-two-buildings"])


@router.get("/examples", response_model=list[ExampleLink], summary="List requests that are ready to post",
            response_description="Names and addresses of the examples.")  # fmt: skip
def list_examples() -> list[ExampleLink]:
    """Each can be sent to POST /v1/plans as it is; from small to large."""
    return [
        ExampleLink(id=name, title=title(name), description=about(name), href=f"/v1/examples/{name}")
        for name in REQUEST_EXAMPLES
    ]


@router.get("/examples/{name}", response_model=dict[str, Any],
            responses={**_showing("examples", "llama-8b-single-building"), **documented(400, 404)},
            response_description="A request.", summary="Read an example request")  # fmt: skip
def read_example(name: EntryName) -> Any:
    """A body for POST /v1/plans."""
    return _entry("examples", name)


@router.get("/catalogue/{kind}", response_model=list[str],
            responses={200: {"content": {"application/json": {"example": entry_names("gpus")}}}, **documented(400)},
            response_description="Names, sorted.", summary="List catalogue entries")  # fmt: skip
def list_catalogue(kind: PublicKind) -> list[str]:
    """Names that a request may use in place of the whole object."""
    return list(entry_names(kind))


@router.get("/catalogue/{kind}/{name}", response_model=dict[str, Any],
            responses={**_showing("gpus", "H100-SXM-80G"), **documented(400, 404)},
            response_description="The whole object.", summary="Read a catalogue entry")  # fmt: skip
def read_catalogue(kind: PublicKind, name: EntryName) -> Any:
    """The whole object, with the source of its numbers."""
    return _entry(kind, name)


@router.get("/issue-types", response_model=list[IssueType], summary="List the codes that problems carry",
            response_description="Every code with its HTTP status and its meaning.")  # fmt: skip
def list_issue_types() -> list[IssueType]:
    """The published catalogue: codes are never renamed."""
    return list(ISSUE_TYPES.values())


def _entry(kind: Kind, name: str) -> Any:
    assert kind in get_args(Kind)
    if name not in entry_names(kind):
        known = ", ".join(entry_names(kind))
        raise not_found(f"{kind} has no entry {name!r}", f"Use one of {known}.")
    return named_entry(kind, name)
