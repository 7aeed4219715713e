"""`isthmus replay`: executes a launch folder, the schedule of a plan, or a schedule with its problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.faults import refused
from app.terminal.exits import Failed
from app.terminal.inputs import read_document, read_source
from app.terminal.screen import Screen, escape, table

if TYPE_CHECKING:
    from rich.console import Console

    from app.exporters.replay_case import ReplayCase
    from app.replay.launch import Measured
    from models.schedule import PipelineProblem, PipelineSchedule

TOLERANCE = 0.10  # of measured over predicted; what `make test-torch` asks of five schedules at three delays
EXIT_DIFFERENT = 3


def replay(
    document: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE_OR_PLAN",
            help="A bundle for pytorch: all replicas. A plan, or a schedule with --problem: one pipeline.",
        ),
    ],
    *,
    runtime: Annotated[Literal["torch"], typer.Option("--with", help="What executes it.")] = "torch",
    problem: Annotated[str | None, typer.Option(help="The pipeline problem that the schedule answers.")] = None,
    operation_ms: Annotated[
        float, typer.Option(min=1, max=10_000, help="Mean time of an operation here; all times are scaled alike.")
    ] = 30.0,
    repetitions: Annotated[int, typer.Option(min=1, max=100, help="Measured steps, after one to warm up.")] = 3,
    planned_messages: Annotated[
        bool, typer.Option("--planned-messages", help="Load the export with communication.")
    ] = False,
    screen: Screen,
) -> None:
    """Execute a bundle or a schedule in PyTorch's pipeline runtime and compare it with its prediction."""
    from app.replay.job import ReplayJob
    from app.replay.launch import ReplayFailed, check_torch, execute

    check_torch()
    case = _case(document, problem, planned_messages=planned_messages).taking(operation_ms / 1e3)
    job = ReplayJob(cases=(case,), num_repetitions=repetitions)
    screen.news.print(f"{runtime}: {case.num_processes} processes, about {job.expected_s:.0f} s and their start")
    try:
        (found,) = execute(job)
    except ReplayFailed as failure:
        raise Failed(str(failure)) from None
    screen.show(found, lambda console: _print(console, found))
    agrees = found.same_order and found.same_result and abs(found.ratio - 1) <= TOLERANCE
    raise typer.Exit(0 if agrees else EXIT_DIFFERENT)


def _case(document: str, problem: str | None, *, planned_messages: bool) -> ReplayCase:
    """What is executed: all replicas of a bundle, or one pipeline."""
    from app.exporters.replay_case import replay_case

    if Path(document).is_dir():
        return _case_of_bundle(Path(document))
    name, asked, schedule = _read(document, problem)
    return replay_case(name, asked, schedule, planned_messages=planned_messages)


def _case_of_bundle(folder: Path) -> ReplayCase:
    """The iteration of a launch folder, whose files are as they were written."""
    from app.documents import parse_json, read_model
    from app.exporters.launch.bundle import changed_files
    from app.exporters.replay_case import CASE_FILE, ReplayCase

    changed = changed_files({one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()})
    if changed or not (folder / CASE_FILE).exists():
        what = f"{changed[0]} is not the file that isthmus bundle wrote" if changed else f"there is no {CASE_FILE}"
        raise refused("invalid-request", what, "", "a bundle for pytorch", where="BUNDLE_OR_PLAN",
                      remedy="Write it: isthmus bundle --for pytorch --on local.")  # fmt: skip
    return read_model(ReplayCase, parse_json(read_source(str(folder / CASE_FILE))))


def _read(document: str, problem: str | None) -> tuple[str, PipelineProblem, PipelineSchedule]:
    """The name of what is executed, its problem and its schedule."""
    from app.documents import parse_json, read_model, read_plan
    from app.exporters.torch_schedule_csv import main_timeline
    from models.schedule import PipelineProblem, PipelineSchedule

    data = read_source(document)
    if problem is not None:
        schedule = read_model(PipelineSchedule, parse_json(data))
        asked = read_model(PipelineProblem, read_document(problem, parse_json))
        return schedule.generator, asked, schedule
    parsed = parse_json(data)
    if isinstance(parsed, dict) and "generator" in parsed and "ranks" in parsed:
        raise refused("missing-field", "a schedule does not hold the times of its hops", where="--problem",
                      remedy="Give its problem, too: --problem PROBLEM.json.")  # fmt: skip
    timeline = main_timeline(read_plan(data))
    return f"route {timeline.route}", timeline.problem, timeline.schedule


def _print(console: Console, one: Measured) -> None:
    heads = ("schedule", ">predicted", ">fastest", ">median", ">ratio", ">order", ">loss and gradients")
    executed = table("Executed", *heads)
    executed.add_row(
        escape(one.name),
        f"{one.predicted_s:.3f} s",
        f"{one.measured_s:.3f} s",
        f"{one.median_s:.3f} s",
        f"{one.ratio:.3f}",
        "as exported" if one.same_order else "[red]other[/]",
        "as in one process" if one.same_result else f"[red]differ by {one.gradient_difference:.2g}[/]",
    )
    console.print(executed)
