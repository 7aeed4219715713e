"""A headless Chromium without a network: one for all tests, a fresh page for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.desk_service import chromium, serving, submitted
from tests.unit.app.fake_solver import FINDS, INFEASIBLE, NOT_FOUND

expect.set_options(timeout=30_000)  # ms: what appears late on a busy machine appears


@dataclass
class Watched:
    """A page and what it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The one browser of all tests."""
    with chromium() as started:
        yield started


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Any]:
    """Opens a file in a page of given theme and width, with the network blocked."""
    contexts = []

    def opened(path: Path, *, theme: str = "light", width: int = 1280, media: str = "screen") -> Watched:
        context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 900}, offline=True)
        contexts.append(context)
        watched = Watched(context.new_page())
        page = watched.page
        page.emulate_media(color_scheme=theme, media=media)
        page.on("console", lambda message: watched.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on("request", lambda request: watched.requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_load_state("load")
        return watched

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the service listens."""
    with serving(tmp_path_factory.mktemp("service")) as where:
        yield where


@pytest.fixture(scope="module")
def plans(address: str) -> dict[str, str]:
    """Plans that have ended, by name."""
    cases = {"one": FINDS, "two": FINDS, "impossible": INFEASIBLE, "unlucky": NOT_FOUND}
    return {name: submitted(address, case, name) for name, case in cases.items()}
