"""A request that is not whole yet, or never will be: every field stays usable, and the verdict says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.desk_service import serving, watched
from tests.unit.app.service_fixture import FAKE_SOLVERS

REAL_CHECKS = FAKE_SOLVERS.model_copy(update={"lint": "solver.lint:lint", "validate_request": "solver.planner:check"})
NOTHING_AGAINST = "Arithmetic finds nothing against it."
REFUSED = ("422 (Unprocessable",)
LINK = {"id": "l", "from_place": "a", "to_place": "b"}
OWN_GPU = {"name": "mine", "bf16_flops_per_s": 5e14, "memory_bytes": 9.6e10, "memory_bytes_per_s": 3e12,
           "scale_up_bytes_per_s": 4.5e11, "scale_up_domain_gpus": 8, "usd_per_gpu_hour": 2.5}  # fmt: skip


@pytest.fixture(scope="module")
def linting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service whose checks are the real ones and whose planner is made up."""
    with serving(tmp_path_factory.mktemp("half"), solvers=REAL_CHECKS) as where:
        yield where


def _written(page: Page, **parts: Any) -> None:
    """The request of the page with other parts of its cluster."""
    request = json.loads(page.input_value("#json"))
    request["cluster"] = {"name": "c", "places": [{"id": "a", "level": "building"}, {"id": "b", "level": "building"}],
                          "pools": [], "links": [], **parts}  # fmt: skip
    page.get_by_label("The request as JSON").fill(json.dumps(request))


def test_an_emptied_capacity_is_told_and_can_be_filled_again(linting: str, browser: Browser) -> None:
    with watched(browser, linting, allowed=REFUSED) as page:
        page.goto(f"{linting}/new")
        page.get_by_role("button", name="Begin an empty one").click()
        expect(page.get_by_text(NOTHING_AGAINST)).to_be_visible()
        page.get_by_label("Capacity of link-1").fill("")
        expect(page.locator("#verdict")).to_contain_text("Field required")
        expect(page.get_by_role("button", name="link link-1 from building-1 to building-2, 10 km")).to_be_attached()
        page.get_by_label("Capacity of link-1").fill("100 Gb/s")
        expect(page.get_by_text(NOTHING_AGAINST)).to_be_visible()
        assert json.loads(page.input_value("#json"))["cluster"]["links"][0]["capacity_bytes_per_s"] == 1.25e10


@pytest.mark.parametrize(
    "parts",
    [{"links": [LINK]}, {"links": [{**LINK, "capacity_bytes_per_s": "400 Gb/s"}]}, {"links": {}}, {"links": [None]},
     {"links": [{**LINK, "capacity_bytes_per_s": -1}]}, {"pools": 1}, {"pools": [None]}, {"places": [None]},
     {"pools": [{"id": "p", "place": "a", "gpu": None, "num_hosts": "two"}]}],
)  # fmt: skip
def test_what_cannot_be_drawn_is_told_by_the_verdict(linting: str, browser: Browser, parts: dict[str, Any]) -> None:
    with watched(browser, linting, allowed=REFUSED) as page:
        page.goto(f"{linting}/new")
        expect(page.get_by_text(NOTHING_AGAINST)).to_be_visible()
        _written(page, **parts)
        expect(page.locator("#verdict")).to_contain_text(f"/cluster/{next(iter(parts))}")
        expect(page.locator("#cluster")).not_to_contain_text("NaN")


def test_a_field_below_a_text_replaces_it(linting: str, browser: Browser) -> None:
    with watched(browser, linting, allowed=REFUSED) as page:
        page.goto(f"{linting}/new")
        request = json.loads(page.input_value("#json"))
        page.get_by_label("The request as JSON").fill(json.dumps({**request, "options": "fast"}))
        expect(page.locator("#verdict")).to_contain_text("/options")
        page.get_by_label("Time limit").fill("20 s")
        assert json.loads(page.input_value("#json"))["options"] == {"time_limit_s": 20}


def test_memory_of_a_gpu_type_of_the_readers_own_has_its_unit(linting: str, browser: Browser) -> None:
    with watched(browser, linting, allowed=REFUSED) as page:
        page.goto(f"{linting}/new")
        pool = {"id": "p", "place": "a", "gpu": OWN_GPU, "num_hosts": 64, "nic_bytes_per_s": 5e10}
        _written(page, pools=[pool])
        expect(page.locator("#cluster td").get_by_text("96 GB", exact=True)).to_be_visible()
