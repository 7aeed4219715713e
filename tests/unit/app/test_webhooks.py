"""The end of a plan is told to a real receiver: signed, again after failures, then never again, and not inwards."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.faults import Refused
from app.jobs.supervisor import Supervisor
from app.jobs.webhooks import Webhooks, check_webhook
from app.settings import Settings
from app.storage.migrations import create_tables
from app.storage.plans import NewPlan, PlanStore
from app.storage.queue import PlanQueue
from app.storage.tables import WEBHOOKS, create_engine
from app.storage.webhooks import MAX_ATTEMPTS, RETRY_S, NewWebhook, WebhookRow, WebhookStore
from tests.unit.app import fake_solver
from tests.unit.app.programs import await_, free_port
from tests.unit.app.service_fixture import request_for, running, settings_for
from tests.unit.app.taking import take

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
HERE = ("127.0.0.0/8",)


class Receiver:
    """A server that answers what it is told to and remembers what came."""

    def __init__(self, statuses: list[int], **headers: str) -> None:
        self.came: list[tuple[str, dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.came.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(statuses.pop(0) if statuses else 204)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?a=1"


@contextmanager
def receiving(*statuses: int, **headers: str) -> Iterator[Receiver]:
    """A receiver that is stopped at the end."""
    receiver = Receiver(list(statuses), **headers)
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()


class World:
    """A database with one clock, a queue and the webhooks of one worker."""

    def __init__(self, folder: Path, networks: tuple[str, ...] = HERE) -> None:
        self.at = 1000.0
        self.settings = settings_for(folder, webhook_networks=networks)
        self.engine = create_engine(self.settings.database_url)
        create_tables(self.engine)
        self.store = WebhookStore(self.engine, clock=self.now)
        self.plans = PlanStore(self.engine, clock=self.now)
        self.queue = PlanQueue(self.engine, clock=self.now)
        self.webhooks = Webhooks(self.settings, self.engine, clock=self.now)

    def now(self) -> float:
        return self.at

    def submit(self, url: str, secret: str = SECRET) -> str:
        """A plan that waits, with a webhook."""
        return self.plans.insert(NewPlan(b"{}", "sha256:0", None, name="one", webhook=NewWebhook(url, secret))).id

    def ended(self, url: str, secret: str = SECRET) -> str:
        """A plan that has ended, with a webhook."""
        plan_id = self.submit(url, secret)
        self.plans.cancel(plan_id)
        return plan_id

    def row(self, plan_id: str) -> WebhookRow:
        """The webhook of a plan."""
        found = self.store.get(plan_id)
        assert found is not None
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A fresh one."""
    made = World(tmp_path)
    yield made
    made.engine.dispose()


def _verified(headers: dict[str, str], body: bytes) -> bool:
    """As a receiver does it."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.digest(base64.b64decode(SECRET[6:]), signed, hashlib.sha256)).decode()
    return headers["webhook-signature"] == f"v1,{wanted}"


def test_the_end_of_a_plan_is_told_once_and_signed(world: World) -> None:
    with receiving() as receiver:
        plan_id = world.ended(receiver.url)
        world.webhooks.once()
        world.webhooks.once()
        world.at += 1e6
        world.webhooks.once()
    ((path, headers, body),) = receiver.came
    assert path == "/hook?a=1"
    assert _verified(headers, body)
    assert not _verified(headers, body + b" "), "a changed body has another signature"
    told = json.loads(body)
    assert (told["type"], told["timestamp"]) == ("plan.ended", "1970-01-01T00:16:40.000Z")
    assert (told["data"]["id"], told["data"]["state"], told["data"]["name"]) == (plan_id, "cancelled", "one")
    row = world.row(plan_id)
    assert (row.state, row.num_attempts, row.last_status, row.ended_at) == ("delivered", 1, 204, 1000.0)


def test_nothing_is_told_before_the_end(world: World) -> None:
    with receiving() as receiver:
        plan_id = world.submit(receiver.url)
        world.webhooks.once()
        claim = take(world.engine, "run_1")
        world.webhooks.once()
        assert receiver.came == []
        world.queue.finish(plan_id, claim.lease, "failed", "crashed", outcome=None, fault=b"{}", headline=None)
        world.webhooks.once()
        assert json.loads(receiver.came[0][2])["data"]["stop_reason"] == "crashed"


@pytest.mark.parametrize("status", [500, 302, 404, 429, 199])
def test_what_is_no_success_is_tried_again_with_the_same_id(world: World, status: int) -> None:
    with receiving(status, Location="http://127.0.0.1:9/") as receiver:
        plan_id = world.ended(receiver.url)
        world.webhooks.once()
        row = world.row(plan_id)
        assert (row.state, row.num_attempts) == ("waiting", 1)
        assert 1000.0 + RETRY_S[0] <= row.next_at <= 1000.0 + 1.1 * RETRY_S[0]
        world.webhooks.once()
        assert len(receiver.came) == 1, "not before its time"
        world.at = row.next_at
        world.webhooks.once()
    (_, first, body), (_, second, again) = receiver.came
    assert (first["webhook-id"], body) == (second["webhook-id"], again)
    assert first["webhook-timestamp"] != second["webhook-timestamp"]
    assert world.row(plan_id).state == "delivered"


def test_pauses_grow_and_end(world: World) -> None:
    plan_id = world.ended(f"http://127.0.0.1:{free_port()}/")  # nobody listens
    pauses = []
    while world.row(plan_id).state == "waiting":
        world.webhooks.once()
        pauses.append(world.row(plan_id).next_at - world.at)
        world.at = max(world.at, world.row(plan_id).next_at)
    row = world.row(plan_id)
    assert (row.state, row.num_attempts, row.last_status) == ("given_up", MAX_ATTEMPTS, None)
    assert "ConnectionRefusedError" in (row.last_error or "")
    assert pauses[:-1] == sorted(pauses[:-1])


def test_a_receiver_that_is_gone_for_good_is_left_alone(world: World) -> None:
    with receiving(410) as receiver:
        plan_id = world.ended(receiver.url)
        world.webhooks.once()
    assert (world.row(plan_id).state, world.row(plan_id).num_attempts) == ("given_up", 1)


def test_a_worker_that_dies_in_the_middle_leaves_an_attempt_that_is_made_again(world: World) -> None:
    with receiving() as receiver:
        plan_id = world.ended(receiver.url)
        (row,) = world.store.due(10)
        assert world.store.begin(row)
        assert not world.store.begin(row), "of two workers one sends"
        world.webhooks.once()
        assert receiver.came == []
        world.at = world.row(plan_id).next_at
        world.webhooks.once()
        assert len(receiver.came) == 1
        assert not world.store.end(row, status=500, error=None), "the first one comes back too late"
    assert world.row(plan_id).state == "delivered"


def test_garbage_and_silence_are_failures_with_a_reason(world: World) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        plan_id = world.ended(f"http://127.0.0.1:{listening.getsockname()[1]}/")

        def garble() -> None:
            connection, _ = listening.accept()
            connection.recv(65536)
            connection.sendall(b"SSH-2.0-x\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=garble)
        thread.start()
        world.webhooks.once()
        thread.join()
    assert world.row(plan_id).last_error is not None
    assert world.row(plan_id).state == "waiting"


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://10.1.2.3/", "https://169.254.169.254/latest", "https://[::1]/", "https://0.0.0.0/",
        "https://[fe80::1]/", "https://[::ffff:127.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/",
        "https://192.168.0.1:8443/x", "https://100.64.0.1/", "https://224.0.0.1/", "https://[fd00::1]/",
        "http://example.org/", "https://user:word@example.org/", "https://example.org:99999/", "https://",
        "https://example.org/#part", "https://[::/",
    ],
)  # fmt: skip
def test_what_leads_inwards_or_nowhere_is_refused_at_the_door(url: str) -> None:
    with pytest.raises(Refused) as refusal:
        check_webhook(NewWebhook(url), Settings())
    assert refusal.value.faults[0].code == "webhook-not-allowed"


def test_a_name_that_leads_inwards_is_not_asked(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And it is looked up once: what it stands for a moment later does not count."""
    with receiving() as receiver:
        port = receiver.server.server_port
        asked: list[str] = []

        def look_up(host: str, port_: int, *_: Any, **__: Any) -> list[Any]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host if host[0].isdigit() else "127.0.0.1", port_))]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        folder = tmp_path / "strict"
        folder.mkdir()
        strict = World(folder, networks=())
        for scheme in ("http", "https"):
            plan_id = strict.ended(f"{scheme}://receiver.example:{port}/")
            strict.webhooks.once()
            row = strict.row(plan_id)
            assert (row.state, row.num_attempts) == ("waiting", 1)
            assert "NotAllowed" in (row.last_error or "")
            strict.plans.delete(plan_id)
        strict.engine.dispose()
        assert receiver.came == []
        asked.clear()
        world.ended(f"http://receiver.example:{port}/")
        world.webhooks.once()
        assert asked.count("receiver.example") == 1
        assert receiver.came[0][1]["host"] == f"receiver.example:{port}"


def test_one_private_address_among_public_ones_is_one_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(_: str, port: int, *__: Any, **___: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("8.8.8.8", "192.168.1.1")]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    strict = World(tmp_path, networks=())
    plan_id = strict.ended("https://receiver.example/")
    strict.webhooks.once()
    assert "not public" in (strict.row(plan_id).last_error or "")
    strict.engine.dispose()


def test_what_is_removed_is_not_told(world: World) -> None:
    with receiving() as receiver:
        world.plans.delete(world.ended(receiver.url))
        world.webhooks.once()
        assert receiver.came == []
    with world.engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(WEBHOOKS)).scalar() == 0


def test_what_never_arrives_waits_behind_what_may(world: World) -> None:
    ids = [world.ended("http://127.0.0.1:9/") for _ in range(5)]
    world.webhooks.once()
    world.at += 1e3
    fresh = world.ended("http://127.0.0.1:9/")
    assert world.store.due(1)[0].subject_id == fresh
    assert {row.subject_id for row in world.store.due(10)} == {fresh, *ids}


def test_the_service_tells_of_plans_and_studies_and_shows_how_far_it_is(tmp_path: Path) -> None:
    with (
        receiving() as receiver,
        running(settings_for(tmp_path, webhook_networks="127.0.0.1/32", heartbeat_s=0.05)) as client,
    ):
        body = {**request_for(fake_solver.FINDS), "webhook": {"url": receiver.url, "secret": SECRET}}
        plan_id = client.post("/v1/plans", json=body).json()["id"]
        study = {"base": request_for(fake_solver.FINDS), "patches": [{}, {"options": {"time_limit_s": 9}}],
                 "webhook": {"url": receiver.url}}  # fmt: skip
        study_id = client.post("/v1/studies", json=study).json()["id"]
        await_(lambda: len(receiver.came) == 2, "told")
        told = {json.loads(one)["data"]["id"]: (json.loads(one), headers) for _, headers, one in receiver.came}
        assert told[plan_id][0]["data"]["figures"]["iteration_s"] > 0
        assert _verified(told[plan_id][1], next(one for _, _, one in receiver.came if plan_id in one.decode()))
        assert told[study_id][0]["data"]["counts"] == {"succeeded": 2}
        assert "webhook-signature" not in told[study_id][1]
        shown = await_(
            lambda: (found := client.get(f"/v1/plans/{plan_id}/webhook").json())["state"] == "delivered" and found,
            "delivered",
        )
        assert (shown["is_signed"], shown["last_status"], shown["num_attempts"]) == (True, 204, 1)
        assert SECRET not in json.dumps(shown)
        assert client.get(f"/v1/studies/{study_id}/webhook").json()["is_signed"] is False
        other = client.post("/v1/plans", json=request_for(fake_solver.FINDS)).json()["id"]
        assert client.get(f"/v1/plans/{other}/webhook").status_code == 404


def test_a_webhook_changes_nothing_of_what_is_planned_and_its_mistakes_are_told(tmp_path: Path) -> None:
    with running(settings_for(tmp_path, run_worker=False)) as client:
        plain = client.post("/v1/plans", json=request_for(fake_solver.FINDS)).json()
        hook = {"url": "https://hooks.example.org/x", "secret": SECRET}
        with_hook = client.post("/v1/plans", json={**request_for(fake_solver.FINDS), "webhook": hook}).json()
        assert plain["request_digest"] == with_hook["request_digest"]
        waiting = client.get(f"/v1/plans/{with_hook['id']}/webhook").json()
        assert (waiting["state"], waiting["next_attempt_at"]) == ("waiting", None)
        wrong = [{"url": "ftp://x.example/"}, {"url": "https://10.0.0.1/"}, {"secret": SECRET},
                 {**hook, "secret": "whsec_short"}, {**hook, "secret": "word"}, {**hook, "more": 1}]  # fmt: skip
        for one in wrong:
            answer = client.post("/v1/plans", json={**request_for(fake_solver.FINDS), "webhook": one})
            assert answer.status_code == 422, one
            assert answer.json()["errors"][0]["pointer"].startswith("/webhook"), answer.json()
    with running(settings_for(tmp_path, run_worker=False, webhooks_enabled=False)) as client:
        refused = client.post("/v1/plans", json={**request_for(fake_solver.FINDS), "webhook": hook})
        assert refused.json()["errors"][0]["code"] == "webhook-not-allowed"


def test_a_receiver_that_does_not_answer_holds_up_no_heartbeat(world: World) -> None:
    """Each part of the supervisor has a thread of its own."""
    supervisor = Supervisor(world.settings, world.engine, "run_1")
    supervisor.start()
    names = {one.name for one in threading.enumerate()}
    supervisor.stop()
    assert {"isthmus-heartbeat", "isthmus-supervisor", "isthmus-webhooks"} <= names


@contextmanager
def silent() -> Iterator[str]:
    """A receiver that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


def test_a_receiver_that_does_not_answer_holds_up_no_other(world: World) -> None:
    """However many messages wait for it; and no message has two attempts at once."""
    with silent() as url, receiving() as receiver:
        waiting = [world.ended(url) for _ in range(30)]
        world.webhooks.once()
        tried = [one for one in waiting if world.row(one).num_attempts]
        world.at += RETRY_S[0] * 1.1
        plan_id = world.ended(receiver.url)
        world.webhooks.once()
        assert world.row(plan_id).state == "delivered"
        assert 0 < len(tried) < 20
        assert [one for one in waiting if world.row(one).num_attempts] == tried
        assert {world.row(one).num_attempts for one in tried} == {1}
