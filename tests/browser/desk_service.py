"""The browser, the service that it is pointed at, pages that may not complain, and what axe finds grave."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from app.main import create_app
from app.storage.keys import KeyStore, NewKey
from app.storage.migrations import create_tables
from app.storage.tables import create_engine
from tests.unit.app.service_fixture import request_for, settings_for

BUSY = "503 (Service Unavailable)"  # a loaded machine: the page asks again, Chromium notes it all the same
SERIOUS = ("serious", "critical")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium of the system, headless."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert program is not None, "no Chromium on the path: make browser installs one"
    with sync_playwright() as playwright:
        # containers run tests as root, where the sandbox of Chromium cannot start
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def serving(folder: Path, **changes: Any) -> Iterator[str]:
    """A service in a thread of this process, and where it listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = create_app(settings_for(folder, **changes))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=20)


def secret_of(folder: Path) -> str:
    """A key that may read and submit, for the service of this folder, which asks for keys from then on."""
    engine = create_engine(settings_for(folder).database_url)
    create_tables(engine)
    return KeyStore(engine).create(NewKey("alice", frozenset({"read", "submit"})))[1]


def enter(page: Page, secret: str) -> None:
    """Give the page its key, as a reader does."""
    page.get_by_label("Key, if this service asks for one").fill(secret)
    page.keyboard.press("Enter")


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def submitted(
    address: str, case: int, name: str, *, wait_s: int = 20, time_limit_s: float = 20.0, key: str = ""
) -> str:
    """A plan whose search has ended, unless `wait_s` is 0."""
    body = {**request_for(case, time_limit_s), "name": name, "labels": {"team": "search"}}
    answer = httpx2.post(
        f"{address}/v1/plans", json=body, headers={"Prefer": f"wait={wait_s}", **_bearer(key)}, timeout=60
    )
    return str(answer.json()["id"])


@contextmanager
def watched(browser: Browser, address: str, *, theme: str = "light", allowed: tuple[str, ...] = ()) -> Iterator[Page]:
    """A page that may complain of nothing but what is allowed, and ask no other host."""
    context = browser.new_context(color_scheme=theme, accept_downloads=True)
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    yield page
    bad = [text for text in complaints if not any(words in text for words in (*allowed, BUSY))]
    assert not bad, bad
    elsewhere = [url for url in asked if not url.startswith((address, "blob:", "data:"))]
    assert not elsewhere, elsewhere
    context.close()


def until(page: Page, script: str, *, wait_s: float = 30.0) -> None:
    """Wait for something to be true in a page whose policy lets no text be run as a script."""
    deadline = time.monotonic() + wait_s
    while not page.evaluate(script):
        assert time.monotonic() < deadline, script
        page.wait_for_timeout(50)


def grave(page: Page) -> list[str]:
    """What axe finds serious."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['target']}" for one in found if one["impact"] in SERIOUS]


# Words of a drawing that lie over each other or outside it.
OVERLAPS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll(".drawing > svg")) {
    if (!svg.checkVisibility()) continue;
    const texts = [...svg.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()]);
    const frame = svg.getBoundingClientRect();
    texts.forEach(([words, box], index) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1) found.push("outside: " + words);
      for (const [other, there] of texts.slice(index + 1)) {
        const wide = Math.min(box.right, there.right) - Math.max(box.left, there.left);
        const tall = Math.min(box.bottom, there.bottom) - Math.max(box.top, there.top);
        if (wide > 1 && tall > 4) found.push(words + " | " + other);
      }
    });
  }
  return found.slice(0, 10);
}"""
