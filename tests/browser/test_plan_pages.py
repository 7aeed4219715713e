"""The pages of the service in a real browser, against a running service with the made-up planner."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe

from app.main import create_app
from tests.unit.app.fake_solver import FINDS
from tests.unit.app.service_fixture import request_for, settings_for


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the service listens; it runs in a thread of this process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = create_app(settings_for(tmp_path_factory.mktemp("service")))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=20)


@pytest.fixture(scope="module")
def plan_id(address: str) -> str:
    """A plan that has been found."""
    answer = httpx2.post(f"{address}/v1/plans", json=request_for(FINDS), headers={"Prefer": "wait=20"}, timeout=30)
    return str(answer.json()["id"])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_list_leads_to_the_plan_and_the_plan_to_its_report(
    address: str, plan_id: str, theme: str, browser: Any, tmp_path: Path
) -> None:
    context = browser.new_context(color_scheme=theme, accept_downloads=True)
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/plans")
    page.get_by_role("link", name=plan_id).click()
    page.get_by_text("succeeded").wait_for()
    assert [
        one["id"] for one in Axe().run(page).response["violations"] if one["impact"] in ("serious", "critical")
    ] == []
    with page.expect_download() as download:
        page.get_by_role("button", name="Report").click()
    download.value.save_as(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert all(url.startswith((address, "blob:")) for url in asked)
    assert complaints == []
    context.close()


def test_a_plan_that_does_not_exist_is_told(address: str, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address}/plans/nothing_of_that_name")
    page.get_by_text("404").wait_for()
    context.close()
