"""`isthmus show`, `compare`, `verify`, `catalogue` and `examples`: documents as people and scripts read them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from app.faults import refused
from app.terminal.exits import ExitCode
from app.terminal.inputs import keeper, read_document, read_outcome, read_request
from app.terminal.options import PlanSource, Service, Source
from app.terminal.planning import settings_of
from app.terminal.screen import Screen

if TYPE_CHECKING:
    from app.client.blocking import Client
    from models.outcome import Outcome
    from models.plan import Plan

KINDS = ("gpus", "models", "clusters", "frameworks", "stacks", "examples")


def _outcome(source: str, client: Client | None) -> Outcome | Plan:
    """A document of a file; with a service a plan of it, unless there is such a file."""
    from app.terminal.remote import outcome_on

    kept_by = keeper(source, client)
    return read_document(source, read_outcome, "plan") if kept_by is None else outcome_on(kept_by, source)


def show(plan_source: PlanSource, *, screen: Screen, service: Service) -> None:
    """Print a plan, or why there is none, as isthmus plan did."""
    from app.terminal.summary import print_outcome, print_plan
    from models.plan import Plan

    with service.client() as client:
        found = _outcome(plan_source, client)
    screen.show(
        found, lambda console: print_plan(console, found) if isinstance(found, Plan) else print_outcome(console, found)
    )


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A plan: a file, or an id on --server.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The plan beside it.")],
    *,
    screen: Screen,
    service: Service,
) -> None:
    """Lay two plans side by side: figures, causes of time, configuration, and what would move from A to B."""
    from app.jobs.comparison import comparison, predicted
    from app.terminal.comparison import print_comparison
    from app.terminal.remote import plan_of

    with service.client() as client:
        one, other = plan_of(_outcome(first, client)), plan_of(_outcome(second, client))
    tokens = [plan.metrics.tokens_per_s * plan.metrics.iteration_s for plan in (one, other)]
    bars = predicted(one, other, same_job=math.isclose(*tokens, rel_tol=1e-6))
    found = {**comparison(one, other), "b_faster_probability": bars and bars["b_faster_probability"]}
    screen.show(found, lambda console: print_comparison(console, found))


def verify(
    context: typer.Context,
    request: Source,
    plan_source: Annotated[str, typer.Argument(metavar="PLAN", help="The plan, whoever made it.")],
    *,
    deep: Annotated[
        bool,
        typer.Option(help="Also time rivals and random configurations with pipelines of its own; on this machine."),
    ] = False,
    screen: Screen,
    service: Service,
) -> None:
    """Judge a plan, whoever made it; exit code 3 when the judge rejects it."""
    from app.client import calls
    from app.documents import canonical, read_plan
    from app.terminal.summary import print_verdict
    from models.verdict import Verdict

    asked = read_document(request, read_request, "request")
    found = read_document(plan_source, read_plan, "plan")
    with service.client() as client:
        if client is not None and not deep:
            verdict = client.call(calls.evaluate(asked, found)).verdict
        else:
            from app.terminal.work import answer_of

            settings, documents = settings_of(context), (canonical(asked), canonical(found))
            judge = settings.solvers.deep_judge if deep else settings.solvers.judge
            verdict = Verdict.model_validate_json(answer_of("evaluate", judge, documents, settings, screen.news))
    screen.show(verdict, lambda console: print_verdict(console, verdict, in_full=True))
    raise typer.Exit(ExitCode.PLANNED if verdict.accepted else ExitCode.INFEASIBLE)


def catalogue(
    kind: Annotated[
        str | None, typer.Argument(help=", ".join(KINDS), autocompletion=lambda: list(KINDS), show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Print this entry.", show_default=False)] = None,
    *,
    screen: Screen,
    service: Service,
) -> None:
    """List GPU types, models, clusters and profiles that a request may name, or print one."""
    allowed = ", ".join(KINDS)
    if kind is not None and kind not in KINDS:
        raise refused("not-an-option", f"the catalogue has no kind {kind!r}", allowed=allowed,
                      remedy=f"Use one of {allowed}.", where="KIND")  # fmt: skip
    with service.client() as client:
        if kind is not None and name is not None:
            Screen(as_json=screen.as_json or not screen.quiet).show(_entry(client, kind, name), lambda _: None)
            return
        names = {one: _names(client, one) for one in (KINDS if kind is None else (kind,))}
    lines = names[kind] if kind is not None else [f"{one}: {', '.join(of)}" for one, of in names.items()]
    screen.show(
        names if kind is None else names[kind],
        lambda console: console.print("\n".join(lines), soft_wrap=True, markup=False),
    )


def _names(client: Client | None, kind: str) -> list[str]:
    from models.catalogue import entry_names

    if client is not None:
        return list(client.catalogue(kind))
    return list(entry_names(kind))  # type: ignore[arg-type] # one of KINDS


def _entry(client: Client | None, kind: str, name: str) -> object:
    from models.catalogue import named_entry

    known = _names(client, kind)
    if name not in known:
        allowed = ", ".join(known)
        raise refused("unknown-name", f"{kind} has no entry {name!r}", allowed=allowed, remedy=f"Use one of {allowed}.",
                      where="NAME")  # fmt: skip
    if client is not None:
        return client.catalogue(kind, name)
    return named_entry(kind, name)  # type: ignore[arg-type] # one of KINDS


def examples(
    name: Annotated[str | None, typer.Argument(help="Print this one.", show_default=False)] = None,
    *,
    screen: Screen,
    service: Service,
) -> None:
    """List the example requests, or print one."""
    catalogue("examples", name, screen=screen, service=service)
