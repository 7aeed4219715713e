"""The command line: a door to the same planner, judge and exporters as the HTTP service.

Owns the commands and their options. Heavy imports are made by the command that needs them, so that help is instant.
Exit codes: 0 planned, 1 defect, 2 bad input, 3 infeasible, 4 nothing found in time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from app.terminal.importing import import_command
from app.terminal.keys import keys
from app.terminal.replay import replay
from app.terminal.study import study

if TYPE_CHECKING:
    from app.settings import Settings

cli = typer.Typer(
    name="isthmus",
    help="Plans the training of large models across data-centre buildings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
cli.add_typer(keys, name="keys")
PLAIN_WIDTH = 120  # of tables that go to a file or a pipe, which have no width of their own
OUT = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
ERR = Console(stderr=True, width=None if sys.stderr.isatty() else PLAIN_WIDTH)

Source = Annotated[str, typer.Argument(help="A file, - for standard input, or the name of an example.")]
File = Annotated[str, typer.Argument(help="A file, or - for standard input.")]
OutFile = Annotated[Path | None, typer.Option("--out", help="Write the result to this file.")]

cli.command()(replay)
cli.command("import")(import_command)
cli.command()(study)


def _settings(context: typer.Context) -> Settings:
    from app.settings import Settings

    given = context.find_object(Settings)
    return given if given is not None else Settings.from_environment()


@cli.command()
def plan(
    context: typer.Context,
    request: Source,
    out: OutFile = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds to search; overrides the request.")] = None,
) -> None:
    """Plan a job: placement, timing, transport and proof."""
    from app.documents import parse_json, read_model
    from app.jobs.child import OUTCOME
    from app.terminal.inputs import read_source
    from app.terminal.outputs import prepare, write
    from app.terminal.summary import print_outcome
    from app.terminal.work import EXIT_OF_STATUS, search
    from models.request import PlanRequest

    document = parse_json(read_source(request))
    if time_limit is not None and isinstance(document, dict) and isinstance(document.get("options", {}), dict):
        document["options"] = {**document.get("options", {}), "time_limit_s": time_limit}
    asked = read_model(PlanRequest, document)
    prepare(out)
    outcome = search(asked, _settings(context), ERR)
    print_outcome(OUT, outcome)
    write(out, OUTCOME.dump_json(outcome))
    raise typer.Exit(EXIT_OF_STATUS[outcome.status])


@cli.command()
def schedule(context: typer.Context, problem: File, out: OutFile = None) -> None:
    """Time a placed pipeline: the order and start of every operation."""
    from app.documents import canonical, parse_json, read_model
    from app.jobs.child import Task
    from app.terminal.inputs import read_source
    from app.terminal.outputs import prepare, write
    from app.terminal.summary import print_schedule
    from app.terminal.work import answer_of
    from models.schedule import PipelineProblem, PipelineSchedule

    settings = _settings(context)
    asked = read_model(PipelineProblem, parse_json(read_source(problem)))
    prepare(out)
    task = Task("schedule", settings.solvers.schedule, (canonical(asked),), settings.child_memory_bytes)
    text = answer_of(task, settings, ERR, asked.options.time_limit_s)
    print_schedule(OUT, PipelineSchedule.model_validate_json(text))
    write(out, text)


@cli.command()
def verify(
    context: typer.Context,
    request: Source,
    plan_file: Annotated[str, typer.Argument(metavar="PLAN")],
    deep: Annotated[
        bool, typer.Option(help="Also time rivals and random configurations with pipelines of its own.")
    ] = False,
) -> None:
    """Judge a plan, whoever made it; exit code 3 when the judge rejects it."""
    from app.documents import canonical, read_plan, read_request
    from app.jobs.child import Task
    from app.terminal.inputs import read_source
    from app.terminal.summary import print_verdict
    from app.terminal.work import ExitCode, answer_of
    from models.verdict import Verdict

    settings = _settings(context)
    documents = (canonical(read_request(read_source(request))), canonical(read_plan(read_source(plan_file))))
    judge = settings.solvers.deep_judge if deep else settings.solvers.judge
    task = Task("evaluate", judge, documents, settings.child_memory_bytes)
    verdict = Verdict.model_validate_json(answer_of(task, settings, ERR))
    print_verdict(OUT, verdict, in_full=True)
    raise typer.Exit(ExitCode.PLANNED if verdict.accepted else ExitCode.INFEASIBLE)


@cli.command()
def export(
    plan_file: Annotated[str, typer.Argument(metavar="PLAN", help="A plan, as isthmus plan --out writes it.")],
    kind: Annotated[
        str, typer.Option("--format", help="slurm-hostfile, report-html, ...; a wrong name lists them all.")
    ],
    out: OutFile = None,
    request: Annotated[
        str | None, typer.Option(help="The request; names buildings and hosts where it is needed.")
    ] = None,
) -> None:
    """Write a plan in the form of another tool."""
    from app.documents import read_plan, read_request
    from app.exporters.registry import exporter_named
    from app.terminal.inputs import read_source
    from app.terminal.outputs import write

    exporter = exporter_named(kind)
    asked = None if request is None else read_request(read_source(request))
    found = read_plan(read_source(plan_file))
    text = exporter.export(found, asked)
    if out is None:
        typer.echo(text, nl=False)
        return
    write(out, text.encode())
    for line in exporter.notes(found, asked):
        ERR.print(line, highlight=False, markup=False, soft_wrap=True)


@cli.command()
def examples(name: Annotated[str | None, typer.Argument(help="Print this one.")] = None) -> None:
    """List the example requests, or print one."""
    from app.terminal.inputs import read_source
    from models.catalogue import entry_names

    if name is None:
        typer.echo("\n".join(entry_names("examples")))
    else:
        typer.echo(json.dumps(json.loads(read_source(name)), indent=2))


@cli.command()
def validate(
    subject: Annotated[str, typer.Argument(help="training, network or pipeline")],
    rows: File,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compare predictions with measured rows; nothing is refitted."""
    from app.terminal.inputs import read_rows
    from app.terminal.measured import print_report, validation_report

    report = validation_report(subject, read_rows(rows))
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        print_report(OUT, report)


@cli.command()
def calibrate(
    rows: File,
    out: OutFile = None,
    name: Annotated[str, typer.Option(help="Name of the fitted profile.")] = "calibrated",
    constants: Annotated[str, typer.Option(help="Constants to fit, comma separated; empty: what the rows tell.")] = "",
    profile: Annotated[str | None, typer.Option(help="Profile to start from; else what most rows choose.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Fit a software-stack profile to your own measured runs; --out writes the profile."""
    from app.jobs.calibration import calibration
    from app.terminal.inputs import read_rows
    from app.terminal.measured import print_calibration
    from app.terminal.outputs import prepare, write

    prepare(out)
    names = tuple(one.strip() for one in constants.split(",") if one.strip())
    report = calibration(read_rows(rows), name=name, constants=names, profile=profile)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        print_calibration(OUT, report)
    write(out, json.dumps(report["profile"], indent=2).encode())


@cli.command()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    database: Annotated[str | None, typer.Option(help="URL of the database.")] = None,
    worker: Annotated[bool, typer.Option(help="Whether this process also solves.")] = True,
) -> None:
    """Run the service; Swagger UI is at /docs."""
    from app.terminal.serving import serve as run

    given = {"host": host, "port": port, "database_url": database, "run_worker": None if worker else False}
    stated = {name: value for name, value in given.items() if value is not None}
    settings = _settings(context).changed(stated)
    ERR.print(f"http://{settings.host}:{settings.port}/docs", highlight=False)
    run(settings)


@cli.command()
def worker(
    context: typer.Context,
    database: Annotated[str | None, typer.Option(help="URL of the shared database.")] = None,
    worker_id: Annotated[str | None, typer.Option("--id", help="Stable name; must differ between workers.")] = None,
    check: Annotated[bool, typer.Option(help="Only tell whether this worker has shown itself lately.")] = False,
) -> None:
    """Solve queued plans without serving HTTP."""
    from app.terminal.serving import has_shown_itself, work

    given = {"database_url": database, "worker_id": worker_id}
    settings = _settings(context).changed({name: value for name, value in given.items() if value is not None})
    if check:
        raise typer.Exit(0 if has_shown_itself(settings) else 1)
    work(settings)


@cli.command()
def doctor(context: typer.Context) -> None:
    """Show what is installed and try every part once."""
    from app.terminal.doctor import run_doctor

    raise typer.Exit(0 if run_doctor(OUT, _settings(context)) else 1)


@cli.command()
def openapi() -> None:
    """Print the OpenAPI document of the service."""
    from app.main import create_app
    from app.settings import Settings

    typer.echo(json.dumps(create_app(Settings()).openapi(), indent=2, sort_keys=True))


@cli.command()
def demo() -> None:
    """Plan Llama-3.1-405B on two buildings over HTTP, and stop everything afterwards."""
    from app.terminal.demo import DemoFailed, run_demo

    try:
        code = run_demo(OUT, [])
    except DemoFailed as failure:
        ERR.print(f"[bold red]demo failed[/]: {escape(str(failure))}")
        raise typer.Exit(1) from None
    raise typer.Exit(code)


def main(arguments: list[str] | None = None, settings: Settings | None = None) -> None:
    """Run a command and leave with its exit code; faults of the input are printed, never traced."""
    from app.faults import Refused, from_planner_error
    from app.settings import InvalidSetting
    from app.terminal.inputs import print_faults
    from app.terminal.work import ExitCode, Failed
    from models.errors import PlannerError

    try:
        cli(args=arguments, obj=settings)
    except Refused as refused:
        print_faults(ERR, refused)
        raise SystemExit(ExitCode.BAD_INPUT) from None
    except PlannerError as error:
        print_faults(ERR, Refused((from_planner_error(error),)))
        raise SystemExit(ExitCode.BAD_INPUT) from None
    except InvalidSetting as error:
        ERR.print(f"[bold red]bad setting[/]: {escape(str(error))}")
        raise SystemExit(ExitCode.BAD_INPUT) from None
    except Failed as failure:
        ERR.print(f"[bold red]failed[/]: {escape(str(failure))}")
        raise SystemExit(ExitCode.DEFECT) from None
    except Exception as error:
        told = _about_the_database(error)
        if told is None:
            raise
        ERR.print(f"[bold red]database[/]: {escape(told)}", highlight=False)
        raise SystemExit(ExitCode.DEFECT) from None


def _about_the_database(error: Exception) -> str | None:
    """What a user can do about an error of the database; None for any other error."""
    if "sqlalchemy" not in sys.modules:  # which takes long to import, and most commands need no database
        return None
    from sqlalchemy.exc import SQLAlchemyError

    from app.storage.migrations import IncompatibleDatabase
    from app.storage.tables import is_outage

    if isinstance(error, IncompatibleDatabase):
        return str(error)
    if not isinstance(error, SQLAlchemyError) or not is_outage(error):
        return None
    first_line = str(error).partition("\n")[0]
    return f"it does not answer: {first_line}. Start it, or name another by ISTHMUS_DATABASE_URL or --database."


if __name__ == "__main__":
    main()
