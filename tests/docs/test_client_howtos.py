"""The how-tos on the command line, the client and observed runs play, and tell every option and exit code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
import typer.main

from app.cli import cli
from app.terminal.exits import ExitCode
from tests.docs.player import HOWTOS, play
from tests.unit.app import fake_solver, http_client
from tests.unit.app.programs import HOST, free_port, program, ready, sqlite
from tests.unit.app.service_fixture import request_for


def _text(name: str) -> str:
    return (HOWTOS / name).read_text(encoding="utf-8")


def test_the_howto_on_observed_runs_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(fake_solver.tiny_plan(2.0).model_dump_json())
    play("observe-a-run.md", tmp_path, capsys)


def test_the_code_of_the_howto_on_the_client_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"<!-- runs -->\n```python\n(.*?)```", _text("use-the-client.md"), re.DOTALL)
    port = free_port()
    with program("serve", port, sqlite(tmp_path), "w"):
        ready(http_client.Client(HOST, port))
        scope: dict[str, Any] = {}
        for block in blocks:
            exec(compile(block.replace("127.0.0.1:8000", f"{HOST}:{port}"), "use-the-client.md", "exec"), scope)
        anyio.run(scope["both"], [request_for(fake_solver.FINDS)] * 2)
    assert "search 2.0" in capsys.readouterr().out
    assert scope["trace"]


@pytest.mark.parametrize("page", ["use-the-command-line.md", "observe-a-run.md", "use-the-client.md"])
def test_every_command_and_option_of_a_howto_exists(page: str) -> None:
    top: dict[str, Any] = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
    told = re.findall(r"^isthmus ([a-z]+)(?: (request))?(.*)$", _text(page), re.MULTILINE)
    for name, below, rest in told:
        command = top[name].commands[below] if below and name == "check" else top[name]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)(--[a-z-]+)", rest.partition("#")[0])) <= known


def test_every_exit_code_is_told() -> None:
    table = _text("use-the-command-line.md").partition("| exit code")[2]
    assert [int(code) for code in re.findall(r"^\| (\d) \|", table, re.MULTILINE)] == list(ExitCode)
