"""`isthmus plan`, `schedule` and `check request`: requests in, outcomes out; here or on a service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.faults import refuse_plan, refused
from app.terminal.exits import EXIT_OF_STATUS, ExitCode
from app.terminal.inputs import read_document, without_tags
from app.terminal.options import File, OutFile, SaveSearch, Service, Source, TimeLimit
from app.terminal.outputs import prepare, write
from app.terminal.screen import Screen

if TYPE_CHECKING:
    from app.client.blocking import Client
    from app.settings import Settings
    from app.storage.searches import KeptSearch
    from models.outcome import Outcome


def settings_of(context: typer.Context) -> Settings:
    """The settings that `main` was given, or those of the environment."""
    from app.settings import Settings

    given = context.find_object(Settings)
    return given if given is not None else Settings.from_environment()


def plan(
    context: typer.Context,
    request: Source,
    *,
    out: OutFile = None,
    time_limit: TimeLimit = None,
    save_search: SaveSearch = None,
    screen: Screen,
    service: Service,
) -> None:
    """Plan a job: placement, timing, transport and proof."""
    from app.documents import parse_json

    document = read_document(request, parse_json, "request")
    refuse_plan(document)
    document = _limited(document, time_limit)
    prepare(out)
    prepare(save_search, "--save-search")
    with service.client() as client:
        _check_saving(client, save_search)
        outcome = _outcome(context, client, document, screen, save=save_search)
    _show(outcome, screen, out)


def resume(
    context: typer.Context,
    search: Annotated[
        str,
        typer.Argument(metavar="SEARCH", help="A file of isthmus plan --save-search; or the id of a plan on --server."),
    ],
    *,
    out: OutFile = None,
    time_limit: TimeLimit = None,
    save_search: SaveSearch = None,
    screen: Screen,
    service: Service,
) -> None:
    """Search on where a search has ended, and keep that in its file, unless --save-search names another."""
    from app.client import calls
    from app.terminal.remote import follow
    from app.terminal.saving import read_search

    prepare(out)
    prepare(save_search, "--save-search")
    with service.client() as client:
        _check_saving(client, save_search)
        if client is not None:
            outcome = follow(client, client.call(calls.resume(search, time_limit_s=time_limit)).id, screen)
        else:
            document, earlier = read_search(search)
            path = Path(search) if save_search is None else save_search
            outcome = _outcome(context, None, _limited(document, time_limit), screen, save=path, earlier=earlier)
    _show(outcome, screen, out)


def _show(outcome: Outcome, screen: Screen, out: Path | None) -> None:
    from app.documents import canonical
    from app.terminal.summary import print_outcome

    write(out, canonical(outcome), quiet=screen.quiet)
    screen.show(outcome, lambda console: print_outcome(console, outcome))
    raise typer.Exit(EXIT_OF_STATUS[outcome.status])


def _outcome(
    context: typer.Context,
    client: Client | None,
    document: Any,
    screen: Screen,
    *,
    save: Path | None = None,
    earlier: KeptSearch | None = None,
) -> Outcome:
    from app.documents import read_model
    from models.request import PlanRequest

    if client is not None and isinstance(document, Mapping):
        from app.terminal.remote import plan_on

        return plan_on(client, document, screen)
    from app.terminal.work import search

    request = read_model(PlanRequest, without_tags(document))
    if save is None:
        return search(request, settings_of(context), screen.news)
    from app.terminal.saving import SearchFile

    file = SearchFile(save, request)
    outcome = search(request, settings_of(context), screen.news, earlier=earlier, saved=file.take)
    file.finish(outcome, quiet=screen.news.quiet)
    return outcome


def _check_saving(client: Client | None, save_search: Path | None) -> None:
    if client is not None and save_search is not None:
        raise refused("invalid-parameter", "a service keeps its searches itself", where="--save-search",
                      remedy="Leave it out: isthmus resume takes the id of the plan.")  # fmt: skip


def _limited(document: Any, time_limit_s: float | None) -> Any:
    """The request with another time limit; what is no request stays, and is refused by its reader."""
    if time_limit_s is None or not isinstance(document, dict) or not isinstance(document.get("options", {}), dict):
        return document
    return {**document, "options": {**document.get("options", {}), "time_limit_s": time_limit_s}}


def schedule(context: typer.Context, problem: File, *, out: OutFile = None, screen: Screen, service: Service) -> None:
    """Time a placed pipeline: the order and start of every operation."""
    from app.documents import canonical, parse_json, read_model
    from app.terminal.summary import print_schedule
    from models.schedule import PipelineProblem, PipelineSchedule

    asked = read_model(PipelineProblem, read_document(problem, parse_json))
    prepare(out)
    with service.client() as client:
        if client is not None:
            found = client.schedule(asked)
        else:
            from app.terminal.work import answer_of

            settings, limit_s = settings_of(context), asked.options.time_limit_s
            text = answer_of(
                "schedule", settings.solvers.schedule, (canonical(asked),), settings, screen.news, limit_s=limit_s
            )
            found = PipelineSchedule.model_validate_json(text)
    write(out, canonical(found), quiet=screen.quiet)
    screen.show(found, lambda console: print_schedule(console, found))


def check_request(context: typer.Context, request: Source, *, screen: Screen, service: Service) -> None:
    """Look for contradictions in a request by arithmetic, without search; exit code 3 when no plan can exist."""
    from app.documents import canonical, parse_json, read_model
    from app.terminal.summary import print_check
    from app.wire import Validation
    from models.outcome import RequestCheck
    from models.request import PlanRequest

    document = read_document(request, parse_json, "request")
    refuse_plan(document)
    with service.client() as client:
        if client is not None and isinstance(document, Mapping):
            found = client.validate(document)
        else:
            from app.terminal.work import answer_of

            settings, asked = settings_of(context), canonical(read_model(PlanRequest, without_tags(document)))
            text = answer_of("validate", settings.solvers.validate_request, (asked,), settings, screen.news)
            found = Validation.of(RequestCheck.model_validate_json(text))
    screen.show(found, lambda console: print_check(console, found))
    raise typer.Exit(ExitCode.PLANNED if found.feasible else ExitCode.INFEASIBLE)
