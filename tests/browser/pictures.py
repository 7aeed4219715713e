"""Makes the pictures of docs/desk from a running service: `python -m tests.browser.pictures http://127.0.0.1:8000`.

They are for readers, not compared by tests: the plans are real, and searches take the time they take.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Page

from tests.browser.desk_service import chromium

FOLDER = Path(__file__).parents[2] / "docs" / "desk"
QUALITY = 60  # of a JPEG: text stays legible, a picture stays below 150 kB
SIZE = {"width": 1280, "height": 860}
IMPOSSIBLE = {"constraints": {"max_gpus": 64}, "name": "405B on 64 GPUs"}
DRAWN = "#exports"


def plan(service: str, example: str, wait_s: int = 60, **changes: Any) -> str:
    """Ask for an example with changes; its id."""
    body = httpx2.get(f"{service}/v1/examples/{example}").json() | changes
    answer = httpx2.post(f"{service}/v1/plans", json=body, headers={"Prefer": f"wait={wait_s}"}, timeout=90)
    return str(answer.json()["id"])


def addresses(service: str) -> dict[str, tuple[str, str]]:
    """Page and what it waits for, by the name of the picture."""
    large = plan(service, "llama-405b-two-buildings", name="405B in two buildings", labels={"team": "search"})
    one_zone = {"pipeline_may_cross_buildings": False, "max_gpus": 8192}
    small = plan(service, "llama-405b-two-buildings", name="405B on half of it", constraints=one_zone)
    impossible = plan(service, "llama-405b-two-buildings", **IMPOSSIBLE)
    return {
        "home": ("/", "tbody tr"),
        "plans": ("/plans", "tbody tr"),
        "plan": (f"/plans/{large}", DRAWN),
        "pipeline": (f"/plans/{large}#pipeline", DRAWN),
        "infeasible": (f"/plans/{impossible}", ".reasons"),
        "compare": (f"/compare?a={large}&b={small}", "#drawn-memory"),
        "new": ("/new", "#verdict summary"),
        "accuracy": ("/accuracy?class=hopper-dense-bf16#runs", "#stacks"),
        "believe": (f"/plans/{large}#sure", "#ask"),
        "study": (f"/studies/{study(service)}", "#picture rect.heat"),
        "studies": ("/studies", "main table"),
    }


def study(service: str) -> str:
    """A small grid whose plans have ended; its id."""
    base = httpx2.get(f"{service}/v1/examples/llama-8b-single-building").json()
    base["options"]["time_limit_s"] = 4
    axes = {"/workload/global_batch_sequences": [512, 1024, 2048], "/constraints/max_gpus": [512, 1024, 2048]}
    body = {"name": "Batch by GPUs", "base": base, "axes": axes}
    made = httpx2.post(f"{service}/v1/studies", json=body, timeout=30).json()
    while httpx2.get(f"{service}/v1/studies/{made['id']}").json()["state"] != "done":
        time.sleep(1)
    return str(made["id"])


def ask(page: Page, address: str, theme: str) -> None:
    """Sliders with the formula's answer and the proof after it; the first theme's question serves both."""
    page.goto(address)
    page.wait_for_selector("#ask .sliders")
    for label, steps in (("Delay of every link, one way", 11), ("GPUs", -2)):
        slider = page.get_by_label(label, exact=True)
        slider.focus()
        for _ in range(abs(steps)):
            page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")
    if theme == "light":
        page.get_by_role("button", name="Prove it by a search").click()
    page.wait_for_selector(".proof .badge-succeeded", timeout=180_000)
    page.locator("#ask .instant").evaluate("(one) => one.scrollIntoView()")
    shoot(page, "ask", theme)


def by_hand(page: Page, service: str, theme: str) -> None:
    """A cluster that is changed by hand."""
    page.goto(f"{service}/new?example=qwen-32b-uneven-region")
    page.get_by_role("button", name="Change it by hand").click()
    page.get_by_role("button", name="Add a link").wait_for()
    page.locator("#cluster").evaluate("(one) => one.scrollIntoView()")
    shoot(page, "cluster", theme)


def shoot(page: Page, name: str, theme: str) -> None:
    """One picture."""
    page.wait_for_timeout(400)
    page.screenshot(path=FOLDER / f"{name}-{theme}.jpg", type="jpeg", quality=QUALITY)


def main(service: str) -> None:
    """Every page in both themes, and a search while it runs."""
    pages, asked = addresses(service), ""
    with chromium() as browser:
        for theme in ("light", "dark"):
            page = browser.new_context(color_scheme=theme, viewport=SIZE).new_page()
            for name, (path, ready) in pages.items():
                page.goto(service + path)
                page.wait_for_selector(ready)
                if name == "studies":
                    page.get_by_text("New study").click()
                shoot(page, name, theme)
            by_hand(page, service, theme)
            ask(page, asked or f"{service}{pages['plan'][0]}", theme)
            asked = page.url
            running = plan(service, "llama-405b-two-buildings", 0, name="405B, being searched")
            page.goto(f"{service}/plans/{running}")
            page.wait_for_selector("#live path.incumbent", timeout=60_000)
            page.wait_for_timeout(8000)
            shoot(page, "search", theme)
            page.get_by_role("button", name="Stop").click()


if __name__ == "__main__":
    main(sys.argv[1])
