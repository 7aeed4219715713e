"""Plays a how-to from top to bottom in a folder: writes its files, runs its commands, compares what they say.

A comment before a block tells what it is: `<!-- file: NAME -->`, `<!-- runs -->`, `<!-- fails -->` (exit code 2), and
`<!-- says -->` for what the command before it wrote to standard error.

Searches take all the time that a page gives them, minutes together. So a page is played in a hurry, every time limit a
part of what is written and its seconds counted work, so that a busy machine decides nothing, and among the slow tests
as it is written: nothing that it says may hang on the time.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from app import cli
from app.settings import Settings, Solvers
from tests.counted import BUSY_S, COUNTED

HOWTOS = Path(__file__).resolve().parents[2] / "docs/howto"
TIME_LIMIT = re.compile(r'("time_limit_s": |--time-limit )([0-9.]+)')
AS_WRITTEN = 1.0
BLOCK = re.compile(r"<!-- (file: [\w.-]+|runs|fails|says) -->\n```\w*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    errors: str


def either_way(in_a_hurry: float) -> pytest.MarkDecorator:
    """Plays a page with this part of the time that it gives each search, and among the slow tests as it is written.

    The part is the least with which every question of the page still has all that the page shows of it.
    """
    return pytest.mark.parametrize("time", [in_a_hurry, pytest.param(AS_WRITTEN, marks=pytest.mark.slow)])


def blocks(name: str) -> list[tuple[str, str]]:
    """What a how-to has to play: kind and content."""
    return BLOCK.findall((HOWTOS / name).read_text(encoding="utf-8"))


def commands(name: str) -> list[list[str]]:
    """The words of every command that runs."""
    return [shlex.split(line) for kind, content in blocks(name) if kind == "runs" for line in content.splitlines()]


def play(name: str, folder: Path, capsys: pytest.CaptureFixture[str], time: float = AS_WRITTEN) -> None:
    """Everything, in order, with so much of the time of every search; the folder is the working folder already."""
    said = Said(0, "")
    for kind, content in ((kind, _limited(content, time)) for kind, content in blocks(name)):
        if kind.startswith("file: "):
            (folder / kind.removeprefix("file: ")).write_text(content, encoding="utf-8")
        elif kind == "says":
            assert said.errors.split() == content.split()
        else:
            for line in content.splitlines():
                said = _run(line, capsys, None if time == AS_WRITTEN else _counting_work())
                assert said.code == (0 if kind == "runs" else 2), said.errors


def _limited(content: str, time: float) -> str:
    return TIME_LIMIT.sub(lambda found: f"{found[1]}{float(found[2]) * time:g}", content)


def _counting_work() -> Settings:
    changes = {"solvers": Solvers(**COUNTED), "soft_grace_s": BUSY_S, "kill_grace_s": BUSY_S}
    return Settings.from_environment().model_copy(update=changes)


def _run(command: str, capsys: pytest.CaptureFixture[str], settings: Settings | None) -> Said:
    program, *arguments = shlex.split(command)
    assert program == "isthmus"
    try:
        cli.main(arguments, settings)
    except SystemExit as leaving:
        return Said(int(leaving.code or 0), capsys.readouterr().err)
    raise AssertionError("a command always leaves with a code")
