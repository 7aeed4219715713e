"""Clients that never give up: each submits a plan with a key of its own and repeats until it has an answer.

Every client writes down what it was promised.
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any

from tests.unit.app import fake_solver
from tests.unit.app.programs import HOST
from tests.unit.app.service_fixture import request_for

# How a search behaves, and how often.
KINDS = {
    fake_solver.FINDS: 45,
    fake_solver.TAKES_ITS_TIME: 35,
    fake_solver.INFEASIBLE: 4,
    fake_solver.NOT_FOUND: 4,
    fake_solver.MEMORY_BOMB: 2,
    fake_solver.CRASHES: 2,
    fake_solver.HALF_MESSAGE: 2,
    fake_solver.REFUSES: 2,
    fake_solver.IGNORES_STOP: 3,
    fake_solver.KILLS_WORKER: 1,
}
PATIENCE_S = 300.0  # what kills its worker waits for eight starts of one, each up to 20 s at a load of 8


@dataclass
class Promise:
    """A plan that the service has said it would make."""

    key: str
    kind: int
    time_limit_s: float
    plan_id: str = ""
    cancelled: bool = False


@dataclass
class Load:
    """Clients of one soak."""

    ports: list[int]
    seed: int
    num_clients: int
    enough: threading.Event = field(default_factory=threading.Event)
    promises: list[Promise] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    num_repeated: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Let every client begin."""
        for number in range(self.num_clients):
            dice = random.Random(f"{self.seed}/{number}")
            self._threads.append(threading.Thread(target=self._client, args=(dice,), daemon=True))
        for one in self._threads:
            one.start()

    @property
    def has_ended(self) -> bool:
        """Whether every client has ended its last plan."""
        return not any(one.is_alive() for one in self._threads)

    def _client(self, dice: random.Random) -> None:
        while not self.enough.is_set():
            (kind,) = dice.choices(list(KINDS), list(KINDS.values()))
            limit_s = round(dice.uniform(0.2, 3.0), 2)
            promise = Promise(str(uuid.UUID(int=dice.getrandbits(128))), kind, limit_s)
            body = request_for(kind, limit_s)
            answer = self._until_answered(dice, "POST", "/v1/plans", body, key=promise.key)
            if answer is None:
                continue
            promise.plan_id = answer["id"]
            self.promises.append(promise)
            if dice.random() < 0.1:
                time.sleep(dice.uniform(0.0, 0.5))
                promise.cancelled = True
                self._until_answered(dice, "POST", f"/v1/plans/{promise.plan_id}:cancel", {})
            self._follow(dice, promise.plan_id)

    def _follow(self, dice: random.Random, plan_id: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            status = self._until_answered(dice, "GET", f"/v1/plans/{plan_id}/status", None)
            if status is None or status["state"] not in ("queued", "running"):
                return
            time.sleep(1.0)
        self.complaints.append(f"{plan_id}: its client waited {PATIENCE_S:.0f} s in vain")

    def _until_answered(self, dice: random.Random, method: str, path: str, body: Any, *, key: str = "") -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                status, answer = _exchange(dice.choice(self.ports), method, path, body, key=key)
            except (OSError, HTTPException):
                self.num_repeated += 1
                time.sleep(0.1)
                continue
            if status in (200, 202):
                return answer
            if status not in (409, 503):
                self.complaints.append(f"{method} {path}: {status} {str(answer)[:300]}")
                return None
            time.sleep(0.3)
        self.complaints.append(f"{method} {path}: no answer in {PATIENCE_S:.0f} s")
        return None


def _exchange(port: int, method: str, path: str, body: Any, *, key: str) -> tuple[int, Any]:
    connection = HTTPConnection(HOST, port, timeout=20.0)
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if key:
            headers["Idempotency-Key"] = f'"{key}"'
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None
    finally:
        connection.close()
