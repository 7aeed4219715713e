"""Every door that the README names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from app.cli import cli
from app.exporters.registry import EXPORTERS
from app.main import create_app
from app.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)
OPERATIONAL = ("/docs",)


@pytest.mark.parametrize("command", sorted(set(re.findall(r"isthmus ([a-z]+)", README))))
def test_a_command_of_the_readme_exists(command: str) -> None:
    assert command in typer.main.get_command(cli).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))))
def test_a_make_target_of_the_readme_exists(target: str) -> None:
    assert target in TARGETS


def test_a_path_of_the_readme_exists(tmp_path: Path) -> None:
    service = create_app(Settings(database_url=f"sqlite:///{tmp_path}/none.sqlite"))
    served = {re.sub(r"\{[^}]*\}", "*", path) for path in service.openapi()["paths"]} | set(OPERATIONAL)
    kinds = "|".join(EXPORTERS)
    paths = re.findall(r"(/(?:v1|healthz)[^` ,]*)", README)
    named = {re.sub(rf"\{{[^}}]*\}}|(?<=/artifacts/)(?:{kinds})", "*", path) for path in paths}
    assert named
    assert {path.replace("...", "*") for path in named} <= served


def test_every_promised_target_is_in_the_makefile_with_a_word_of_help() -> None:
    promised = "help setup demo serve test test-all lint type arch golden bench accuracy openapi image bench-schedules"
    helped = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    assert set(promised.split()) <= helped
