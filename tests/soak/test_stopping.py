"""A soak that is stopped, at whatever moment, leaves no program behind."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.soak.clock import Clock
from tests.soak.fleet import freeze
from tests.soak.nursery import Nursery
from tests.unit.app.programs import await_, sqlite


def test_a_program_that_nobody_ended_ends_with_its_nursery(tmp_path: Path) -> None:
    """As when a soak is stopped before it has read which program was forked."""
    clock_file = tmp_path / "clock"
    Clock(clock_file)
    with (tmp_path / "log").open("wb") as log:
        nursery = Nursery(log, clock_file)
        started = nursery.start(("work", "0", sqlite(tmp_path), "one", "{}"))
        family = psutil.Process(started.pid)
        await_(family.children, "with a fork server")
        everyone = [family, *family.children(recursive=True)]
        nursery.close()
        await_(lambda: not any(one.is_running() and one.status() != "zombie" for one in everyone), "without orphans")


def test_a_soak_that_is_stopped_while_a_process_is_frozen_lets_it_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_seconds: float) -> None:
        raise KeyboardInterrupt

    with subprocess.Popen(["sleep", "60"]) as process:
        victim = psutil.Process(process.pid)
        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", stopped)
            with pytest.raises(KeyboardInterrupt):
                freeze(victim, 1.0)
        await_(lambda: victim.status() != psutil.STATUS_STOPPED, "running again")
        process.kill()
