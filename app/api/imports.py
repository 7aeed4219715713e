"""Topologies and model configurations of other tools as documents that a request may hold; nothing is stored."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Body
from fastapi.responses import Response
from pydantic import Field

from app.api.examples import IMPORT_EXAMPLES
from app.api.headers import Asking, Service
from app.api.problems import documented
from app.api.strict import StrictRoute
from app.wire import Answer
from models.cluster import Cluster
from models.workload import Architecture

router = APIRouter(prefix="/v1/imports", tags=["direct"], route_class=StrictRoute)
Kind = Literal["topograph", "slurm-yaml", "slurm-topoconf", "slurm-conf", "kueue", "links-csv", "huggingface"]
FileName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class ImportFile(Answer):
    """One file as text."""

    name: FileName = Field(description="What faults call it.", examples=["topology.yaml"])
    text: str = Field(description="What is in it.", examples=["- topology: campus"])


class ImportRequest(Answer):
    """What to import."""

    kind: Kind = Field(
        description="slurm-yaml, slurm-topoconf, slurm-conf: topology of Slurm; topograph: its graph; kueue: Topology "
        "and nodes; links-csv: a table of links; huggingface: config.json of a model.",
        examples=["slurm-yaml"],
    )
    files: list[ImportFile] = Field(min_length=1, max_length=100, description="The files; one for a model.")
    overlay: ImportFile | None = Field(
        None, description="YAML that states what such files never hold: GPUs, rates, delays; none for a model."
    )
    name: str = Field("", max_length=120, description="Name of the document; empty: what the input says.")
    ignore: list[Annotated[str, Field(max_length=200)]] = Field(
        default_factory=list, max_length=100, description="Fields of a config.json to let pass.", examples=[[]]
    )


class Imported(Answer):
    """What texts of another tool describe: a cluster or a model, to stand in a request."""

    cluster: Cluster | None = Field(
        description="Give it as `cluster` of a request; null: a model came in.", examples=[None]
    )
    architecture: Architecture | None = Field(
        description="Give it as `workload.architecture` of a request; null: a cluster came in.", examples=[None]
    )
    notes: list[str] = Field(
        description="What was left out, and how large it is.", examples=[["9 places, 4 pools, 1 links"]]
    )


@router.post("", name="import_texts", response_model=Imported,
             responses=documented(400, 408, 413, 415, 422, 429, 500, 503),
             response_description="A document for a request.", summary="Read a topology or a model of another tool",
             )  # fmt: skip
async def import_texts(
    body: Annotated[ImportRequest, Body(openapi_examples=IMPORT_EXAMPLES)], service: Service, caller: Asking
) -> Response:
    """A cluster from a topology and an overlay, or an architecture from a `config.json`; nothing is guessed.

    Faults say file, line and column in `where`. Nothing is stored: put the document into a request.
    """
    order = body.model_dump_json().encode()
    return Response(await run_sync(partial(service.import_texts, order, caller)), media_type="application/json")
