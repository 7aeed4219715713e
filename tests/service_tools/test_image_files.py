"""hadolint, a kept linter of Dockerfiles with ShellCheck in it, has nothing to say of ours, down to style."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.image.compose import DOCKERFILE
from tests.unit.app.programs import ROOT

HADOLINT = ROOT / ".venv-tools" / "bin" / "hadolint"


def _lint(path: Path) -> subprocess.CompletedProcess[str]:
    command = [str(HADOLINT), "--no-color", "--failure-threshold", "style", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_hadolint_has_no_complaint() -> None:
    done = _lint(DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_complains_of_a_base_without_a_release(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python:latest\nRUN cd /tmp && echo $1\n")
    done = _lint(bad)
    assert done.returncode == 1
    assert {"DL3007", "DL3003"} <= set(done.stdout.replace(":", " ").split())
