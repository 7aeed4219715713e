"""What the report shows is what the plan says: every figure of it carries the exact value."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from app.exporters.report.formatting import size
from app.exporters.report.page import report_html
from app.words import seconds
from models.plan import Plan
from models.statements import PROVEN
from tests.build_report import build_report_plan, build_report_request
from tests.unit.app.report.reading import Element, read

SECTIONS = [
    "summary",
    "time",
    "buildings",
    "pipeline",
    "memory",
    "comparison",
    "convergence",
    "transport",
    "assumptions",
]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A small plan with every field filled."""
    return build_report_plan()


@pytest.fixture(scope="module")
def page(plan: Plan) -> Element:
    """Its report."""
    return read(report_html(plan, build_report_request()))


def _table(page: Element, caption: str) -> list[list[Element]]:
    [table] = [one for one in page.every("table") if one.every("caption")[0].text == caption]
    return [[*row.every("th"), *row.every("td")] for row in table.every("tbody")[0].every("tr")]


def _values(row: list[Element]) -> list[float]:
    return [float(one.attributes["value"]) for cell in row for one in cell.every("data")]


def test_every_headline_figure_is_its_field_of_the_plan(plan: Plan, page: Element) -> None:
    shown = {one.attributes["data-field"]: float(one.attributes["value"]) for one in page.every("data")
             if "data-field" in one.attributes}  # fmt: skip
    assert shown.pop("geography_tax_s") == plan.metrics.iteration_s - plan.one_building_s
    assert len(shown) >= 9
    for path, value in shown.items():
        assert value == reduce(getattr, path.split("."), plan), path


def test_all_sections_are_there_in_order(page: Element) -> None:
    assert [one.attributes["id"] for one in page.every("section")] == SECTIONS
    links = [one.attributes["href"] for one in page.every("nav")[0].every("a")]
    assert links == [f"#{name}" for name in SECTIONS]


def test_the_parts_of_the_time_add_up_to_the_total(plan: Plan, page: Element) -> None:
    *parts, [total] = [_values(row) for row in _table(page, "Iteration time by cause")]
    assert sum(value for [value] in parts) == pytest.approx(plan.time.total_s, rel=1e-12)
    assert total == plan.time.total_s


def test_memory_of_every_rank_is_shown(plan: Plan, page: Element) -> None:
    rows = _table(page, "Peak memory of one GPU")
    assert [_values(row)[-2:] for row in rows] == [[one.total_bytes, one.limit_bytes] for one in plan.memory]


def test_ranks_of_the_pipeline_have_their_busy_time(plan: Plan, page: Element) -> None:
    schedule = plan.timelines[0].schedule
    for row, rank in zip(_table(page, "Ranks of route r0"), schedule.ranks, strict=True):
        start_s, end_s, busy_s, idle_s, peak_bytes, _budget = _values(row)
        assert (start_s, end_s, peak_bytes) == (rank.start_s[0], rank.end_s[-1], rank.peak_memory_bytes)
        assert busy_s == pytest.approx(6 * 0.030)
        assert busy_s + idle_s == pytest.approx(end_s - start_s)


def test_transfers_between_buildings_are_counted_both_ways(page: Element) -> None:
    rows = [[cell.whole_text for cell in row] for row in _table(page, "Pipeline transfers between buildings")]
    assert rows == [
        ["east", "west", "1", "6", "24 ms", "2 ms"],
        ["west", "east", "2", "6", "24 ms", "2 ms"],
    ]


def test_links_show_their_loads_by_cause_and_direction(plan: Plan, page: Element) -> None:
    rows = _table(page, "Traffic between buildings")
    assert [[cell.whole_text for cell in row][1:3] for row in rows] == [["east", "west"], ["west", "east"]]
    assert all(_values(row) == [1.1e11, 2.1e11, 0.034, 0.93] for row in rows)
    by_link = _table(page, "Loads of links, busiest first")
    assert [_values(row) for row in by_link] == [[1e13, 0.034, 0.93, 7e11]] * len(plan.link_loads)


def test_gpus_of_each_building_and_who_sits_there(page: Element) -> None:
    rows = [[cell.whole_text for cell in row] for row in _table(page, "GPUs by building")]
    assert rows == [["east", "64", "1,024", "0–1"], ["west", "64", "1,024", "2–3"]]


def test_alternatives_say_why_they_are_second(plan: Plan, page: Element) -> None:
    [row] = _table(page, "Alternatives, best first")
    assert _values(row) == [plan.alternatives[0].iteration_s, 0.04]
    assert row[-1].whole_text == "words"


def test_the_course_of_the_search_is_shown_point_by_point(plan: Plan, page: Element) -> None:
    rows = _table(page, "Course of the search")
    assert [_values(row) for row in rows] == [
        [value for value in (one.elapsed_s, one.incumbent_s, one.lower_bound_s) if value is not None]
        for one in plan.convergence
    ]


def test_a_plan_that_carries_less_says_so() -> None:
    bare = build_report_plan(alternatives=[], convergence=[], one_building_s=None, baselines=[], warnings=[],
                             transport=[], link_loads=[], assumptions=[], exchanges=[])  # fmt: skip
    page = read(report_html(bare, None))
    notes = " ".join(one.whole_text for one in page.every("p", class_="note"))
    for words in ("does not carry alternatives", "does not carry the course", "was not determined", "No other way",
                  "No communicator", "states no assumptions"):  # fmt: skip
        assert words in notes
    assert [one.attributes["id"] for one in page.every("section")] == SECTIONS


def test_without_the_request_the_page_says_what_it_cannot_know(plan: Plan) -> None:
    page = read(report_html(plan, None))
    assert "Made without the request" in page.every("footer")[0].whole_text
    assert {cell.whole_text for row in _table(page, "GPUs by building") for cell in row} >= {"east", "not stated"}


def test_a_refused_plan_shows_the_broken_rules() -> None:
    verdict: dict[str, Any] = {
        "accepted": False,
        "rules_checked": ["pool-capacity"],
        "violations": [{"rule": "pool-capacity", "where": "pool east", "detail": "9 used, 8 free"}],
    }
    page = read(report_html(build_report_plan(verdict=verdict), None))
    assert [[cell.whole_text for cell in row] for row in _table(page, "Broken rules")] == [
        ["pool-capacity", "pool east", "9 used, 8 free"]
    ]


@pytest.mark.parametrize(("value", "shown"), [(1e-9, "0.001 µs"), (0.9999999, "1 s"), (86400.0, "86,400 s")])
def test_times_at_the_edges_of_their_units(value: float, shown: str) -> None:
    assert seconds(value) == shown


def test_sizes_never_come_in_powers_of_ten() -> None:
    assert size(999.6e12) == "1,000 TB"


def test_what_a_subtraction_leaves_of_nothing_is_no_part_of_the_time(plan: Plan) -> None:
    """A plan without bubble had 8e-15 s of it, told in so many digits that they left the drawing."""
    shares = {name: 0.0 for name in type(plan.time).model_fields if name.endswith("_s")}
    time = plan.time.model_copy(update={**shares, "compute_s": 2.0, "bubble_s": 8e-15, "total_s": 2.0})
    [drawing] = [one for one in read(report_html(plan.model_copy(update={"time": time}))).every("svg")
                 if one.attributes.get("aria-labelledby") == "waterfall-title"]  # fmt: skip
    told = [one.text for one in drawing.every("text")]
    assert "compute" in told
    assert "bubble" not in told


def test_a_bound_of_another_objective_is_shown_as_none_of_time(plan: Plan) -> None:
    def texts(plan: Plan) -> str:
        return report_html(plan, build_report_request())

    proof = plan.proof.model_copy(update={"proven": PROVEN["cost_per_token"]})
    other = texts(plan.model_copy(update={"proof": proof}))
    assert "ower bound" in texts(plan)
    assert "ower bound" not in other
    assert other.count("less the gap") >= 3, "the tile, the key and the table say what it is"
