"""`isthmus bundle`, `check ranks` and `check allocation`: the launch folder, and a started job beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.exporters.target import SchedulerName, TrainerName
from app.terminal.exits import ExitCode
from app.terminal.inputs import hosts_text, keeper, read_document, read_request, read_source
from app.terminal.options import Hosts, PlanSource, RequestFile, Service
from app.terminal.outputs import write_folder
from app.terminal.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from app.client.blocking import Client
    from app.exporters.launch.options import Launch
    from app.exporters.launch.ranks import RankRow

Bundle = Annotated[Path, typer.Argument(help="The folder that isthmus bundle wrote.")]


def bundle(
    plan_source: PlanSource,
    *,
    request: RequestFile = None,
    out: Annotated[Path, typer.Option(help="Folder to write; it must be new or empty.")],
    trainer: Annotated[TrainerName, typer.Option("--for", help="The trainer.")] = "megatron-core",
    scheduler: Annotated[SchedulerName, typer.Option("--on", help="What starts the processes.")] = "slurm",
    hosts: Hosts = None,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "isthmus",
    time_limit_minutes: Annotated[int | None, typer.Option(help="Time limit of the job.")] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm's partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Slurm's account.")] = None,
    block_topology: Annotated[
        bool, typer.Option("--block-topology", help="Slurm has topology/block: ask for segments (Slurm 24.05).")
    ] = False,
    queue: Annotated[str, typer.Option(help="Kueue's queue.")] = "training",
    image: Annotated[str, typer.Option(help="Image of the pods.")] = "registry.example/trainer:latest",
    screen: Screen,
    service: Service,
) -> None:
    """Write everything that starts a plan: scripts, arguments, ranks, a preflight and a README."""
    from app.exporters.binding import spare_notes
    from app.exporters.launch.options import Launch

    options = Launch.model_construct(  # typer knows the types; the rest is checked next
        trainer=trainer,
        scheduler=scheduler,
        name=name,
        time_limit_minutes=time_limit_minutes,
        partition=partition,
        account=account,
        block_topology=block_topology,
        queue=queue,
        image=image,
        hosts=hosts_text(hosts),
    )
    options.check()
    with service.client() as client:
        files = _files(plan_source, request, options, client)
    write_folder(out, files, quiet=screen.quiet)
    manifest = json.loads(files["manifest.json"])
    for line in spare_notes(manifest["spare_hosts"]):
        screen.news.print(line, markup=False, soft_wrap=True)
    told = {one: manifest[one] for one in ("not_expressed", "spare_hosts")}
    screen.show({"folder": str(out), "files": sorted(files), **told}, lambda _: None)


def _files(plan_source: str, request: str | None, options: Launch, client: Client | None) -> Mapping[str, str]:
    """The files by name, made here or by the service that has the plan."""
    if (kept_by := keeper(plan_source, client)) is not None:
        from app.client import calls
        from app.exporters.launch.bundle import unzipped

        return unzipped(kept_by.call(calls.bundle(plan_source, options.model_dump())))
    from app.documents import read_plan
    from app.exporters.launch.bundle import bundle as files_of

    asked = None if request is None else read_document(request, read_request, "request")
    return files_of(read_document(plan_source, read_plan, "plan"), asked, options)


def check_ranks(
    folder: Bundle,
    log: Annotated[str, typer.Argument(help="The job's log, or - for standard input.")],
    *,
    screen: Screen,
) -> None:
    """Compare the ranks that a started job printed with the plan; exit code 3 where they differ."""
    from app.exporters.launch.ranks import compared, seen_ranks

    seen = seen_ranks(read_source(log).decode(errors="replace"))
    _say(screen, compared(_rows(folder, screen), seen), f"{len(seen)} ranks are where the plan has them")


def check_allocation(
    folder: Bundle,
    job: Annotated[str, typer.Argument(help="Output of scontrol show job, a file with a hostlist, or -.")],
    *,
    topology: Annotated[
        str | None, typer.Option(help="topology.conf, or what scontrol show topoconf prints: what Slurm really has.")
    ] = None,
    screen: Screen,
) -> None:
    """Compare the hosts that Slurm gave with the plan, and their switches; exit code 3 where they differ."""
    from app.exporters.launch.allocation import compared, read_allocation

    switches, are_blocks = (None, False) if topology is None else _switches(topology)
    allocation = read_allocation(read_source(job).decode(errors="replace"))
    problems = compared(_rows(folder, screen), allocation, switches, are_blocks=are_blocks)
    _say(screen, problems, f"the {len(allocation)} hosts of the job are those of the plan")


def _say(screen: Screen, problems: Sequence[str], well: str) -> None:
    def draw(out: Console) -> None:
        for line in problems or [well]:
            out.print(line, markup=False, soft_wrap=True)

    screen.show({"as_planned": not problems, "problems": list(problems)}, draw)
    raise typer.Exit(ExitCode.INFEASIBLE if problems else ExitCode.PLANNED)


def _rows(folder: Path, screen: Screen) -> list[RankRow]:
    """The rows of a bundle whose files are as they were written."""
    from app.exporters.launch.bundle import changed_files
    from app.exporters.launch.ranks import read_rows

    files = {one.name: one.read_bytes() for one in folder.glob("*") if one.is_file()}
    for name in changed_files(files):
        screen.news.print(f"{name} is not the file that isthmus bundle wrote", markup=False)
    return read_rows(read_source(str(folder / "ranks.csv")).decode(errors="replace"))


def _switches(topology: str) -> tuple[Mapping[str, Sequence[str]], bool]:
    """The switches above every host, the nearest first, and whether they are blocks."""
    from app.importers.registry import TOPOLOGIES

    data = read_source(topology)
    fabric = TOPOLOGIES["slurm-conf" if b"=" in data else "slurm-yaml"]([(topology, data)])
    parents = {unit.name: unit.parent for unit in fabric.units}
    found: dict[str, list[str]] = {}
    for host in fabric.hosts:
        here: str | None = host.unit
        found[host.name] = []
        while here is not None:
            found[host.name].append(here)
            here = parents.get(here)
    return found, re.search(rb"(?im)^\s*(blockname=|block:)", data) is not None
