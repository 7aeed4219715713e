"""What a reader has stays: going back, reloading, a service that is away for a while, a row that is filtered out."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.desk_service import grave, submitted, until, watched
from tests.unit.app.fake_solver import FINDS, TAKES_ITS_TIME

KEPT = "Boolean(history.state?.draft?.includes('1536'))"
GONE = "Failed to load resource: net::ERR_"


def test_back_leads_to_the_page_before_also_behind_a_part_of_a_page(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/plans/{plans['one']}")
        page.get_by_role("link", name="Memory", exact=True).click()
        page.get_by_role("link", name="Time", exact=True).click()
        expect(page).to_have_url(re.compile("#time$"))
        page.get_by_role("link", name="Accuracy", exact=True).click()
        expect(page.get_by_role("heading", name="How far to believe it")).to_be_visible()
        page.go_back()
        expect(page.locator("#time")).to_be_in_viewport()
        summary = page.get_by_role("heading", name="Summary").element_handle()
        page.go_back()
        expect(page.locator("#memory")).to_be_in_viewport()
        assert summary.evaluate("(one) => one.isConnected"), "a part of the same page needs no new drawing"


def test_a_draft_survives_leaving_and_reloading(address: str, browser: Browser) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/new")
        page.get_by_label("Global batch").fill("1,536")
        until(page, KEPT)
        page.get_by_role("link", name="Accuracy", exact=True).click()
        expect(page.get_by_role("heading", name="How far to believe it")).to_be_visible()
        page.go_back()
        expect(page.get_by_label("Global batch")).to_have_value("1,536")
        page.reload()
        expect(page.get_by_label("Global batch")).to_have_value("1,536")
        page.get_by_role("link", name="New plan").click()
        expect(page.get_by_label("Global batch")).not_to_have_value("1,536")


def test_a_secret_in_a_draft_is_not_kept(address: str, browser: Browser) -> None:
    with watched(browser, address, allowed=("422 (Unprocessable",)) as page:
        page.goto(f"{address}/new")
        page.get_by_label("Global batch").fill("1,536")
        until(page, KEPT)
        draft = json.loads(page.input_value("#json"))
        draft["webhook"] = {"url": "https://hooks.example.org/x", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
        page.get_by_label("The request as JSON").fill(json.dumps(draft))
        until(page, "history.state === null")


def test_a_search_is_followed_again_when_the_service_is_back(address: str, browser: Browser) -> None:
    name = submitted(address, TAKES_ITS_TIME, "away", wait_s=0, time_limit_s=60.0)
    with watched(browser, address, allowed=(GONE,)) as page:
        page.goto(f"{address}/plans?name=away")
        expect(page.get_by_role("row", name="away")).to_contain_text("running")
        page.context.set_offline(True)
        expect(page.locator("#told")).to_have_text("The service does not answer; trying again")
        page.context.set_offline(False)
        expect(page.locator("#told")).to_contain_text("1 plan")
        page.context.set_offline(True)
        page.get_by_role("link", name="away").click()
        expect(page.locator("#told")).to_have_text("The service does not answer; trying again")
        page.context.set_offline(False)
        expect(page.get_by_role("heading", name="Searching")).to_be_visible()
        page.reload()
        expect(page.locator("#live path.incumbent")).to_be_attached()  # the course so far is told again
        page.get_by_role("button", name="Stop, keep the best").click()
        expect(page.get_by_role("heading", name="Summary")).to_be_visible()
        assert page.url.endswith(name)


def test_what_is_chosen_stays_chosen_while_other_rows_are_looked_at(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    assert plans
    with watched(browser, address) as page:
        page.goto(f"{address}/plans")
        page.get_by_role("checkbox", name="Compare one", exact=True).check()
        expect(page.get_by_text("Choose one more to compare")).to_be_visible()
        page.get_by_label("Name contains").fill("two")
        expect(page.get_by_role("checkbox", name="Compare one", exact=True)).to_have_count(0)
        page.get_by_role("checkbox", name="Compare two", exact=True).check()
        page.get_by_label("Name contains").fill("")
        expect(page.get_by_role("checkbox", name="Compare one", exact=True)).to_be_checked()
        page.get_by_role("button", name="iteration", exact=True).click()
        page.reload()
        expect(page.locator("th[aria-sort=descending]")).to_have_text("iteration")


def test_names_of_any_kind_are_shown_as_they_are_and_break_nothing(
    address: str, browser: Browser, tmp_path: Path
) -> None:
    odd = "</script><img src=x onerror=alert(1)> שלום & 'q' \"" + "名" * 20 + "x" * 40
    submitted(address, FINDS, odd)
    with watched(browser, address) as page:
        for width in (1280, 400):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(f"{address}/plans?name=onerror")
            link = page.get_by_role("link", name=odd, exact=True)
            expect(link).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            link.click()
            expect(page.get_by_role("heading", name=odd, exact=True)).to_be_visible()
            expect(page.get_by_role("heading", name="Exports")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert grave(page) == []
        assert page.title().startswith("</script>")
        with page.expect_download() as download:
            page.get_by_role("button", name="PNG of the pipeline as it is shown").click()
        taken = tmp_path / "pipeline.png"
        download.value.save_as(taken)
        assert taken.read_bytes().startswith(b"\x89PNG")


def test_an_address_is_copied_with_and_without_a_clipboard(
    address: str, plans: dict[str, str], browser: Browser
) -> None:
    for script in ("", "Object.defineProperty(navigator, 'clipboard', { value: undefined })"):
        with watched(browser, address) as page:
            page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            page.add_init_script(script)
            page.goto(f"{address}/plans/{plans['one']}#memory")
            page.get_by_role("button", name="Copy link").click()
            expect(page.locator("#told")).to_have_text("Copied")
            field = page.get_by_label("How much longer to search")
            field.fill("")
            field.press("Control+v")
            expect(field).to_have_value(f"{address}/plans/{plans['one']}#memory")
