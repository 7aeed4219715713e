"""The service as a program of its own, with the made-up planner: what the tests of crashes kill."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from typing import Any

from app.jobs.processes import warm_up
from app.settings import Settings
from app.storage.plans import PlanStore
from app.terminal.serving import serve, work
from tests.unit.app.service_fixture import FAKE, FAKE_SOLVERS


def main() -> None:
    """Role (serve, api or work), port, database, worker id, and other settings as JSON; and when to die."""
    faulthandler.register(signal.SIGUSR1)  # tells on standard error what every thread does
    role, port, database, worker_id, changes = sys.argv[1:6]
    warm_up(("app.jobs.child", FAKE))
    values: dict[str, Any] = {
        "database_url": database,
        "port": int(port),
        "worker_id": worker_id,
        "run_worker": role == "serve",
        "queue_poll_s": 0.02,
        "event_poll_s": 0.02,
        "heartbeat_s": 0.1,
        "dead_worker_s": 1.0,
        "drain_s": 0.2,
        "soft_grace_s": 0.2,
        "kill_grace_s": 0.2,
        "log_level": "WARNING",
        "solvers": FAKE_SOLVERS,
    }
    values.update(json.loads(changes))
    if values.pop("dies_after_insert", False):
        _die_after_insert()
    settings = Settings.model_validate(values)
    if role == "work":
        work(settings)
    else:
        serve(settings)


def _die_after_insert() -> None:
    """Let this program be killed when a plan has been stored and its client has not been told."""
    insert = PlanStore.insert

    def insert_and_die(*args: Any, **kwargs: Any) -> Any:
        insert(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    PlanStore.insert = insert_and_die  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
