"""The service below a path of a reverse proxy: pages, addresses in headers, the description and the client."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urljoin, urlsplit

import pytest

from app.client.blocking import Client
from app.settings import InvalidSetting, Settings
from models.request import PlanRequest
from tests.unit.app import fake_solver
from tests.unit.app.http_client import Client as Plain
from tests.unit.app.programs import HOST, free_port, program, ready, sqlite
from tests.unit.app.service_fixture import request_for

PREFIX = "/planner"
PAGES = ("", "/", "/plans", "/new", "/compare", "/studies", "/accuracy", "/docs", "/plans/plan_0", "/studies/study_0")


@contextmanager
def proxy(port: int, *, strips: bool) -> Iterator[str]:
    """The address of a proxy that shows a service below the prefix and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def _hand_on(self) -> None:
            if not re.match(rf"{PREFIX}(/|$|\?)", self.path):
                self.send_error(404)
                return
            target = (self.path.removeprefix(PREFIX) or "/") if strips else self.path
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            behind = HTTPConnection(HOST, port, timeout=60)
            behind.request(self.command, target, body, {**self.headers, "Connection": "close"})
            answer = behind.getresponse()
            text = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "date", "content-length", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            behind.close()

        do_GET = do_POST = do_DELETE = _hand_on

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{HOST}:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module", params=[True, False], ids=["strips", "hands-on"])
def shown(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a proxy before a service."""
    port, folder = free_port(), tmp_path_factory.mktemp("prefix")
    with program("serve", port, sqlite(folder), "one", path_prefix=PREFIX):
        ready(Plain(HOST, port))
        with proxy(port, strips=request.param) as address:
            yield address


def _asked(url: str, method: str = "GET", body: object = None) -> tuple[int, str, dict[str, str]]:
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    text = None if body is None else json.dumps(body)
    connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), text,
                       {"Content-Type": "application/json"} if text else {})  # fmt: skip
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), dict(answer.getheaders())
    connection.close()
    return found


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_a_page_names_is_there(shown: str, page: str) -> None:
    status, text, _ = _asked(shown + PREFIX + page)
    assert status == 200
    named = {urljoin(shown + PREFIX + page, one) for one in re.findall(r'(?:href|src)="([^"#]+)"', text)}
    assert len(named) >= 4
    assert {one: _asked(one)[0] for one in named} == dict.fromkeys(named, 200)


def test_addresses_in_headers_lead_through_the_proxy(shown: str) -> None:
    for _ in range(2):
        status, _, headers = _asked(f"{shown}{PREFIX}/v1/plans", "POST", request_for(fake_solver.FINDS))
        assert status == 202
        assert headers["location"].startswith(f"{PREFIX}/v1/plans/plan_")
        assert _asked(shown + headers["location"])[0] == 200
    link = _asked(f"{shown}{PREFIX}/v1/plans?limit=1")[2]["link"]
    assert _asked(shown + link[link.index("<") + 1 : link.index(">")])[0] == 200


def test_the_description_names_the_server_below_the_prefix(shown: str) -> None:
    document = json.loads(_asked(f"{shown}{PREFIX}/openapi.json")[1])
    assert document["servers"] == [{"url": PREFIX}]
    assert 'url: "openapi.json"' in _asked(f"{shown}{PREFIX}/static/docs.js")[1], "beside the page that shows it"


@pytest.mark.parametrize("end", ["", "/"])
def test_the_client_plans_through_the_proxy(shown: str, end: str) -> None:
    with Client(f"{shown}{PREFIX}{end}") as client:
        envelope = client.plan(PlanRequest.model_validate(request_for(fake_solver.FINDS)))
    assert envelope.state == "succeeded"


@pytest.mark.parametrize("prefix", ["planner", "/planner/", "/", "/pl anner", "//host"])
def test_a_prefix_that_is_none_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSetting, match="ISTHMUS_PATH_PREFIX"):
        Settings.from_environment({"ISTHMUS_PATH_PREFIX": prefix})
