"""Questions on a plan's page: a slider is answered by a formula at once, by a search after it, told apart."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from models.questions import Change, Variant
from models.request import PlanRequest
from solver.questions.changes import changed_document
from tests.browser.desk_service import enter, grave, secret_of, serving, submitted, watched
from tests.unit.app.fake_solver import FINDS, INFEASIBLE, tiny_plan
from tests.unit.app.service_fixture import FAKE_SOLVERS
from tests.unit.models.bad_requests import good_request

ANSWERING = FAKE_SOLVERS.model_copy(update={"ask": "tests.browser.fake_answers:ask"})
LATENCY, MEMORY = "Delay of every link, one way", "Memory of every GPU"


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that answers every kind of question."""
    with serving(tmp_path_factory.mktemp("answering"), solvers=ANSWERING) as where:
        yield where


def _slide(page: Page, label: str, steps: int) -> None:
    """With the keyboard, as anybody can."""
    slider = page.get_by_label(label, exact=True)
    slider.focus()
    for _ in range(abs(steps)):
        page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")


def test_a_slider_is_answered_by_a_formula_and_then_by_a_proof(answering: str, browser: Browser) -> None:
    plan = submitted(answering, FINDS, "asked")
    with watched(browser, answering) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{answering}/plans/{plan}#ask")
        expect(page.get_by_role("button", name="Prove it by a search")).to_be_disabled()
        before = len(asked)
        _slide(page, LATENCY, 12)
        expect(page.locator(".instant")).to_contain_text("2 × 30 ms")  # there and back over the one link
        expect(page.locator(".instant")).to_contain_text("2 s → 2.06 s")
        assert asked[before:] == [], "a formula asks nobody"
        assert page.locator(".proof").is_hidden()
        _slide(page, MEMORY, 2)
        page.get_by_role("button", name="Prove it by a search").click()
        proof = page.locator(".proof")
        expect(proof).to_contain_text("proven to gain")
        expect(proof).to_contain_text("not decided yet")
        expect(proof).to_contain_text("proven to lose")
        assert proof.locator("path.estimate").count() == 3, "the formula's answers stand beside the proofs"
        borders = [page.evaluate(f"getComputedStyle(document.querySelector('{one}')).borderTopStyle")
                   for one in (".instant", ".proof")]  # fmt: skip
        assert borders == ["dashed", "solid"]
        assert grave(page) == []
        page.reload()
        expect(page.locator(".proof")).to_contain_text("proven to gain")  # an answer has an address


def test_print_has_the_answers_and_nothing_to_press(answering: str, browser: Browser) -> None:
    plan = submitted(answering, FINDS, "printed")
    with watched(browser, answering) as page:
        page.goto(f"{answering}/plans/{plan}")
        expect(page.get_by_role("button", name="Prove it by a search")).to_be_visible()
        page.emulate_media(media="print")
        for part in ("#ask", "#exports", "nav"):
            expect(page.locator(part).first).to_be_hidden()
        _answered_with(page, f"{answering}/plans/{plan}", FRONTIER)
        expect(page.locator(".proof")).to_be_visible()
        expect(page.locator("#ask .sliders")).to_be_hidden()
        assert page.locator("button:visible").count() == 0


def test_a_variant_is_planned_from_its_answer(answering: str, browser: Browser) -> None:
    plan = submitted(answering, FINDS, "varied")
    with watched(browser, answering) as page:
        page.goto(f"{answering}/plans/{plan}#ask")
        _slide(page, MEMORY, 3)
        page.get_by_role("button", name="Prove it by a search").click()
        page.get_by_role("button", name=re.compile("^Plan .* of memory")).click()
        expect(page.get_by_role("heading", name="Replan with a change")).to_be_visible()
        pools = json.loads(page.input_value("#json"))["cluster"]["pools"]
        assert {one["gpu"]["memory_bytes"] for one in pools} == {1.6e11}
        page.get_by_role("button", name="Replan").click()
        expect(page.get_by_role("link", name="Compare with its parent")).to_be_visible()


def test_why_not_is_asked_with_a_value_and_refused_without(answering: str, browser: Browser) -> None:
    plan = submitted(answering, FINDS, "why not")
    with watched(browser, answering) as page:
        page.goto(f"{answering}/plans/{plan}#ask")
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.get_by_text("Say which value.")).to_be_visible()
        page.get_by_label("Its value").fill("4")
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.get_by_role("heading", name="Why not tensor parallel 4?")).to_be_visible()
        expect(page.locator(".proof .state")).to_have_text("answered")


def test_a_request_without_a_plan_is_asked_for_every_conflict_with_a_key(tmp_path: Path, browser: Browser) -> None:
    secret = secret_of(tmp_path)
    with (
        serving(tmp_path, solvers=ANSWERING) as address,
        watched(browser, address, allowed=("401 (Unauthorized)",)) as page,
    ):
        page.goto(f"{address}/plans")
        enter(page, secret)
        plan = submitted(address, INFEASIBLE, "impossible", key=secret)
        page.get_by_role("link", name="impossible").click()
        page.get_by_role("button", name="Find every conflict and every way out").click()
        expect(page.locator(".proof")).to_contain_text("Searches")
        assert page.url.startswith(f"{address}/plans/{plan}?question=question_")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_changes_of_the_page_are_those_of_the_service(answering: str, browser: Browser, seed: int) -> None:
    random.seed(seed)
    request = PlanRequest.model_validate(good_request()).model_dump(mode="json")
    numbers = [str(number) for number in range(len(request["cluster"]["pools"]))]
    for pool, number in zip(request["cluster"]["pools"], reversed(numbers), strict=True):
        pool["id"] = number  # an id that is a number is no place in the list
    links, pools = ([one["id"] for one in request["cluster"][kind]] for kind in ("links", "pools"))
    changes = [
        {"pointer": f"/cluster/links/{random.choice([links[0], '0', '*'])}/capacity_bytes_per_s", "op": "multiply",
         "value": random.choice([0.5, 3])},
        {"pointer": f"/cluster/pools/{random.choice([pools[-1], '*'])}/gpu/memory_bytes", "op": "increase",
         "value": 1e9},
        {"pointer": f"/cluster/pools/{random.choice(numbers)}/num_unhealthy_gpus", "op": "replace", "value": 8},
        {"pointer": "/constraints/allowed/tp", "op": "replace", "value": [4]},
        {"pointer": "/constraints/max_gpus", "op": random.choice(["remove", "replace"]), "value": 64},
    ]  # fmt: skip
    made = changed_document(PlanRequest.model_validate(request), [Change.model_validate(one) for one in changes], "")
    with watched(browser, answering) as page:
        page.goto(f"{answering}/accuracy")
        script = "(given) => import('/static/desk/changes.js').then((one) => one.applied(...given))"
        found = page.evaluate(script, [request, changes])
    assert found == json.loads(json.dumps(made))


@pytest.mark.parametrize("latency_s", [1e-3, None])
def test_sliders_of_many_links_are_a_question_that_the_service_takes(
    answering: str, browser: Browser, latency_s: float | None
) -> None:
    body = PlanRequest.model_validate(good_request()).model_dump(mode="json")
    one = {**body["cluster"]["links"][0], "reverse_capacity_bytes_per_s": None, "distance_km": 10.0}
    last = {"reverse_capacity_bytes_per_s": 5e9, "latency_s": latency_s}
    num_links = 60 if latency_s is None else 150
    body["cluster"]["links"] = [
        {**one, "id": f"l/{number}", "latency_s": 1e-3} | (last if number == 0 else {}) for number in range(num_links)
    ]
    request = PlanRequest.model_validate(body)
    script = """([request, name, by]) => import('/static/desk/changes.js').then((one) =>
        one.settingsOf(request, name, by))"""
    with watched(browser, answering) as page:
        page.goto(f"{answering}/accuracy")
        later, narrower = (page.evaluate(script, [request.model_dump(mode="json"), name, by])
                           for name, by in (("latency", {"by_s": 0.002}), ("bandwidth", {"times": 0.5})))  # fmt: skip
    variant = Variant.model_validate({"name": "both", "changes": [*later, *narrower]})
    made = PlanRequest.model_validate(changed_document(request, variant.changes)).cluster.links
    derived_s = [0.003 if number or latency_s else 10.0 * 4.9e-6 + 0.002 for number in range(num_links)]
    assert [link.latency_s for link in made] == pytest.approx(derived_s)
    assert [link.capacity_bytes_per_s for link in made] == [one["capacity_bytes_per_s"] / 2] * num_links
    assert [link.reverse_capacity_bytes_per_s for link in made] == [2.5e9] + [None] * (num_links - 1)


def _witness() -> dict[str, Any]:
    plan = tiny_plan(2.0).model_dump(mode="json")
    return {"iteration_s": 2.0, "num_gpus": 2, "crossing": "pp_out", "configuration": plan["configuration"],
            "routes": plan["placement"]["routes"]}  # fmt: skip


def _point(num_gpus: int, iteration_s: float) -> dict[str, Any]:
    return {"iteration_s": iteration_s, "num_gpus": num_gpus, "usd_per_million_tokens": None,
            "cross_building_bytes": 1.0, "limit": float(num_gpus), "lower_bound": iteration_s / 2,
            "relative_gap": 0.5, "plan": _witness()}  # fmt: skip


FRONTIER = {"ask": "frontier", "outcome": "planned", "reasons": [], "complete": True, "elapsed_s": 1.0,
            "frontiers": [{"against": "gpus", "limited": "gpus", "num_dominated": 0, "detail": "",
                           "points": [_point(64, 2.0), _point(32, 3.0)]}]}  # fmt: skip


def _answered_with(page: Page, where: str, answer: dict[str, Any], fault: dict[str, str] | None = None) -> None:
    """A question of the address whose answer is this one."""
    body = {"id": "q", "state": "succeeded", "answer": answer, "fault": fault, "elapsed_s": 1.0}
    page.route("**/v1/questions/*", lambda route: route.fulfill(json=body))
    page.goto(f"{where}?question=question_{'0' * 30}#ask")
    expect(page.locator(".proof .answer")).to_be_visible()


def test_a_point_of_a_frontier_leads_to_its_request(answering: str, browser: Browser) -> None:
    plan = submitted(answering, FINDS, "frontier")
    with watched(browser, answering) as page:
        _answered_with(page, f"{answering}/plans/{plan}", FRONTIER)
        expect(page.locator(".proof line.gap-bar")).to_have_count(2)
        assert grave(page) == []
        page.get_by_label("GPUs in use: 32, 3 s").click()
        expect(page.get_by_role("heading", name="Replan with a change")).to_be_visible()
        assert json.loads(page.input_value("#json"))["constraints"]["max_gpus"] == 32


def test_an_answer_that_was_cut_off_is_shown_beside_its_fault(answering: str, browser: Browser) -> None:
    plan = submitted(answering, FINDS, "cut off")
    fault = {"what": "The search was ended from outside.", "remedy": "Ask again."}
    with watched(browser, answering) as page:
        _answered_with(page, f"{answering}/plans/{plan}", FRONTIER, fault)
        expect(page.get_by_text(fault["what"])).to_be_visible()
        expect(page.locator(".proof line.gap-bar")).to_have_count(2)


def test_a_target_is_asked_for_beside_an_objective_that_obeys_it(answering: str, browser: Browser) -> None:
    plan = submitted(answering, FINDS, "target")
    with watched(browser, answering) as page:
        page.goto(f"{answering}/plans/{plan}#ask")
        page.get_by_label("What you would have expected").select_option(label="iteration, at most")
        page.get_by_label("Its value").fill("1 s")
        with page.expect_request("**/v1/questions") as asked:
            page.get_by_role("button", name="Ask", exact=True).click()
        assert asked.value.post_data_json["changes"] == [
            {"pointer": "/objective/kind", "value": "fewest_gpus"},
            {"pointer": "/objective/target_iteration_s", "value": 1},
        ]


def test_what_would_help_is_planned_with_what_was_asked(answering: str, browser: Browser) -> None:
    plan, text = submitted(answering, FINDS, "wish"), "a" + "🚀" * 150
    change = {"pointer": "/constraints/max_gpus", "op": "replace", "value": 2}
    answer = {"ask": "why_not", "outcome": "infeasible", "wishes": [], "undecided": [], "complete": True,
              "num_searches": 3, "elapsed_s": 1.0, "plan": None,
              "conflicts": [{"wishes": [], "physics": ["number of GPUs"], "minimal": True, "reasons": []}],
              "relaxations": [{"kind": "wish", "text": text, "changes": [change], "least_proven": "",
                               "plan": _witness()}]}  # fmt: skip
    with watched(browser, answering) as page:
        body = {"id": "q", "state": "succeeded", "answer": answer, "fault": None, "elapsed_s": 1.0}
        page.route("**/v1/questions/*", lambda route: route.fulfill(json=body))
        page.goto(f"{answering}/plans/{plan}#ask")
        page.get_by_label("Its value").fill("4")
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator(".proof")).to_contain_text("Whatever is wished for against number of GPUs")
        for is_again in (False, True):
            if is_again:  # what was asked stays with its place in the history
                page.go_back()
            page.get_by_role("button", name="Plan: a").click()
            expect(page.get_by_role("heading", name="Replan with a change")).to_be_visible()
            made = json.loads(page.input_value("#json"))
            assert (made["constraints"]["allowed"]["tp"], made["constraints"]["max_gpus"]) == ([4], 2)
            assert made["name"] == text[:120]
