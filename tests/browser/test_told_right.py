"""What the desk says of times, attempts, ends of a search, differences and exports is what there is."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.desk_service import submitted, until, watched
from tests.unit.app.fake_solver import FINDS, TAKES_ITS_TIME

SPANS = {9.94: "9.9 s", 9.97: "10 s", 59.7: "1 min", 60: "1 min", 119.7: "2 min", 125: "2 min 5 s", 3599.8: "1 h",
         7260: "2 h 1 min", 86399.9: "1 d", 90_000: "1 d 1 h"}  # fmt: skip
SECONDS = {0: "0 s", 8e-15: "0 s", 2e-6: "2 µs", 1.5: "1.5 s"}


def test_times_are_rounded_before_they_are_taken_apart(address: str, browser: Browser) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/accuracy")
        for name, cases in (("span", SPANS), ("seconds", SECONDS)):
            script = f"(values) => import('/static/desk/dom.js').then((one) => values.map(one.{name}))"
            assert page.evaluate(script, list(cases)) == list(cases.values())


def test_a_second_attempt_begins_its_curve_anew(address: str, browser: Browser) -> None:
    """A worker that starts again counts its seconds from 0."""
    plan = submitted(address, TAKES_ITS_TIME, "again", wait_s=0, time_limit_s=60.0)
    told = [("state", {"state": "running", "attempt": 1}), ("progress", {"elapsed_s": 20.0, "incumbent_s": 3.0}),
            ("progress", {"elapsed_s": 30.0, "lower_bound_s": 1.0}), ("state", {"state": "running", "attempt": 2}),
            ("progress", {"elapsed_s": 2.0, "incumbent_s": 3.0})]  # fmt: skip
    text = "".join(
        f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n" for number, (kind, data) in enumerate(told)
    )
    answers = [{"body": text, "content_type": "text/event-stream"}]
    with watched(browser, address) as page:
        page.route("**/events", lambda route: route.fulfill(**(answers.pop() if answers else {"status": 204})))
        page.goto(f"{address}/plans/{plan}")
        expect(page.locator("#live dl")).to_contain_text("2.0 s")
        ways = page.locator("#live path.incumbent, #live path.bound").evaluate_all(
            "(all) => all.map((one) => one.getAttribute('d'))"
        )
        for way in ways:
            along = [float(one) for one in re.findall(r"[MH]([\d.]+)", way)]
            assert along == sorted(along), way
        assert len(ways) == 2, "what the first attempt has found is kept"
    httpx2.post(f"{address}/v1/plans/{plan}:cancel")


@pytest.mark.parametrize(
    ("reason", "words"), [("time", "ended because it reached its limit of time"),
                          ("crashed", "ended because of a defect of this program")],
)  # fmt: skip
def test_a_plan_that_was_kept_says_why_its_search_ended(
    address: str, plans: dict[str, str], browser: Browser, reason: str, words: str
) -> None:
    def ended(route: Route) -> None:
        status = route.fetch().json()
        route.fulfill(json={**status, "state": "incomplete", "stop_reason": reason})

    with watched(browser, address) as page:
        page.route("**/status", ended)
        page.goto(f"{address}/plans/{plans['one']}")
        expect(page.locator(".subtitle")).to_contain_text(words)


def test_a_bound_of_another_objective_is_shown_as_none_of_time(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    around = {"p10": 1.0, "p50": 2.0, "p90": 3.0}
    bars = {"iteration_s": around, "tokens_per_s": around, "peak_memory_bytes": around, "fits_probability": 0.9,
            "evidence": []}  # fmt: skip

    def cheapest(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "objective": {"kind": "cost_per_token"}})

    def surer(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "prediction": bars})

    with watched(browser, address) as page:
        page.route("**/summary", surer)
        for told in ("between what no plan is below", "this plan, by the model"):
            page.goto(f"{address}/plans/{plans['one']}")
            expect(page.locator("#sure")).to_contain_text(told)
            page.route("**/request", cheapest)
        expect(page.locator("#sure")).not_to_contain_text("no plan is below")


def test_a_plan_whose_best_is_proven_faster_takes_less(address: str, plans: dict[str, str], browser: Browser) -> None:
    def faster(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "best_plans_s": {"least": -2.5, "most": -1.5}})

    with watched(browser, address) as page:
        page.route("**/comparison?**", faster)
        page.goto(f"{address}/compare?a={plans['one']}&b={plans['two']}")
        expect(page.locator("#sure")).to_contain_text("takes between 1.5 s and 2.5 s less per iteration")


def test_exports_that_want_hosts_can_be_saved_once_these_are_named(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    sent: list[Any] = []

    def bound(route: Route) -> None:  # the made-up plans fit no hosts
        if route.request.method == "GET":
            route.continue_()
            return
        sent.append(route.request.post_data_json)
        notes = httpx2.get(route.request.url).json()
        route.fulfill(json={**notes, "slurm-hostfile": {**notes["slurm-hostfile"], "refused": []}})

    with watched(browser, address, allowed=("422 (Unprocessable",)) as page:
        page.goto(f"{address}/plans/{plans['one']}#exports")
        save = page.get_by_role("button", name="Save slurm-hostfile")
        expect(page.get_by_role("button", name="Save rank-map-csv")).to_be_visible()
        expect(save).to_have_count(0)
        page.get_by_text("On hosts of yours").click()
        page.get_by_label("One pool a line").fill("nowhere=n[1-4]")
        expect(page.locator("#exports .alert").first).to_contain_text("which the plan uses")
        page.route("**/artifacts/export-notes", bound)
        page.get_by_label("One pool a line").fill("p0=n[1-4]")
        expect(save).to_be_visible()
        assert sent == [{"hosts": "p0=n[1-4]"}]
        expect(page.locator("#exports .alert").first).to_be_empty()
        page.get_by_label("One pool a line").fill("")
        expect(save).to_have_count(0)


def test_a_name_of_letters_beyond_the_basic_plane_is_cut_between_them(address: str, browser: Browser) -> None:
    plan = submitted(address, FINDS, "a" + "🚀" * 119)
    with watched(browser, address) as page:
        page.goto(f"{address}/new?from={plan}")
        until(page, "document.getElementById('json')?.value")
        assert json.loads(page.input_value("#json"))["name"] == "a" + "🚀" * 107 + ", changed"
        page.get_by_role("button", name="Replan", exact=True).click()
        expect(page.get_by_role("link", name="Compare with its parent")).to_be_visible()
