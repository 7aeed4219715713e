"""Processor time and weight of large plans' pages: `python -m benchmarks.desk_pages`.

A service of its own plans two examples; Chromium opens the page of its plan without a network, scrolls it from end to
end and zooms its pipeline with the keyboard. Chromium's tracing says what the page's main thread worked: processor
time, not time on the clock, so that other work on the machine changes little. Needs what `make browser` installs. Exit
status 1: a page takes more than its limits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, CDPSession, Page

from benchmarks.service import free_port, say, status_of, until
from tests.browser.desk_service import chromium

EXAMPLES = ("llama-405b-two-buildings", "deepseek-v3-region")  # 16,384 and 116,736 GPUs
SEARCH_S = 30.0
MOST_CPU_S = 1.0
MOST_BYTES = 1_000_000
LONG_MS = 50.0  # a task that the Long Tasks API calls long: two frames and more are lost
CATEGORIES = ["disabled-by-default-devtools.timeline", "devtools.timeline", "loading"]
WHEEL = 400  # px of one turn, as a hand does
KEYS = ["+"] * 8 + ["ArrowRight"] * 12 + ["-"] * 8 + ["End", "Home", "0"]


@dataclass(frozen=True)
class Work:
    """Processor time of a page's main thread over a trace, in seconds, and of its longest task, in milliseconds."""

    cpu_s: float
    until_painted_s: float
    longest_ms: float
    num_long: int


@contextmanager
def serving() -> Iterator[int]:
    """The port of a service with its worker and a database of its own."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        environment = {**os.environ, "ISTHMUS_DATABASE_URL": f"sqlite:///{Path(folder) / 'x.sqlite'}"}
        command = [sys.executable, "-c", "from app.cli import main; main()", "serve", "--port", str(port)]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            until(lambda: status_of(port, "/healthz/ready") == 200, pause_s=0.1)
            yield port
        finally:
            process.terminate()
            process.wait(60)


def planned(address: str, example: str) -> str:
    """The id of a plan of the example."""
    body = json.load(urlopen(f"{address}/v1/examples/{example}"))
    body["options"] = {**body.get("options", {}), "time_limit_s": SEARCH_S}
    headers = {"Content-Type": "application/json", "Prefer": "wait=60"}
    made = json.load(urlopen(Request(f"{address}/v1/plans", json.dumps(body).encode(), headers)))
    return str(made["id"])


def work_of(trace: bytes) -> Work:
    """What the busiest main thread of a renderer did."""
    events = json.loads(trace)["traceEvents"]
    mains = {(one["pid"], one["tid"]) for one in events
             if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"}  # fmt: skip
    tasks: dict[tuple[int, int], list[tuple[int, int]]] = {one: [] for one in mains}
    for one in events:
        if one["name"] == "RunTask" and "tdur" in one and (one["pid"], one["tid"]) in mains:
            tasks[one["pid"], one["tid"]].append((one["ts"], one["tdur"]))
    thread = max(mains, key=lambda one: sum(cpu for _, cpu in tasks[one]))
    painted = [one["ts"] for one in events if one["name"] == "firstContentfulPaint" and one["pid"] == thread[0]]
    took = [cpu for _, cpu in tasks[thread]]
    return Work(
        sum(took) / 1e6,
        sum(cpu for at, cpu in tasks[thread] if painted and at <= painted[-1]) / 1e6,
        max(took) / 1e3,
        sum(cpu > LONG_MS * 1e3 for cpu in took),
    )


@contextmanager
def traced(browser: Browser, page: Page, found: list[Work]) -> Iterator[None]:
    """Appends what happened inside."""
    browser.start_tracing(page=page, categories=CATEGORIES)
    yield
    found.append(work_of(browser.stop_tracing()))


def weighed(session: CDPSession) -> list[float]:
    """Bytes of every answer that comes from now on, as they are carried."""
    carried: list[float] = []
    session.on("Network.loadingFinished", lambda event: carried.append(event["encodedDataLength"]))
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    return carried


def measured(browser: Browser, address: str, plan: str) -> dict[str, Any]:
    """Opens a plan's page, scrolls it and zooms its pipeline."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/accuracy")
    carried, found = weighed(page.context.new_cdp_session(page)), []
    with traced(browser, page, found):
        page.goto(f"{address}/plans/{plan}")
        page.wait_for_selector("#ask")
        page.wait_for_timeout(500)
    with traced(browser, page, found):
        page.mouse.move(640, 450)
        for _ in range(page.evaluate("document.documentElement.scrollHeight") // WHEEL + 1):
            page.mouse.wheel(0, WHEEL)
            page.wait_for_timeout(30)
    page.focus("#viewer canvas")
    with traced(browser, page, found):
        for key in KEYS:
            page.keyboard.press(key)
            page.wait_for_timeout(30)
    page.close()
    return {"bytes": sum(carried), "opened": found[0], "scrolled": found[1], "zoomed": found[2]}


def main() -> None:
    """Print a line per example and step; leave with 1 when one takes too much."""
    missed = False
    with serving() as port, chromium() as browser:
        address = f"http://127.0.0.1:{port}"
        for example in EXAMPLES:
            found = measured(browser, address, planned(address, example))
            opened = found["opened"]
            say(f"{example}: {found['bytes'] / 1e3:.0f} kB; first paint after {opened.until_painted_s:.2f} s of the "
                f"page's processor time, all of it drawn after {opened.cpu_s:.2f} s")  # fmt: skip
            missed |= opened.cpu_s > MOST_CPU_S or found["bytes"] > MOST_BYTES
            for step in ("scrolled", "zoomed"):
                say(f"  {step}: {found[step].cpu_s:.2f} s, longest task {found[step].longest_ms:.0f} ms, "
                    f"{found[step].num_long} longer than {LONG_MS:.0f} ms")  # fmt: skip
                missed |= found[step].num_long > 0
    sys.exit(missed)


if __name__ == "__main__":
    main()
