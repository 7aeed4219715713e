"""A request made by hand in a real browser: quantities as written, a cluster by table and drawing, imports."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.desk_service import OVERLAPS, enter, grave, secret_of, serving, watched
from tests.unit.app.importers import samples
from tests.unit.app.importers.samples import LLAMA_8B
from tests.unit.app.service_fixture import FAKE_SOLVERS

REAL_CHECKS = FAKE_SOLVERS.model_copy(update={"lint": "solver.lint:lint", "validate_request": "solver.planner:check"})
UNITS = "import('/static/desk/units.js')"
NOTHING_AGAINST = "Arithmetic finds nothing against it."


@pytest.fixture(scope="module")
def linting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service whose checks are the real ones and whose planner is made up."""
    with serving(tmp_path_factory.mktemp("linting"), solvers=REAL_CHECKS) as where:
        yield where


def _request(page: Page) -> Any:
    return json.loads(page.input_value("#json"))


def _parsed(page: Page, kind: str, text: str) -> Any:
    return page.evaluate(f"([kind, text]) => {UNITS}.then((units) => units.parse(kind, text))", [kind, text])


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [("rate", "400 Gb/s", 5e10), ("rate", "400Gbps", 5e10), ("rate", "50 GB/s", 5e10), ("rate", "3.2 Tbit/s", 4e11),
     ("time", "5 ms", 5e-3), ("time", "7us", 7e-6), ("time", "7 µs", 7e-6), ("bytes", "80 GB", 8e10),
     ("bytes", "80 GiB", 80 * 2**30), ("count", "16,384", 16384), ("share", "0.1 %", 1e-3), ("share", "1e-6", 1e-6),
     ("distance", "80 km", 80), ("search", "10 min", 600), ("ratio", "2.8", 2.8)],
)  # fmt: skip
def test_a_quantity_is_read_as_it_is_written(linting: str, browser: Browser, kind: str, text: str, value: Any) -> None:
    with watched(browser, linting) as page:
        page.goto(f"{linting}/accuracy")
        assert _parsed(page, kind, text) == {"value": pytest.approx(value, rel=1e-12)}


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [("rate", "400", "the unit is missing"), ("rate", "400 ms", "no unit here"), ("rate", "5 GBPS", "no unit here"),
     ("bytes", "80 Gb", "no unit here"), ("time", "0,5 ms", "with a point"), ("count", "1.5", "no whole number"),
     ("count", "1,2", "with a point"), ("rate", "fast", "no number"), ("time", "-1 s", "less than nothing")],
)  # fmt: skip
def test_what_may_mean_two_things_is_refused_in_words(
    linting: str, browser: Browser, kind: str, text: str, why: str
) -> None:
    with watched(browser, linting) as page:
        page.goto(f"{linting}/accuracy")
        assert why in _parsed(page, kind, text)["fault"]


def test_any_quantity_survives_being_written_and_read(linting: str, browser: Browser) -> None:
    random.seed(21)
    kinds = ["rate", "time", "bytes", "distance", "share", "ratio", "search", "money"]
    cases = [[kind, float(f"{random.uniform(1, 10):.9g}") * 10.0 ** random.randint(-9, 15)] for kind in kinds * 60]
    cases += [["count", random.randrange(10**9)] for _ in range(60)] + [[kind, 0] for kind in kinds]
    with watched(browser, linting) as page:
        page.goto(f"{linting}/accuracy")
        script = f"(cases) => {UNITS}.then((u) => cases.map(([kind, value]) => u.parse(kind, u.written(kind, value))))"
        for (kind, value), read in zip(cases, page.evaluate(script, cases), strict=True):
            assert read.get("value") == pytest.approx(value, rel=1e-11), (kind, value, read)


def test_a_cluster_is_made_by_hand_and_planned_with_a_key(tmp_path: Path, browser: Browser) -> None:
    secret = secret_of(tmp_path)
    with (
        serving(tmp_path, solvers=REAL_CHECKS) as address,
        watched(browser, address, allowed=("401 (Unauthorized)", "422 (Unprocessable")) as page,
    ):
        page.goto(f"{address}/new?example=llama-8b-single-building")
        enter(page, secret)
        page.get_by_role("button", name="Begin an empty one").click()
        page.get_by_label("Name of building-1").fill("north")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Add a building").click()
        page.get_by_label("Capacity of link-1").fill("1.6 Tb/s")
        page.get_by_label("Delay of link-1").fill("5 ms")
        page.get_by_label("Memory of pool-1").fill("141 GB")
        page.get_by_label("Hosts of pool-2").fill("1,024")
        made = _request(page)["cluster"]
        assert made["links"][0]["from_place"] == "north", "what a place is called is called so everywhere"
        assert (made["links"][0]["capacity_bytes_per_s"], made["links"][0]["latency_s"]) == (2e11, 5e-3)
        assert made["pools"][0]["place"] == "north"
        assert (made["pools"][0]["gpu"]["memory_bytes"], made["pools"][0]["gpu"]["name"]) == (
            1.41e11, "H100-SXM-80G, 141 GB")  # fmt: skip
        assert made["pools"][1]["num_hosts"] == 1024
        expect(page.locator("#verdict")).to_contain_text("no path joins 'building-1'")
        page.locator("[data-place=building-1]").drag_to(page.locator("[data-place=north]"))
        expect(page.get_by_label("Capacity of link-2")).to_have_value("3.2 Tb/s")
        expect(page.locator("#verdict")).not_to_contain_text("error")
        page.get_by_role("button", name="Plan", exact=True).click()
        expect(page.get_by_role("heading", name="Summary")).to_be_visible()


def test_what_a_field_cannot_read_never_reaches_the_request(linting: str, browser: Browser) -> None:
    with watched(browser, linting) as page:
        page.goto(f"{linting}/new")
        page.get_by_role("button", name="Change it by hand").click()
        expect(page.get_by_label("Capacity of east-west")).to_have_value("3.2768 Pb/s")
        before = _request(page)
        page.get_by_label("Capacity of east-west").fill("400")
        expect(page.locator("#verdict")).to_contain_text("the unit is missing: write it like 400 Gb/s")
        expect(page.get_by_role("button", name="Plan", exact=True)).to_be_disabled()
        assert _request(page) == before
        page.get_by_label("Capacity of east-west").fill("400 Gb/s")
        expect(page.get_by_text(NOTHING_AGAINST).or_(page.get_by_text("look at this"))).to_be_visible()
        expect(page.get_by_role("button", name="Plan", exact=True)).to_be_enabled()
        assert _request(page)["cluster"]["links"][0]["capacity_bytes_per_s"] == 5e10


def test_a_place_takes_what_is_in_it_along_when_it_is_removed(linting: str, browser: Browser) -> None:
    with watched(browser, linting, allowed=("422 (Unprocessable",)) as page:
        page.goto(f"{linting}/new")
        page.get_by_role("button", name="Change it by hand").click()
        page.get_by_role("button", name="Remove place east", exact=True).click()
        expect(page.get_by_label("Capacity of east-west")).to_have_count(0)
        left = _request(page)["cluster"]
        assert {one["id"] for one in left["places"]} == {"campus", "west", "west-z1", "west-z2"}
        assert {one["place"] for one in left["pools"]} == {"west-z1", "west-z2"}
        assert left["links"] == []


def test_the_field_that_the_linter_means_is_marked(linting: str, browser: Browser) -> None:
    with watched(browser, linting, allowed=("422 (Unprocessable",)) as page:
        page.goto(f"{linting}/new")
        page.get_by_role("button", name="Change it by hand").click()
        page.get_by_label("Loss of east-west").fill("90 %")
        expect(page.locator("#verdict")).to_contain_text("/cluster/links/0/loss_probability")
        expect(page.get_by_label("Loss of east-west")).to_have_class(re.compile("pointed"))


def test_a_topology_and_a_model_are_imported_and_faults_keep_their_lines(linting: str, browser: Browser) -> None:
    with watched(browser, linting, allowed=("422 (Unprocessable",)) as page:
        page.goto(f"{linting}/new")
        page.get_by_text("Import it from Slurm").click()
        page.get_by_label("The file, or its text", exact=True).fill(samples.SLURM_YAML)
        page.get_by_label("What it does not say").fill("levels:\n  - {level: tier-0, place: hall}\n")
        page.get_by_role("button", name="Import the cluster").click()
        expect(page.get_by_text("overlay:2:")).to_be_visible()
        page.get_by_label("What it does not say").fill(samples.OVERLAY)
        page.get_by_role("button", name="Import the cluster").click()
        expect(page.get_by_text("GPUs to plan with")).to_be_visible()
        assert _request(page)["cluster"]["name"] == "campus"
        expect(page.locator("[data-place=east]")).to_be_visible()
        page.get_by_text("Paste a model's config.json").click()
        page.get_by_label("config.json", exact=True).fill(json.dumps(LLAMA_8B))
        page.get_by_label("Call it").fill("ours")
        page.get_by_role("button", name="Use this model").click()
        expect(page.get_by_text("8,030,519,296 parameters, ")).to_be_visible()
        assert _request(page)["workload"]["architecture"]["name"] == "ours"
        assert grave(page) == []


@pytest.mark.parametrize("width", [1280, 400])
def test_the_tables_of_a_large_cluster_stay_on_the_page(linting: str, browser: Browser, width: int) -> None:
    with watched(browser, linting) as page:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{linting}/new?example=deepseek-v3-region")
        page.get_by_role("button", name="Change it by hand").click()
        expect(page.get_by_role("button", name="Add a link")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert grave(page) == []


APART = """() => {
  const cards = [...document.querySelectorAll(".sketch .card")].map((one) => one.getBoundingClientRect());
  return cards.flatMap((one, index) => cards.slice(index + 1).filter((other) => one.left < other.right
    && other.left < one.right && one.top < other.bottom && other.top < one.bottom)).length;
}"""


@pytest.mark.parametrize("number", [1, 2, 5, 8, 9, 24])
def test_a_drawing_of_many_buildings_with_long_names_can_be_read(linting: str, browser: Browser, number: int) -> None:
    names = [("Ω" if one % 2 else "名") * 100 + str(one) for one in range(number)]
    gpus = ["H100-SXM-80G", "A100-SXM-80G", "B200-SXM"]
    cluster = {
        "name": "wide",
        "places": [{"id": one, "level": "building"} for one in names],
        "pools": [{"id": f"pool-{at}", "place": one, "gpu": gpus[at % 3], "num_hosts": 8, "nic_bytes_per_s": 5e10}
                  for at, one in enumerate(names)],
        "links": [{"id": f"link-{at}", "from_place": one, "to_place": names[(at + 1) % number], "distance_km": 20,
                   "capacity_bytes_per_s": 4e11} for at, one in enumerate(names) if number > 1],
    }  # fmt: skip
    with watched(browser, linting, allowed=("422 (Unprocessable",)) as page:
        page.goto(f"{linting}/new?example=llama-8b-single-building")
        expect(page.locator(".sketch")).to_be_visible()
        draft = {**_request(page), "cluster": cluster}
        page.get_by_label("The request as JSON").fill(json.dumps(draft))
        expect(page.locator(".sketch .card")).to_have_count(number)
        assert page.evaluate(APART) == 0
        assert page.evaluate(OVERLAPS) == []
        assert grave(page) == []


def test_a_name_that_is_taken_joins_nothing_by_mistake(linting: str, browser: Browser) -> None:
    with watched(browser, linting) as page:
        page.goto(f"{linting}/new")
        page.get_by_role("button", name="Begin an empty one").click()
        before = _request(page)
        page.get_by_label("Name of building-2").fill("building-1")
        page.keyboard.press("Enter")
        expect(page.locator("#verdict")).to_contain_text("“building-1” is taken")
        expect(page.get_by_role("button", name="Plan", exact=True)).to_be_disabled()
        assert _request(page) == before
        page.get_by_label("Name of building-2").fill("south")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Plan", exact=True)).to_be_enabled()
        assert [one["id"] for one in _request(page)["cluster"]["places"]] == ["building-1", "south"]
