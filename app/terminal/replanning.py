"""`isthmus replan`: what now, after a loss or a change, here or on a service; and answers that were prepared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.faults import refused
from app.terminal.exits import EXIT_OF_STATUS, ExitCode, Failed
from app.terminal.inputs import keeper, read_document, read_outcome, read_request
from app.terminal.options import OutFile, PlanSource, RequestFile, Service
from app.terminal.outputs import prepare as prepare_file
from app.terminal.outputs import write
from app.terminal.planning import settings_of
from app.terminal.screen import Screen

if TYPE_CHECKING:
    from app.client.blocking import Client
    from models.questions import Question
    from models.what_now import WhatIfLostAnswer, WhatNowAnswer


def replan(
    context: typer.Context,
    plan_source: PlanSource,
    *,
    request: RequestFile = None,
    lost: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A place, pool, link or host that is gone; repeatable."),
    ] = None,
    changes: Annotated[
        str | None, typer.Option(help="What else has changed: a file with the `changes` of a question, or -.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="How much slower than the fastest new plan is worth fewer moves, as a part.")
    ] = None,
    prepare: Annotated[bool, typer.Option(help="Prepare the answer for every building, pool and link.")] = False,
    prepared: Annotated[
        bool, typer.Option(help="Read the prepared answer for --lost: PLAN is what --prepare wrote.")
    ] = False,
    out: OutFile = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the answer.")] = None,
    screen: Screen,
    service: Service,
) -> None:  # fmt: skip
    """Plan again after a loss or a change, and move as little as can be. Needs --request, unless on a --server."""
    from app.documents import canonical
    from app.jobs.questions import check_question
    from app.terminal.answers import print_reply
    from app.terminal.asking import answered

    settings = settings_of(context)
    prepare_file(out)
    with service.client() as client:
        if prepared:
            reply = _prepared(_losses(plan_source, client), lost or [])
        else:
            about = {"ask": "what_if_lost" if prepare else "what_now"} | _asked_about(plan_source, request, client)
            question = _question(about, lost, changes, tolerance, time_limit)
            if client is None:
                check_question(question, settings)
            reply = answered(question, settings, screen, client)
    write(out, canonical(reply if prepare or reply.plan is None else _outcome(reply)), quiet=screen.quiet)
    screen.show(reply, lambda console: print_reply(console, reply))
    raise typer.Exit(_exit_of(reply))


def _exit_of(reply: WhatIfLostAnswer | WhatNowAnswer) -> ExitCode:
    """Without a plan as a search ends that has none."""
    if reply.ask == "what_now" and reply.outcome != "planned":
        return EXIT_OF_STATUS[reply.outcome]
    return ExitCode.PLANNED if reply.complete else ExitCode.NOTHING_FOUND


def _question(
    about: dict[str, Any],
    lost: list[str] | None,
    changes: str | None,
    tolerance: float | None,
    time_limit_s: float | None,
) -> Question:
    from app.documents import parse_json
    from app.jobs.questions import read_question

    given = {
        "lost": lost, "time_tolerance": tolerance,
        "changes": None if changes is None else read_document(changes, parse_json),
        "options": None if time_limit_s is None else {"time_limit_s": time_limit_s},
    }  # fmt: skip
    return read_question(about | {name: value for name, value in given.items() if value is not None})


def _asked_about(plan_source: str, request: str | None, client: Client | None) -> dict[str, Any]:
    """The plan with its request, or its name on the service."""
    from app.terminal.remote import plan_of

    if keeper(plan_source, client) is not None:
        return {"plan_id": plan_source}
    if client is not None:
        raise refused("invalid-parameter", f"{plan_source} is no plan of the service, which replans its own",
                      allowed="the id of a plan", where="PLAN",
                      remedy='Name such an id; or replan the file on this machine: --server "".')  # fmt: skip
    if request is None:
        raise refused("missing-field", "a plan document does not hold its request", where="--request",
                      remedy="Give it: --request REQUEST.json; or name a plan on a --server.")  # fmt: skip
    plan = plan_of(read_document(plan_source, read_outcome, "plan"))
    asked = read_document(request, read_request, "request")
    return {"request": asked.model_dump(mode="json"), "plan": plan.model_dump(mode="json")}


def _losses(source: str, client: Client | None) -> WhatIfLostAnswer:
    """What was prepared for a plan of a service, or in a file."""
    from app.client import calls
    from app.documents import parse_json
    from models.what_now import WhatIfLostAnswer

    if (kept_by := keeper(source, client)) is None:
        return read_document(source, lambda data: _prepared_document(parse_json(data)))
    answer = kept_by.call(calls.losses(source)).answer
    if not isinstance(answer, WhatIfLostAnswer):
        raise Failed(f"the answers for losses of {source} are not there yet")
    return answer


def _prepared_document(document: Any) -> WhatIfLostAnswer:
    """What --prepare wrote; what else stands in its place is told how to get there."""
    from app.documents import read_model
    from models.what_now import WhatIfLostAnswer

    if not isinstance(document, dict) or "losses" not in document:
        remedy = "Write it with `isthmus replan PLAN.json --request REQUEST.json --prepare --out LOSSES.json`."
        raise refused("invalid-request", "the document holds no prepared answers", remedy=remedy,
                      allowed="what isthmus replan --prepare wrote")  # fmt: skip
    return read_model(WhatIfLostAnswer, document)


def _prepared(found: WhatIfLostAnswer, lost: list[str]) -> WhatNowAnswer:
    """The answer for one loss. Raises Refused for another one."""
    chosen = next((one for one in found.losses if [one.name] == lost), None)  # a building before a pool of its name
    if chosen is None or chosen.answer is None:
        ready = ", ".join(one.name for one in found.losses if one.answer is not None)
        raise refused("invalid-parameter", f"no answer was prepared for {', '.join(lost) or 'no loss'}", "",
                      f"one of {ready}", "Name one loss that was prepared, or ask without --prepared.",
                      where="--lost")  # fmt: skip
    return chosen.answer


def _outcome(reply: WhatNowAnswer) -> Any:
    from models.outcome import Planned

    assert reply.plan is not None
    return Planned(plan=reply.plan, complete=False, elapsed_s=reply.elapsed_s)
