"""The file of a saved search: compressed JSON with its request, the best outcome so far and its state."""

from __future__ import annotations

import gzip
import json
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from app.documents import canonical, read_model
from app.faults import Refused, refused
from app.jobs.program import program
from app.storage.searches import KeptSearch
from app.terminal.inputs import MAX_BYTES
from app.terminal.outputs import write
from models.outcome import Outcome
from models.request import PlanRequest

FORMAT = "isthmus-search-file-1"


@dataclass
class SearchFile:
    """Written whenever the search tells its state, so that a search that is killed has lost little."""

    path: Path
    request: PlanRequest
    outcome: bytes | None = None
    state: bytes | None = None
    program: str = field(default_factory=program)

    def take(self, kind: str, text: bytes) -> None:
        """One message of the search."""
        if kind == "incumbent":
            self.outcome = text
        elif kind == "state":
            self.state = text
            self._write()

    def finish(self, outcome: Outcome, *, quiet: bool) -> None:
        """The search has ended."""
        self.outcome = canonical(outcome)
        self._write()
        if not quiet:
            typer.echo(f"written: {self.path}", err=True)

    def _write(self) -> None:
        """The whole file at once, so that nobody ever finds half of it."""
        document = {
            "format": FORMAT,
            "program": self.program,
            "request": self.request.model_dump(mode="json"),
            "outcome": None if self.outcome is None else json.loads(self.outcome),
            "state": None if self.state is None else b64encode(self.state).decode(),
        }
        beside = self.path.with_name(f".{self.path.name}.new")
        write(beside, gzip.compress(json.dumps(document).encode()), quiet=True)
        beside.replace(self.path)


def read_search(source: str) -> tuple[dict[str, Any], KeptSearch]:
    """The request of a saved search, and what a search that goes on begins with; Refused for anything else."""
    try:
        with gzip.open(source) as file:
            data = file.read(MAX_BYTES)
        document = json.loads(data)
        if document["format"] != FORMAT:
            raise ValueError(f"is of the form {document['format']!r}")
        outcome, state = document["outcome"], document["state"]
        kept = KeptSearch(
            None if outcome is None else json.dumps(outcome).encode(),
            None if state is None else b64decode(state, validate=True),
            str(document["program"]),
        )
        request: dict[str, Any] = read_model(PlanRequest, document["request"]).model_dump(mode="json")
    except OSError as error:
        raise _unreadable(source, error.strerror or "no saved search") from None
    except (ValueError, KeyError, TypeError, EOFError, zlib.error) as error:
        raise _unreadable(source, f"no saved search: {error}") from None
    return request, kept


def _unreadable(source: str, why: str) -> Refused:
    return refused("invalid-request", f"{source}: {why}", allowed="a file of isthmus plan --save-search",
                   remedy="Name such a file; or a plan on a --server.", where="SEARCH")  # fmt: skip
