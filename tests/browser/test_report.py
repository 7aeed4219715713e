"""The report in a real browser: no network, no complaint, readable, reachable, and it moves."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from app.documents import read_plan
from app.exporters.report.page import report_html
from app.terminal.inputs import read_request, read_source
from tests.browser.desk_service import OVERLAPS, SERIOUS
from tests.build_report import build_report_plan, build_report_request

DATA = Path(__file__).parent / "data"
MAX_BYTES = 3_000_000
CASES = ("region", "many-micro-batches", "hostile")
THEMES = ("light", "dark")


def region_report() -> str:
    """116,736 GPUs in five buildings, as planned by `isthmus plan deepseek-v3-region --time-limit 60`."""
    plan = read_plan(gzip.decompress((DATA / "deepseek-v3-region.plan.json.gz").read_bytes()))
    return report_html(plan, read_request(read_source("deepseek-v3-region")))


def _many() -> str:
    return report_html(build_report_plan(num_ranks=16, num_microbatches=512), build_report_request())


def _hostile() -> str:
    name = "</script><img src=x onerror=alert(1)>" + chr(0x200F) + "\"'"
    plan = build_report_plan(east=f"e{name}", west=f"w{name}", link=f"l{name}", words=name)
    return report_html(plan, build_report_request(east=f"e{name}", west=f"w{name}", link=f"l{name}"))


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports as files."""
    folder = tmp_path_factory.mktemp("reports")
    made = {}
    for name, text in zip(CASES, (region_report(), _many(), _hostile()), strict=True):
        made[name] = folder / f"{name}.html"
        made[name].write_text(text, encoding="utf-8")
    return made


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("theme", THEMES)
def test_it_opens_without_a_network_and_without_a_complaint(
    name: str, theme: str, reports: dict[str, Path], open_file: Any
) -> None:
    watched = open_file(reports[name], theme=theme)
    watched.page.wait_for_function("document.querySelector('#viewer canvas')?.getAttribute('aria-label')")
    assert watched.complaints == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []
    assert reports[name].stat().st_size < MAX_BYTES


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_no_serious_violation(name: str, theme: str, reports: dict[str, Path], open_file: Any) -> None:
    page = open_file(reports[name], theme=theme).page
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = Axe().run(page).response["violations"]
    grave = [f"{one['id']}: {one['nodes'][0]['target']} {one['nodes'][0]['failureSummary']}" for one in found
             if one["impact"] in SERIOUS]  # fmt: skip
    assert grave == []


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [1280, 800, 400])
def test_nothing_sticks_out_sideways(name: str, width: int, reports: dict[str, Path], open_file: Any) -> None:
    page = open_file(reports[name], width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [1280, 800])
def test_no_words_of_a_drawing_overlap(name: str, width: int, reports: dict[str, Path], open_file: Any) -> None:
    page = open_file(reports[name], width=width).page
    assert page.evaluate(OVERLAPS) == []


def _moved(page: Page, before: str) -> str:
    """What the zoom says it shows, once that is no longer what it was."""
    page.wait_for_function("(before) => document.querySelector('#viewer canvas').ariaLabel !== before", arg=before)
    return page.locator("#viewer canvas").get_attribute("aria-label") or ""


def test_the_zoom_obeys_keys_buttons_and_the_pointer(reports: dict[str, Path], open_file: Any) -> None:
    watched = open_file(reports["many-micro-batches"])
    page = watched.page
    page.wait_for_function("document.querySelector('#viewer canvas').ariaLabel")
    whole = page.locator("#viewer canvas").get_attribute("aria-label")
    page.focus("#viewer canvas")
    page.keyboard.press("+")
    near = _moved(page, whole)
    page.keyboard.press("ArrowRight")
    later = _moved(page, near)
    page.keyboard.press("0")
    assert _moved(page, later) == whole
    page.get_by_role("button", name="Fill").click()
    _moved(page, whole)
    page.locator("#viewer canvas").hover(position={"x": 140, "y": 5})
    assert page.locator("#viewer output").inner_text().startswith("rank 0 (east): F of micro-batch 0, stage 0, 0 s")
    assert watched.complaints == []


def test_every_control_is_reached_by_the_keyboard(reports: dict[str, Path], open_file: Any) -> None:
    page = open_file(reports["region"]).page
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName"))
    assert {"A", "SELECT", "BUTTON", "CANVAS", "SUMMARY"} <= reached


def test_print_shows_the_tables_and_hides_what_only_moves(reports: dict[str, Path], open_file: Any) -> None:
    page = open_file(reports["many-micro-batches"], theme="dark", media="print").page
    assert not page.locator("#viewer").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.get_by_text("Peak memory of one GPU", exact=True).last.bounding_box()["height"] > 0


def test_without_scripts_the_drawings_are_still_there(reports: dict[str, Path], browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(reports["many-micro-batches"].as_uri())
    assert page.locator(".drawing > svg").count() >= 8
    assert not page.locator("#viewer").is_visible()
    context.close()
