"""The how-to on exports plays on a plan with named hosts, and tells of every export."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from app.documents import canonical
from app.exporters.registry import EXPORTERS
from models.outcome import Planned
from tests.build_exports import whole_host_plan, whole_host_request
from tests.docs.player import HOWTOS, commands, play

NAME = "export-a-plan.md"


def test_the_howto_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "request.json").write_bytes(canonical(whole_host_request()))
    (tmp_path / "plan.json").write_bytes(canonical(Planned(plan=whole_host_plan("dp_out"), elapsed_s=1.0)))
    play(NAME, tmp_path, capsys)
    written = {words[-1] for words in commands(NAME)}
    assert written <= {path.name for path in tmp_path.iterdir()}


def test_xargs_reads_the_arguments_with_their_quotes() -> None:
    text = EXPORTERS["megatron-args"].export(whole_host_plan("dp_out"), whole_host_request())
    lines = "".join(line for line in text.splitlines(keepends=True) if line[0] != "#")
    printed = subprocess.run(
        ["xargs", "printf", "%s\\n"], input=lines, capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines() == shlex.split(lines)
    assert "Et*4|t*4L" in printed.splitlines()


def test_every_export_is_named() -> None:
    text = (HOWTOS / NAME).read_text(encoding="utf-8")
    assert [kind for kind in EXPORTERS if f"`{kind}`" not in text] == []
