"""Studies, error bars and the runs behind them in a real browser: pictures whose points lead to their plans."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.desk_service import OVERLAPS, enter, grave, secret_of, serving, watched
from tests.unit.app.fake_solver import FINDS, INFEASIBLE, NOT_FOUND, REFUSES
from tests.unit.app.service_fixture import request_for

BATCH, GPUS = "/workload/global_batch_sequences", "/constraints/max_gpus"
PARETO = "import('/static/desk/charts.js').then((charts) => charts.paretoFront(points))"


def _study(address: str, **parts: Any) -> str:
    """A study whose plans have all ended."""
    body = {"name": "grid", "base": request_for(FINDS), **parts}
    made = httpx2.post(f"{address}/v1/studies", json=body, timeout=30).json()
    for _ in range(600):
        if httpx2.get(f"{address}/v1/studies/{made['id']}").json()["state"] == "done":
            return str(made["id"])
        time.sleep(0.05)
    raise AssertionError("the study never ends")


def test_a_grid_is_a_heat_map_whose_cells_lead_to_their_plans(address: str, browser: Browser) -> None:
    study = _study(address, axes={BATCH: [512, 1024, 2048], GPUS: [1, 1024]})
    with watched(browser, address) as page:
        page.goto(f"{address}/studies")
        page.get_by_role("link", name="grid").first.click()
        expect(page.locator("#picture rect.heat")).to_have_count(6)
        expect(page.locator("#picture rect.heat.none")).to_have_count(3)  # one GPU is refused at the door
        expect(page.locator("#members summary", has_text="refused")).to_have_count(3)
        assert grave(page) == []
        cell = page.get_by_label("512, 1,024: 2 s, gap 50.0 %")
        cell.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Summary")).to_be_visible()
    members = httpx2.get(f"{address}/v1/studies/{study}").json()["members"]
    chosen = next(one for one in members if one["changes"] == {BATCH: 512, GPUS: 1024})
    assert page.url.endswith(chosen["plan_id"])


def test_one_axis_is_a_curve_and_patches_are_bars(address: str, browser: Browser) -> None:
    curve = _study(address, axes={BATCH: [512, 1024, 2048]})
    bars = _study(address, patches=[{"workload": {"global_batch_sequences": 512}}, {"constraints": {"max_gpus": 512}}])
    with watched(browser, address) as page:
        page.goto(f"{address}/studies/{curve}")
        expect(page.locator("#picture circle.point")).to_have_count(3)
        expect(page.locator("#picture line.gap-bar")).to_have_count(3)
        page.goto(f"{address}/studies/{bars}")
        expect(page.locator("#picture rect.interval")).to_have_count(2)


def test_a_member_that_failed_is_told_and_the_rest_is_judged_without_it(address: str, browser: Browser) -> None:
    study = _study(address, name="mixed", axes={"/options/seed": [FINDS, REFUSES, INFEASIBLE, NOT_FOUND]})
    with watched(browser, address) as page:
        page.set_viewport_size({"width": 1280, "height": 400})
        page.goto(f"{address}/studies/{study}?show=gap#members")
        expect(page.locator("#members")).to_be_in_viewport()
        for words in ("planned", "failed", "infeasible", "no plan found"):
            expect(page.locator("#members td .state", has_text=words)).to_have_count(1)
        expect(page.locator("#findings")).to_contain_text("alone has a plan")
        expect(page.get_by_label("What is drawn")).to_have_value("gap")
        page.get_by_label("What is drawn").select_option("tokens")
        assert "?show=tokens" in page.url
        assert grave(page) == []
        page.locator("#members").get_by_role("link", name=f"seed {REFUSES}").click()
        expect(page.get_by_role("heading", name="The search failed")).to_be_visible()
        expect(page.get_by_role("heading", name=f"mixed: seed {REFUSES}")).to_be_visible()


def test_a_study_is_made_on_the_page_with_a_key_and_followed(tmp_path: Path, browser: Browser) -> None:
    secret = secret_of(tmp_path)
    with serving(tmp_path) as address, watched(browser, address, allowed=("401 (Unauthorized)",)) as page:
        page.goto(f"{address}/studies")
        enter(page, secret)
        page.get_by_text("New study").click()
        page.get_by_label("What varies, 2").select_option("rate of the first link")
        page.get_by_label("Starts from").select_option("/v1/examples/llama-405b-two-buildings")
        page.get_by_label("Its values, 1").fill("1024; 2048")
        page.get_by_label("Its values, 2").fill("100 Tb/s; 200")
        page.get_by_role("button", name="Plan them all").click()
        expect(page.get_by_text("the unit is missing")).to_be_visible()
        page.get_by_label("Its values, 2").fill("100 Tb/s; 200 Tb/s")
        page.get_by_role("button", name="Plan them all").click()
        expect(page.locator("#picture rect.heat")).to_have_count(4)
        expect(page.locator("#picture")).to_contain_text("200 Tb/s")
        expect(page.get_by_text("4 planned")).to_be_visible(timeout=20_000)


@pytest.mark.parametrize("seed", range(3))
def test_no_point_of_a_front_is_beaten_and_every_other_is(address: str, browser: Browser, seed: int) -> None:
    random.seed(seed)
    points = [{"x": random.randrange(9), "y": random.randrange(9)} for _ in range(30)]
    with watched(browser, address) as page:
        page.goto(f"{address}/accuracy")
        front = page.evaluate(f"(points) => {PARETO}", points)

    def beaten(one: dict[str, int]) -> bool:
        return any(p["x"] <= one["x"] and p["y"] <= one["y"] and p != one for p in points)

    assert {(one["x"], one["y"]) for one in front} == {(one["x"], one["y"]) for one in points if not beaten(one)}


def test_the_runs_behind_a_class_are_shown_and_none_is_told_as_none(address: str, browser: Browser) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/accuracy?class=hopper-dense-bf16#runs")
        table = page.get_by_role("region", name="Measured runs, hopper, dense, bf16")
        expect(table).to_be_visible()
        rows = json.loads(page.evaluate("fetch('/static/desk/runs.json').then((one) => one.text())"))
        wanted = [
            one for one in rows if [one["generation"], one["kind"], one["precision"]] == ["hopper", "dense", "bf16"]
        ]
        expect(table.locator("tbody tr")).to_have_count(len(wanted))
        expect(page.locator("#runs circle.point")).to_have_count(len(wanted))
        assert page.evaluate(OVERLAPS) == []
        page.goto(f"{address}/accuracy?class=rubin-moe-fp4#runs")
        expect(page.get_by_text("No measured run of this class")).to_be_visible()


def test_two_things_that_vary_are_two(address: str, browser: Browser) -> None:
    with watched(browser, address) as page:
        page.goto(f"{address}/studies")
        page.get_by_text("New study").click()
        for number, values in ((1, "128; 256"), (2, "512")):
            page.get_by_label(f"What varies, {number}").select_option(label="global batch")
            page.get_by_label(f"Its values, {number}").fill(values)
        page.get_by_role("button", name="Plan them all").click()
        expect(page.get_by_text("Both things that vary are the same")).to_be_visible()
        assert page.url == f"{address}/studies"


def test_yes_and_no_are_told_as_they_were_written(address: str, browser: Browser) -> None:
    study = _study(address, axes={"/constraints/pipeline_may_cross_buildings": [True, False]})
    with watched(browser, address) as page:
        page.goto(f"{address}/studies/{study}")
        for word in ("yes", "no"):
            expect(page.get_by_role("link", name=f"pipelines may cross buildings {word}").first).to_be_visible()
