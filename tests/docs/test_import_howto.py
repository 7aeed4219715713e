"""The how-to on imports plays, and shows every import."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.documents import parse_json, read_model
from app.importers.registry import KINDS
from models.cluster import Cluster
from models.workload import Architecture
from tests.docs.player import HOWTOS, commands, play

NAME = "import-a-cluster.md"


def test_the_howto_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    play(NAME, tmp_path, capsys)
    assert read_model(Cluster, parse_json((tmp_path / "cluster.json").read_bytes())).links
    assert read_model(Architecture, parse_json((tmp_path / "model.json").read_bytes())).name == "llama-3.1-8b"


def test_every_import_is_shown() -> None:
    text = (HOWTOS / NAME).read_text(encoding="utf-8")
    assert {words[2] for words in commands(NAME)} | {"slurm-topoconf"} == set(KINDS)
    assert all(f"`{kind}`" in text for kind in KINDS)
