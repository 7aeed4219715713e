"""What is installed and whether it works; a check that fails is reported, never raised."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterator

import psutil

from app.jobs.child import Task
from app.jobs.children import Limits, run_in_child
from app.settings import Settings
from app.storage.migrations import create_tables
from app.storage.tables import create_engine
from app.terminal.screen import Screen, table
from models.catalogue import entry_names, named_entry
from models.request import PlanRequest

PACKAGES = ("isthmus", "ortools", "pulp", "highspy", "numpy", "numba", "scipy", "pydantic", "fastapi", "sqlalchemy")


def run_doctor(screen: Screen, settings: Settings) -> bool:
    """Show every check; true when all passed."""
    checks = list(_checks(settings))
    rows = ((name, result, "[green]ok[/]" if passed else "[red]fails[/]") for name, result, passed in checks)
    results = table("Isthmus doctor", "check", "result", "", rows=rows)
    document = [{"check": name, "result": result, "passed": passed} for name, result, passed in checks]
    screen.show(document, lambda console: console.print(results))
    return all(passed for _, _, passed in checks)


def _checks(settings: Settings) -> Iterator[tuple[str, str, bool]]:
    yield "Python", platform.python_version(), platform.python_version_tuple()[:2] == ("3", "11")
    yield "cores", str(psutil.cpu_count()), True
    yield "memory", f"{psutil.virtual_memory().available / 1e9:.1f} GB free", psutil.virtual_memory().available > 1e9
    for package in PACKAGES:
        yield _package(package)
    for name, check in (("database", _database), ("catalogue", _catalogue), ("child process", _child)):
        yield _run(name, check, settings)


def _package(name: str) -> tuple[str, str, bool]:
    try:
        return name, importlib.metadata.version(name), True
    except importlib.metadata.PackageNotFoundError:
        return name, "not installed", False


def _run(name: str, check: Callable[[Settings], str], settings: Settings) -> tuple[str, str, bool]:
    try:
        return name, check(settings), True
    except Exception as error:  # a failed check of any kind is a finding, not a crash
        return name, f"{type(error).__name__}: {error}"[:200], False


def _database(settings: Settings) -> str:
    engine = create_engine(settings.database_url)
    try:
        create_tables(engine)
        return engine.url.render_as_string(hide_password=True)
    finally:
        engine.dispose()


def _catalogue(_settings: Settings) -> str:
    names = entry_names("examples")
    for name in names:
        PlanRequest.model_validate(named_entry("examples", name))
    return f"{len(names)} examples valid"


def _child(settings: Settings) -> str:
    """A child answers with the solvers loaded: the arithmetic of the first example."""
    request = PlanRequest.model_validate(named_entry("examples", entry_names("examples")[0]))
    task = Task("validate", settings.solvers.validate_request, (request.model_dump_json().encode(),),
                settings.child_memory_bytes)  # fmt: skip
    started = time.monotonic()
    ended = run_in_child(task, Limits(60.0, 5.0, 5.0, settings.child_memory_bytes))
    if ended.ending != "answered":
        raise RuntimeError(f"{ended.ending}: {ended.detail.decode()[-300:]}")
    return f"answered in {time.monotonic() - started:.2f} s, solvers loaded"
