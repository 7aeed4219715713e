"""What is compiled once is compiled once, and a failure is not taken for done."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from app.jobs import warm_up
from app.jobs.children import Ended
from app.settings import Settings
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_
from tests.unit.app.service_fixture import FAKE, FAKE_SOLVERS, running, settings_for, submit


def _settings(folder: Path, function: str) -> Settings:
    return settings_for(folder, solvers=FAKE_SOLVERS.model_copy(update={"warm_up": f"{FAKE}:{function}"}))


@pytest.mark.parametrize(
    ("function", "times_told"), [("warm_up", 1), ("warm_up_but_for_one", 2), ("no_such_function", 2)]
)
def test_success_isremembered_and_failure_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, times_told: int
) -> None:
    monkeypatch.setattr(warm_up, "remembered", lambda _function: tmp_path / "new" / "done")
    told: list[str] = []
    for _ in range(2):
        warm_up.compile_once(_settings(tmp_path, function), told.append)
    assert len(told) == times_told
    assert (tmp_path / "new" / "done").exists() == (times_told == 1)


def test_changed_sources_are_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "made_up_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = warm_up.remembered("made_up_package.kernels:run")
    assert warm_up.remembered("made_up_package.kernels:run") == before
    os.utime(package / "__init__.py", (1.0, 1.0))
    assert warm_up.remembered("made_up_package.kernels:run") != before


def test_a_service_answers_while_it_compiles_and_plans_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = threading.Event()
    monkeypatch.setattr("app.jobs.worker.compile_once", lambda *_, **__: compiled.wait(60.0))
    with running(settings_for(tmp_path)) as client:
        path = f"/v1/plans/{submit(client, fake_solver.FINDS).json()['id']}/status"
        assert client.get(path).json()["state"] == "queued"
        compiled.set()
        await_(lambda: client.get(path).json()["state"] == "succeeded", "planned")


def test_a_service_without_a_worker_compiles_for_what_it_computes_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    monkeypatch.setattr("app.main.compile_once", lambda *_, **__: begun.set())
    with running(settings_for(tmp_path, run_worker=False)):
        assert begun.wait(60.0)


@pytest.mark.parametrize("run_worker", [True, False])
def test_a_service_that_stops_stops_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, run_worker: bool
) -> None:
    monkeypatch.setattr(warm_up, "remembered", lambda _function: tmp_path / "done")
    begun, ended, run_in_child = threading.Event(), threading.Event(), warm_up.run_in_child

    def seen(*task: Any, **options: Any) -> Ended:
        begun.set()
        try:
            return run_in_child(*task, **options)
        finally:
            ended.set()

    monkeypatch.setattr(warm_up, "run_in_child", seen)
    with running(_settings(tmp_path, "warm_up_for_long").changed({"run_worker": run_worker})):
        assert begun.wait(60.0)
    assert ended.wait(20.0), "or the process waits for it at its end"
    assert not (tmp_path / "done").exists()
    assert "warm-up ended" not in caplog.text, "nothing went wrong"
