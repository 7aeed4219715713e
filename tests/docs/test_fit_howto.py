"""The how-to on profiles plays, and its table of columns is the one that the program reads by."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.api.calibrations import COLUMNS, NEEDED
from app.api.examples import MEASURED_RUNS_CSV
from models.stack import StackProfile
from tests.docs.player import HOWTOS, blocks, play

NAME = "fit-a-profile.md"


def test_the_howto_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    play(NAME, tmp_path, capsys)
    profile = StackProfile.model_validate(json.loads((tmp_path / "profile.json").read_text(encoding="utf-8")))
    assert profile.name == "our-cluster"
    assert profile.is_fitted


def test_the_table_is_that_of_the_api_example() -> None:
    assert dict(blocks(NAME))["file: runs.csv"] == MEASURED_RUNS_CSV


def test_every_column_is_explained() -> None:
    text = (HOWTOS / NAME).read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text.partition("## The columns")[2], re.MULTILINE)
    assert dict(rows) == dict(COLUMNS)
    assert all(f"`{name}`" in text.partition("| column")[0] for name in NEEDED)
