"""The desk in a real browser, against a running service with the made-up planner."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Route, expect

from app.exporters.launch.options import Launch
from tests.browser.desk_service import grave, secret_of, serving, submitted, watched
from tests.browser.test_report import DATA, region_report
from tests.unit.app.fake_solver import FINDS, TAKES_ITS_TIME
from tests.unit.app.service_fixture import request_for

THEMES = ("light", "dark")
MOST_BYTES = 1_000_000


def test_a_newcomer_has_a_plan_after_one_click_and_then_the_large_one(address: str, browser: Browser) -> None:
    with watched(browser, address) as page:
        page.goto(address)
        page.get_by_role("button", name="Plan the small example").click()
        expect(page.get_by_role("heading", name="Example llama-8b-single-building")).to_be_visible()
        expect(page.get_by_role("heading", name="Where the iteration time goes")).to_be_visible()
        page.get_by_role("link", name="Isthmus").click()
        page.get_by_role("button", name="Then the 405B one").click()
        expect(page.get_by_role("heading", name="Example llama-405b-two-buildings")).to_be_visible()
        expect(page.get_by_role("heading", name="Summary")).to_be_visible()


def test_a_search_is_followed_and_stopped_and_keeps_its_best_plan(address: str, browser: Browser) -> None:
    name = submitted(address, TAKES_ITS_TIME, "slow", wait_s=0, time_limit_s=60.0)
    with watched(browser, address) as page:
        page.goto(f"{address}/plans/{name}")
        expect(page.get_by_role("heading", name="Searching")).to_be_visible()
        expect(page.locator("#live dd").first).to_have_text("2 s")
        expect(page.locator("#live path.incumbent")).to_be_attached()
        expect(
            page.get_by_role("heading", name="Memory per pipeline rank")
        ).to_be_visible()  # already, of the best so far
        page.get_by_role("button", name="Stop, keep the best").click()
        expect(page.get_by_role("heading", name="Searching")).to_be_hidden(timeout=15_000)
        expect(page.get_by_role("heading", name="Summary")).to_be_visible()
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def test_a_row_changes_while_its_search_runs(address: str, browser: Browser) -> None:
    name = submitted(address, TAKES_ITS_TIME, "changing", wait_s=0, time_limit_s=60.0)
    with watched(browser, address) as page:
        page.goto(f"{address}/plans?name=changing")
        row = page.get_by_role("row", name="changing")
        expect(row).to_contain_text("running")
        httpx2.post(f"{address}/v1/plans/{name}:cancel", headers={"Prefer": "wait=20"}, timeout=30)
        expect(row).not_to_contain_text("running", timeout=15_000)


def test_the_impossible_is_told_with_reasons_and_never_as_a_success(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/plans/{plans['impossible']}")
        expect(page.get_by_role("heading", name="No plan obeys this request")).to_be_visible()
        expect(page.get_by_text("needs 2, has 1")).to_be_visible()
        assert "succeeded" not in page.inner_text("body")
        page.goto(f"{address}/plans/{plans['unlucky']}")
        expect(page.get_by_text("0 of 3 tried")).to_be_visible()
        assert grave(page) == []


def test_two_plans_of_the_list_are_compared(address: str, plans: dict[str, str], browser: Browser) -> None:
    assert plans
    with watched(browser, address) as page:
        page.goto(f"{address}/plans")
        for name in ("one", "two"):
            page.get_by_role("checkbox", name=f"Compare {name}", exact=True).check()
        page.get_by_role("link", name="Compare the two").click()
        expect(page.get_by_text("Both take the same time.")).to_be_visible()
        expect(page.get_by_role("heading", name="Memory per pipeline rank")).to_be_visible()
        assert page.locator("#drawn-time svg[role=img]").count() == 2
        assert page.evaluate("new Set([...document.querySelectorAll('[id]')].map((one) => one.id)).size"
                             " === document.querySelectorAll('[id]').length")  # fmt: skip
        assert grave(page) == []


def test_the_list_filters_and_sorts_and_says_so_in_its_address(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    assert plans
    with watched(browser, address) as page:
        page.goto(f"{address}/plans")
        page.get_by_label("Outcome").select_option("infeasible")
        expect(page.locator("tbody tr")).to_have_count(1)
        assert page.url.endswith("?state=infeasible")
        page.reload()
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_label("Outcome").select_option("")
        page.get_by_role("button", name="plan", exact=True).click()
        expect(page.locator("th[aria-sort=ascending]")).to_have_text("plan")
        names = page.locator("tbody tr th a").all_inner_texts()
        assert names == sorted(names, key=str.lower)


def test_a_request_is_checked_while_typing_and_planned_with_a_key_that_is_never_stored(
    tmp_path: Path, browser: Browser
) -> None:
    secret = secret_of(tmp_path)
    refusals = ("401 (Unauthorized)", "422 (Unprocessable")
    with serving(tmp_path) as address, watched(browser, address, allowed=refusals) as page:
        page.goto(f"{address}/new")
        expect(page.get_by_label("Key, if this service asks for one")).to_be_focused()
        page.keyboard.type(secret)
        page.keyboard.press("Enter")
        expect(page.get_by_text("Arithmetic finds nothing against it.")).to_be_visible()
        page.get_by_label("Global batch").fill("0")
        expect(page.locator("#verdict")).to_contain_text("/workload/global_batch_sequences")
        page.get_by_label("Global batch").fill("1024")
        assert json.loads(page.input_value("#json"))["workload"]["global_batch_sequences"] == 1024
        page.get_by_label("The request as JSON").fill("{")
        expect(page.get_by_text("This is no JSON")).to_be_visible()
        page.get_by_label("The request as JSON").fill(json.dumps({**request_for(FINDS), "name": "typed"}))
        expect(page.get_by_text("Arithmetic finds nothing against it.")).to_be_visible()
        assert page.input_value("#field-0") == "typed"
        page.get_by_role("button", name="Plan", exact=True).click()
        expect(page.get_by_role("heading", name="Summary")).to_be_visible()
        assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0
        page.reload()
        expect(page.get_by_role("alert")).to_contain_text("401")


def test_what_is_shown_can_be_taken_along(
    address: str, plans: dict[str, str], browser: Browser, tmp_path: Path
) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/plans/{plans['one']}")
        expect(page.get_by_role("heading", name="Exports")).to_be_visible()
        taken = {}
        for control in ("CSV of Peak memory of one GPU", "JSON of Peak memory of one GPU",
                        "SVG of Iteration time by cause", "PNG of Iteration time by cause",
                        "Save rank-map-csv", "Report, one HTML file"):  # fmt: skip
            page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
            with page.expect_download() as download:
                page.get_by_role("button", name=control, exact=True).click()
            taken[control] = tmp_path / download.value.suggested_filename
            download.value.save_as(taken[control])
        rows = json.loads(taken["JSON of Peak memory of one GPU"].read_text())
        assert rows[0]["weights"] == 1e9, "the exact number, not its rounding"
        assert len(taken["CSV of Peak memory of one GPU"].read_text().splitlines()) == len(rows) + 1
        assert taken["SVG of Iteration time by cause"].read_text().startswith("<svg")
        assert taken["PNG of Iteration time by cause"].read_bytes().startswith(b"\x89PNG")


def test_a_part_of_a_plan_has_an_address(address: str, plans: dict[str, str], browser: Browser) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/plans/{plans['one']}#memory")
        expect(page.locator("#memory")).to_be_in_viewport()


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_serious_on_any_page(
    address: str, plans: dict[str, str], theme: str, browser: Browser
) -> None:
    pages = {"/": "Latest plans", "/plans": "Plans", "/new": "New plan", "/accuracy": "Network", "/studies": "Studies",
             f"/plans/{plans['one']}": "Exports", f"/plans/{plans['impossible']}": "No plan obeys this request",
             f"/compare?a={plans['one']}&b={plans['two']}": "Bytes by link"}  # fmt: skip
    with watched(browser, address, theme=theme) as page:
        for path, heading in pages.items():
            page.goto(address + path)
            expect(page.get_by_role("heading", name=heading).first).to_be_visible()
            page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
            assert grave(page) == [], path


@pytest.mark.parametrize("width", [1280, 800, 400])
def test_no_page_sticks_out_sideways(address: str, plans: dict[str, str], width: int, browser: Browser) -> None:
    with watched(browser, address) as page:
        page.set_viewport_size({"width": width, "height": 900})
        for path in ("/", "/plans", "/new", "/accuracy", "/studies", f"/plans/{plans['one']}"):
            page.goto(address + path)
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_wall_screen_shows_larger_letters_and_the_pointer_meets_what_it_points_at(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    with watched(browser, address) as page:
        page.set_viewport_size({"width": 3840, "height": 2160})
        page.goto(f"{address}/plans/{plans['one']}")
        canvas = page.locator("#viewer canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        assert box is not None
        assert box["width"] > 1.3 * canvas.evaluate("(one) => one.clientWidth"), "enlarged"
        assert page.evaluate("document.documentElement.scrollWidth") <= 3840
        canvas.hover(position={"x": box["width"] / 2, "y": 33})  # 22 px of the page: the second row of 15
        expect(page.locator("#viewer output")).to_have_text(re.compile("^rank 1"))


def test_the_page_of_116736_gpus_weighs_less_than_a_megabyte(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    report = region_report()
    weights: list[int] = []
    with watched(browser, address) as page:
        page.route("**/artifacts/report-html", lambda route: route.fulfill(body=report, content_type="text/html"))
        page.on("response", lambda answer: weights.append(0 if "report-html" in answer.url else len(answer.body())))
        page.goto(f"{address}/plans/{plans['one']}")
        expect(page.get_by_role("heading", name="Exports")).to_be_visible()
        expect(page.locator("#viewer canvas")).to_have_attribute("aria-label", re.compile("^Pipeline from"))
        assert page.locator("#buildings svg[role=img]").count() == 1
        carried = len(gzip.compress(report.encode()))  # as the service sends it
        assert sum(weights) + carried < MOST_BYTES
    assert DATA.exists()


def test_every_control_is_reached_by_the_keyboard(address: str, plans: dict[str, str], browser: Browser) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/plans/{plans['one']}")
        expect(page.get_by_role("heading", name="Exports")).to_be_visible()
        reached = set()
        for _ in range(80):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.tagName"))
        assert {"A", "BUTTON", "CANVAS", "SELECT", "SUMMARY"} <= reached


def test_a_plan_that_does_not_exist_is_told(address: str, browser: Browser) -> None:
    with watched(browser, address, allowed=("404 (Not Found)",)) as page:
        page.goto(f"{address}/plans/nothing_of_that_name")
        expect(page.get_by_role("alert")).to_contain_text("404")


def test_a_replan_sends_what_was_changed_and_leads_back_to_its_parent(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/plans/{plans['one']}")
        page.get_by_role("link", name="Replan with a change").click()
        expect(page.get_by_text("Arithmetic finds nothing against it.")).to_be_visible()
        page.get_by_label("Enough at a gap of").fill("2 %")
        page.get_by_role("button", name="Replan").click()
        expect(page.get_by_role("link", name="Compare with its parent")).to_be_visible()
        made = httpx2.get(f"{address}/v1/plans/{page.url.rpartition('/')[2]}/status").json()
        assert made["parent_id"] == plans["one"]
        expect(page.get_by_role("heading", name="Summary")).to_be_visible()
        page.get_by_role("link", name="Compare with its parent").click()
        expect(page.get_by_role("rowheader", name="/options/relative_gap")).to_be_visible()
        expect(page.get_by_role("rowheader", name="/workload/sequence_length")).to_have_count(0)


def test_a_search_goes_on_as_a_plan_of_its_own(address: str, plans: dict[str, str], browser: Browser) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/plans/{plans['one']}")
        page.get_by_label("How much longer to search").fill("5")
        page.get_by_role("button", name="Search on for").click()
        expect(page.get_by_role("alert")).to_contain_text("the unit is missing")
        page.get_by_label("How much longer to search").fill("5 s")
        page.get_by_role("button", name="Search on for").click()
        expect(page.get_by_role("link", name="Compare with its parent")).to_be_visible()
        made = httpx2.get(f"{address}/v1/plans/{page.url.rpartition('/')[2]}/request").json()
        assert made["options"]["time_limit_s"] == 5.0


def test_a_plan_is_exported_on_hosts_of_the_reader_and_started_from_a_folder(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    with watched(browser, address, allowed=("422 (Unprocessable",)) as page:
        page.goto(f"{address}/plans/{plans['one']}#exports")
        page.get_by_text("On hosts of yours").click()
        page.get_by_label("One pool a line").fill("nowhere=n[1-4]")
        page.get_by_role("button", name="Save the folder").click()
        expect(page.get_by_text("It cannot be started so:")).to_be_visible()
        expect(page.locator("#exports .warnings")).to_contain_text("which the plan uses")
        sent: list[str] = []

        def made(route: Route) -> None:  # the made-up plans fit no hosts
            sent.append(route.request.post_data or "")
            route.fulfill(body=b"PK", content_type="application/zip")

        page.route("**/bundle", made)
        page.get_by_label("Time limit of the job").fill("24 h")
        page.get_by_label("What starts it").select_option("Kubernetes with Kueue")
        with page.expect_download() as download:
            page.get_by_role("button", name="Save the folder").click()
        assert download.value.suggested_filename == f"{plans['one']}.isthmus.zip"
        asked = Launch.model_validate_json(sent[0])
        assert (asked.scheduler, asked.hosts, asked.time_limit_minutes) == ("kubernetes", "nowhere=n[1-4]", 1440)
