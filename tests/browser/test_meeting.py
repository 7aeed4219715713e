"""A planning meeting with keys on, by the planner that users have: from the first click to a cluster made by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from app.settings import Solvers
from tests.browser.desk_service import enter, grave, secret_of, serving, watched
from tests.build_request import build_request

LATE_MS = 90_000  # a busy machine searches late, which is no fault of the page
GRACE_S = 20.0
ALLOWED = {"tp": [2, 4], "pp": [1, 2], "vpp": [1], "micro_batch_sequences": [1], "sharding": ["zero1"]}


@dataclass(frozen=True)
class Desk:
    """A service that asks for keys, and a key."""

    address: str
    secret: str
    browser: Browser

    def ask(self, method: str, path: str, **parts: Any) -> Any:
        """The API's answer to a client with the key."""
        headers = {"Authorization": f"Bearer {self.secret}", **parts.pop("headers", {})}
        answer = httpx2.request(method, self.address + path, headers=headers, timeout=120, **parts)
        assert answer.is_success, answer.text
        return answer.json()

    def plan(self, name: str, time_limit_s: float = 4.0, **constraints: Any) -> str:
        """The id of a plan of 32 GPUs in three buildings, whose search has ended."""
        request = build_request(
            constraints={"allowed": ALLOWED, **constraints}, options={"time_limit_s": time_limit_s}
        ).model_dump(mode="json")
        made = self.ask("POST", "/v1/plans", json={**request, "name": name}, headers={"Prefer": "wait=90"})
        assert made["state"] == "succeeded"
        return str(made["id"])

    @contextmanager
    def at(self, path: str) -> Iterator[Page]:
        """The page at a path, with the key given."""
        with watched(self.browser, self.address, allowed=("401 (Unauthorized)",)) as page:
            page.goto(self.address + path)
            enter(page, self.secret)
            yield page


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Desk]:
    """The real planner behind keys."""
    folder = tmp_path_factory.mktemp("meeting")
    secret = secret_of(folder)
    graces = dict.fromkeys(("soft_grace_s", "kill_grace_s", "cancel_grace_s"), GRACE_S)
    with serving(folder, solvers=Solvers(), child_memory_bytes=3 * 1024**3, **graces) as where:
        yield Desk(where, secret, browser)


def test_a_newcomer_sees_the_first_search_and_its_plan(desk: Desk) -> None:
    with desk.at("/") as page:
        page.get_by_role("button", name="Plan the small example").click()
        expect(page.get_by_role("heading", name="Example llama-8b-single-building")).to_be_visible()
        expect(page.locator("#live path.incumbent")).to_be_attached(timeout=LATE_MS)
        expect(page.get_by_role("heading", name="Where the iteration time goes")).to_be_visible(timeout=LATE_MS)
        expect(page.get_by_role("heading", name="How far to believe it")).to_be_visible(timeout=LATE_MS)
        assert grave(page) == []
        page.get_by_role("link", name="Isthmus").click()
        expect(page.get_by_role("link", name="Example llama-8b-single-building")).to_be_visible()


def test_the_large_search_is_watched_and_stopped_with_its_best_plan(desk: Desk) -> None:
    with desk.at("/") as page:
        page.get_by_role("button", name="Then the 405B one").click()
        expect(page.get_by_role("heading", name="Searching")).to_be_visible()
        expect(page.locator("#live dd").first).to_have_text(re.compile(r"\d s$"), timeout=LATE_MS)
        page.get_by_role("button", name="Stop, keep the best").click()
        expect(page.get_by_role("heading", name="Searching")).to_be_hidden(timeout=LATE_MS)
        expect(page.get_by_role("heading", name="Summary")).to_be_visible(timeout=LATE_MS)
        expect(page.locator("#told")).to_contain_text("The search has ended")


def test_a_wish_that_clashes_is_told_with_every_way_out(desk: Desk) -> None:
    with desk.at("/new?example=llama-405b-two-buildings") as page:
        page.get_by_label("GPUs, at most").fill("64")
        expect(page.locator("#verdict")).to_contain_text("No plan can obey this request.")
        page.get_by_label("Name", exact=True).fill("405B on 64 GPUs")
        page.get_by_role("button", name="Plan", exact=True).click()
        alert = page.get_by_role("alert").or_(page.get_by_role("heading", name="No plan obeys this request"))
        expect(alert).to_be_visible(timeout=LATE_MS)


def test_three_plans_are_chosen_in_the_list_and_compared(desk: Desk) -> None:
    for number in (32, 16, 24):
        desk.plan(f"up to {number}", max_gpus=number)
    with desk.at("/plans?name=up+to&sort=plan") as page:
        expect(page.locator("tbody tr")).to_have_count(3)
        for number in (32, 16, 24):
            page.get_by_role("checkbox", name=f"Compare up to {number}").check()
        page.get_by_role("link", name="Compare the 3").click()
        expect(page.get_by_role("heading", name="Compare plans")).to_be_visible()
        figures = page.locator("#figures table")
        expect(figures.locator("thead th")).to_have_text(["what", "A", "B", "C", "B against A", "C against A"])
        asked = page.locator("#request").get_by_role("row", name="/constraints/max_gpus")
        expect(asked.locator("td")).to_have_text(["32", "16", "24"])
        expect(page.locator("#sure figure")).to_have_count(2)
        expect(page.locator("#drawn-memory svg[role=img]")).to_have_count(3, timeout=LATE_MS)
        assert grave(page) == []


def test_a_slider_is_answered_at_once_and_proven_later(desk: Desk) -> None:
    plan = desk.plan("asked")
    with desk.at(f"/plans/{plan}#ask") as page:
        slider = page.get_by_label("Delay of every link, one way", exact=True)
        slider.focus()
        for _ in range(12):
            page.keyboard.press("ArrowRight")
        expect(page.locator(".instant")).to_contain_text("by formula")
        expect(page.locator(".proof")).to_be_hidden()
        page.get_by_label("Time for an answer").fill("8 s")
        page.get_by_role("button", name="Prove it by a search").click()
        proof = page.locator(".proof")
        expect(proof.locator(".state").first).to_have_text(
            re.compile("answered|as far as it was searched"), timeout=LATE_MS
        )
        expect(proof.locator("path.estimate")).to_have_count(1)


def test_a_point_of_a_studys_frontier_opens_its_plan(desk: Desk) -> None:
    base = build_request(constraints={"allowed": ALLOWED}, options={"time_limit_s": 3.0}).model_dump(mode="json")
    order = {"name": "how many", "base": base, "axes": {"/constraints/max_gpus": [8, 16]}}
    study = desk.ask("POST", "/v1/studies", json=order)
    with desk.at("/studies") as page:
        page.get_by_role("link", name="how many").click()
        expect(page.get_by_text("2 planned")).to_be_visible(timeout=LATE_MS)
        expect(page.locator("#findings table tbody tr")).to_have_count(1)
        page.get_by_role("link", name=re.compile("^GPUs at most 8: 8, ")).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="how many: max_gpus 8")).to_be_visible()
        page.get_by_role("link", name="part of a study").click()
        expect(page).to_have_url(f"{desk.address}/studies/{study['id']}")


def test_a_cluster_made_by_keys_alone_is_planned(desk: Desk) -> None:
    with desk.at("/new?example=llama-8b-single-building") as page:
        page.get_by_role("button", name="Begin an empty one").press("Enter")
        page.get_by_role("button", name="Remove link link-1").press("Enter")
        expect(page.locator("#verdict")).to_contain_text("no link and no region joins")
        page.locator("[data-place=building-1]").press("Enter")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Capacity of link-1")).to_be_focused()
        page.keyboard.press("Control+a")
        page.keyboard.type("3.2 Tb/s")
        page.get_by_label("Time limit", exact=True).fill("5 s")
        expect(page.locator("#verdict")).not_to_contain_text("no region joins")
        page.get_by_role("button", name="Plan", exact=True).press("Enter")
        expect(page.get_by_role("heading", name="Buildings and what flows between them")).to_be_visible(timeout=LATE_MS)
