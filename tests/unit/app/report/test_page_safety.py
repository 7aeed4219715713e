"""The page loads nothing, runs nothing but its own script, and no name can break out of its place."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from itertools import pairwise

import pytest

from app.exporters.report import viewer
from app.exporters.report.page import report_html
from tests.build_report import build_report_plan, build_report_request
from tests.unit.app.report.reading import Element, read

RIGHT_TO_LEFT = chr(0x200F)
HOSTILE = [
    "</script><script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    f"name{RIGHT_TO_LEFT}gnp.exe",
    "</style></svg><!--",
    "&lt;b&gt; ${x} {{y}} `z`",
    "מזרח שרק",
]
MAX_BYTES = 3_000_000


def _page(name: str) -> str:
    east, west = f"east {name}", f"west {name}"
    plan = build_report_plan(east=east, west=west, link=f"link {name}", words=name)
    return report_html(plan, build_report_request(east=east, west=west, link=f"link {name}"))


def _digests(texts: list[str]) -> set[str]:
    return {"'sha256-" + base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() + "'" for one in texts}


@pytest.fixture(scope="module")
def page() -> Element:
    """A report of harmless names."""
    return read(_page("plain"))


def test_the_policy_lets_in_exactly_the_script_and_the_style_of_the_page(page: Element) -> None:
    [policy] = page.every("meta", http_equiv="Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.attributes["content"].split(";"))
    scripts = [one.text for one in page.every("script") if "type" not in one.attributes]
    assert {rules["script-src"]} == _digests(scripts)
    assert {rules["style-src"]} == _digests([one.text for one in page.every("style")])
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"


def test_the_page_names_no_address(page: Element) -> None:
    for element in page.walk():
        for key in ("src", "href", "xlink:href", "action", "srcset"):
            assert element.attributes.get(key, "#")[0] == "#" or element.attributes[key] == "data:,"
    everything = _page("plain")
    assert not re.search(r"https?:|//\w+\.|@import|url\(", everything)


def test_nothing_needs_what_the_policy_forbids(page: Element) -> None:
    keys = {key for element in page.walk() for key in element.attributes}
    assert "style" not in keys
    assert not [key for key in keys if key.startswith("on")]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str) -> None:
    page, plain = read(_page(name)), read(_page("plain"))
    assert [one.name for one in page.walk()] == [one.name for one in plain.walk()]
    assert [sorted(one.attributes) for one in page.walk()] == [sorted(one.attributes) for one in plain.walk()]
    assert RIGHT_TO_LEFT not in _page(name)
    shown = name.replace(RIGHT_TO_LEFT, "[U+200F]")
    assert f"east {shown}" in page.every("table")[3].whole_text


@pytest.mark.parametrize("name", HOSTILE)
def test_names_in_the_data_of_the_zoom_survive_and_cannot_end_it(name: str) -> None:
    [block] = read(_page(name)).every("script", id="viewer-data")
    assert "<" not in block.text
    ranks = json.loads(block.text)["timings"][0]["ranks"]
    assert ranks[0]["name"] == "east " + name.replace(RIGHT_TO_LEFT, "[U+200F]")


def test_every_name_that_is_referred_to_exists_once(page: Element) -> None:
    names = [one.attributes["id"] for one in page.walk() if "id" in one.attributes]
    assert len(names) == len(set(names))
    for element in page.walk():
        for key in ("aria-labelledby", "aria-describedby"):
            assert set(element.attributes.get(key, "").split()) <= set(names)
        if element.attributes.get("href", "").startswith("#"):
            assert element.attributes["href"][1:] in names


def test_headings_never_skip_a_level(page: Element) -> None:
    levels = [int(one.name[1]) for one in page.walk() if re.fullmatch("h[1-6]", one.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_drawing_has_words_in_its_place(page: Element) -> None:
    drawings = page.every("svg", role="img")
    assert len(drawings) >= 7
    for one in drawings:
        assert one.every("title")[0].text
        assert one.every("desc")[0].text


def test_16_stages_and_512_micro_batches_stay_small_and_tell_what_is_cut() -> None:
    text = report_html(build_report_plan(num_ranks=16, num_microbatches=512), build_report_request())
    page = read(text)
    assert len(text.encode()) < MAX_BYTES
    assert [one.whole_text.split(":")[0] for one in page.every("h4")] == ["Fill", "Steady state", "Drain"]
    assert len(page.every("p", class_="cut")) == 2
    [block] = page.every("script", id="viewer-data")
    assert sum(len(rank["kinds"]) for rank in json.loads(block.text)["timings"][0]["ranks"]) == 16 * 512 * 3


def test_a_pipeline_too_large_for_the_zoom_is_drawn_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "MAX_OPERATIONS", 10)
    page = read(_page("plain"))
    assert not page.every("script", id="viewer-data")
    assert page.every("svg", aria_labelledby="gantt-0-0-title")


def test_the_same_plan_gives_the_same_page() -> None:
    assert _page("plain") == _page("plain")
