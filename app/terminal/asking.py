"""`isthmus ask`: why there is no plan and what changes are worth, here or on a service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.faults import refused
from app.terminal.exits import ExitCode, Failed
from app.terminal.inputs import read_document
from app.terminal.options import OutFile, Service
from app.terminal.outputs import prepare, write
from app.terminal.planning import settings_of
from app.terminal.screen import Screen

if TYPE_CHECKING:
    from rich.console import Console

    from app.client.blocking import Client
    from app.settings import Settings
    from models.questions import Question, Reply

POLL_S = 0.5


def ask(
    context: typer.Context,
    question: Annotated[
        str,
        typer.Argument(metavar="QUESTION", help="A body of POST /v1/questions, or a request: why has it no plan? "
                       "A file, or - for standard input."),
    ],
    *,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the answer; overrides the question.")] = None,
    out: OutFile = None,
    screen: Screen,
    service: Service,
) -> None:  # fmt: skip
    """Ask why there is no plan, what changes are worth, what to buy, what is the least; Ctrl-C keeps what is known."""
    from app.documents import parse_json
    from app.jobs.questions import check_question, read_question
    from app.terminal.answers import print_reply

    settings = settings_of(context)
    asked = _limited(read_question(read_document(question, parse_json)), time_limit)
    check_question(asked, settings)
    prepare(out)
    _check_form(asked.ask, out)
    with service.client() as client:
        reply = answered(asked, settings, screen, client)
    data = _as_file(reply, out)
    if data is not None:
        write(out, data, quiet=screen.quiet)
    screen.show(reply, lambda console: print_reply(console, reply))
    if data is None:
        raise Failed("the answer has nothing to draw: name a .json file")
    raise typer.Exit(ExitCode.PLANNED if reply.complete else ExitCode.NOTHING_FOUND)


def _check_form(kind: str, out: Path | None) -> None:
    """Refuse a table or picture of answers that are neither, before the time of the answer is spent."""
    from app.exporters.answer_table import COLUMNS
    from app.exporters.report.answer_picture import DRAWN

    suffix = "" if out is None else out.suffix.lower()
    if (suffix == ".csv" and kind not in COLUMNS) or (suffix == ".svg" and kind not in DRAWN):
        raise refused("invalid-parameter", f"an answer to {kind} has no {suffix} form", allowed="a .json file",
                      remedy="Name a file that ends in .json.", where="--out")  # fmt: skip


def _as_file(reply: Reply, out: Path | None) -> bytes | None:
    """An answer as the name of its file asks: a table as .csv, a picture as .svg, and JSON; None without marks."""
    from app.documents import canonical
    from app.exporters.answer_table import answer_table
    from app.exporters.report.answer_picture import answer_picture

    suffix = "" if out is None else out.suffix.lower()
    if suffix not in (".csv", ".svg"):
        return canonical(reply)
    text = answer_table(reply) if suffix == ".csv" else answer_picture(reply)
    return None if text is None else text.encode()


def _limited(question: Question, time_limit_s: float | None) -> Question:
    from models.question_parts import Limits

    if time_limit_s is None:
        return question
    return question.model_copy(update={"options": Limits(time_limit_s=time_limit_s)})


def answered(question: Question, settings: Settings, screen: Screen, client: Client | None) -> Any:
    """The reply to a question, of a service or of this machine; Ctrl-C keeps what is known."""
    if client is not None:
        return _answered_on(client, question, screen.news)
    from pydantic import TypeAdapter

    from app.documents import canonical
    from app.terminal.work import answer_of
    from models.questions import Reply

    limit_s = question.options.time_limit_s
    text = answer_of("ask", settings.solvers.ask, (canonical(question),), settings, screen.news, limit_s=limit_s)
    return TypeAdapter[Reply](Reply).validate_json(text)


def _answered_on(client: Client, question: Question, console: Console) -> Reply:
    """The answer of a service once the question has ended."""
    from app.client import calls

    current = client.call(calls.submit_question(question))
    console.print(f"{current.id}: {current.state}")
    while current.finished_at is None:
        try:
            time.sleep(POLL_S)
            current = client.call(calls.question(current.id))
        except KeyboardInterrupt:
            console.print("  stopping it, keeping what is known")
            current = client.call(calls.cancel_question(current.id))
    if current.answer is None:
        raise Failed(current.fault.what if current.fault else f"the question was {current.state} before it had answers")
    return current.answer
