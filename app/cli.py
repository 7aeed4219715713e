"""The command line: the same planner, judge and exporters as behind the HTTP service.

The commands are in `app/terminal`, which makes its heavy imports when a command runs, so that help is instant. Exit
codes: 0 planned, 1 defect, 2 bad input, 3 infeasible, 4 nothing found in time.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from app.terminal.asking import ask
from app.terminal.bundling import bundle, check_allocation, check_ranks
from app.terminal.exporting import export
from app.terminal.importing import import_command
from app.terminal.keys import keys
from app.terminal.mcp_command import mcp
from app.terminal.measuring import accuracy, calibrate
from app.terminal.observing import observe
from app.terminal.options import shared
from app.terminal.planning import check_request, plan, resume, schedule, settings_of
from app.terminal.reading import catalogue, compare, examples, show, verify
from app.terminal.replanning import replan
from app.terminal.replay import replay
from app.terminal.screen import Screen
from app.terminal.study import study

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

    from app.settings import Settings


class Headed(TyperGroup):
    """A list of commands under headings. In plain text: drawing it costs a third of the time that help may take."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """A heading for each part of the work, in the order of their first commands."""
        width = max(map(len, self.commands))
        rows = defaultdict[str, list[tuple[str, str]]](list)
        for name in self.list_commands(ctx):
            command = self.commands[name]
            heading = getattr(command, "rich_help_panel", None) or "Commands"
            rows[heading].append((name.ljust(width), command.get_short_help_str(formatter.width - width - 6)))
        for heading in (*(one for one in PANELS if one in rows), *(one for one in rows if one not in PANELS)):
            with formatter.section(heading):
                formatter.write_dl(rows[heading])


PLAN, READ, MEASURE, SERVICE, HELP = "Plan", "Read and hand on", "Measure", "Service", "Help"
PANELS = (PLAN, READ, MEASURE, SERVICE, HELP)
cli = typer.Typer(
    name="isthmus",
    cls=Headed,
    help="Plans the training of large models across data-centre buildings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    PLAN: (plan, resume, replan, ask, study, schedule, bundle),
    READ: (show, compare, verify, export, catalogue, examples),
    MEASURE: (observe, accuracy, calibrate, replay),
    SERVICE: (mcp,),
}
for panel, commands in COMMANDS.items():
    for command in commands:
        cli.command(rich_help_panel=panel)(shared(command))
cli.command("import", rich_help_panel=READ)(shared(import_command))
check = typer.Typer(
    help="Look for faults before they cost anything, and compare a started job with its plan.", no_args_is_help=True
)
check.command("request")(shared(check_request))
check.command("ranks")(shared(check_ranks))
check.command("allocation")(shared(check_allocation))
cli.add_typer(check, name="check", rich_help_panel=PLAN)
cli.add_typer(keys, name="keys", rich_help_panel=SERVICE)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"isthmus {version('isthmus')}")
        raise typer.Exit


@cli.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """What stands before a command."""


@cli.command(rich_help_panel=SERVICE)
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
    settings = settings_of(context).changed(stated)
    if sys.stderr.isatty():  # for who looks on; a log has nothing but JSON
        typer.echo(f"{settings.address}/docs", err=True)
    run(settings)


@cli.command(rich_help_panel=SERVICE)
def worker(
    context: typer.Context,
    database: Annotated[str | None, typer.Option(help="URL of the shared database.")] = None,
    worker_id: Annotated[str | None, typer.Option("--id", help="Stable name; must differ between workers.")] = None,
    search_pool: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler whose workers share long searches.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Only tell whether this worker has shown itself lately.")] = False,
) -> None:
    """Solve queued plans without serving HTTP."""
    from app.terminal.serving import has_shown_itself, work

    given = {"database_url": database, "worker_id": worker_id, "search_pool": search_pool}
    settings = settings_of(context).changed({name: value for name, value in given.items() if value is not None})
    if check:
        raise typer.Exit(0 if has_shown_itself(settings) else 1)
    work(settings)


@cli.command(rich_help_panel=HELP)
@shared
def doctor(context: typer.Context, *, screen: Screen) -> None:
    """Show what is installed and try every part once."""
    from app.terminal.doctor import run_doctor

    raise typer.Exit(0 if run_doctor(screen, settings_of(context)) else 1)


@cli.command(rich_help_panel=HELP)
def openapi() -> None:
    """Print the OpenAPI document of the service."""
    from app.main import create_app
    from app.settings import Settings

    typer.echo(json.dumps(create_app(Settings()).openapi(), indent=2, sort_keys=True))


@cli.command(rich_help_panel=HELP)
@shared
def demo(*, screen: Screen) -> None:
    """Plan Llama-3.1-405B on two buildings over HTTP, and stop everything afterwards."""
    from app.terminal.demo import run_demo

    raise typer.Exit(run_demo(screen))


def main(arguments: list[str] | None = None, settings: Settings | None = None) -> None:
    """Run a command and leave with its exit code; faults of the input are printed, never traced."""
    try:
        cli(args=arguments, obj=settings, prog_name="isthmus")
    except Exception as error:
        from app.terminal.failures import report

        code = report(error)
        if code is None:
            raise
        raise SystemExit(code) from None


if __name__ == "__main__":
    main()
