"""The how-to on imports, played from top to bottom: its files are written, its commands run, its answers compared."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from app import cli
from app.documents import parse_json, read_model
from app.importers.registry import KINDS
from models.cluster import Cluster
from models.workload import Architecture

TEXT = (Path(__file__).resolve().parents[2] / "docs/howto/import-a-cluster.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- (file: [\w.-]+|runs|fails|says) -->\n```\w*\n(.*?)```", re.DOTALL)
BLOCKS = BLOCK.findall(TEXT)


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    errors: str


def _run(command: str, capsys: pytest.CaptureFixture[str]) -> Said:
    program, *arguments = shlex.split(command)
    assert program == "isthmus"
    try:
        cli.main(arguments)
    except SystemExit as leaving:
        return Said(int(leaving.code or 0), capsys.readouterr().err)
    raise AssertionError("a command always leaves with a code")


def test_the_howto_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    said = Said(0, "")
    for kind, content in BLOCKS:
        if kind.startswith("file: "):
            (tmp_path / kind.removeprefix("file: ")).write_text(content, encoding="utf-8")
        elif kind == "says":
            assert said.errors.split() == content.split()
        else:
            said = _run(content, capsys)
            assert said.code == (0 if kind == "runs" else 2), said.errors
    assert read_model(Cluster, parse_json((tmp_path / "cluster.json").read_bytes())).links
    assert read_model(Architecture, parse_json((tmp_path / "model.json").read_bytes())).name == "llama-3.1-8b"


def test_every_import_is_shown() -> None:
    commands = {content.split()[2] for kind, content in BLOCKS if kind == "runs"}
    assert commands | {"slurm-topoconf"} == set(KINDS)
    assert all(f"`{kind}`" in TEXT for kind in KINDS)
