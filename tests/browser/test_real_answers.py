"""Every kind of question, asked of the real planner on a plan's page: picture and tables say what it answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from app.settings import Solvers
from models.questions import Question
from models.request import PlanRequest
from solver.questions.losses import changes_of
from solver.questions.searches import changed
from tests.browser.desk_service import OVERLAPS, grave, serving, watched
from tests.build_request import build_request

LIMIT_S = 8
GRACE_S = 20.0  # a busy machine answers late, which is no fault of the page
UNREADABLE = re.compile(r"undefined|NaN|Infinity|\bnull\b|\[object|-0\b|−0 ")
ALLOWED = {"tp": [2, 4], "pp": [1, 2], "vpp": [1], "micro_batch_sequences": [1], "sharding": ["zero1"]}
CLICKS = {"worth": "what does distance cost", "curves": "How does it change", "frontier": "How much time",
          "what_if_lost": "were lost"}  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the planner that users have."""
    graces = dict.fromkeys(("soft_grace_s", "kill_grace_s"), GRACE_S)
    folder = tmp_path_factory.mktemp("real")
    with serving(folder, solvers=Solvers(), child_memory_bytes=3 * 1024**3, **graces) as where:
        yield where


@pytest.fixture(scope="module")
def plan(real: str) -> str:
    """A plan of 32 GPUs in three buildings."""
    request = build_request(constraints={"allowed": ALLOWED}, options={"time_limit_s": 5.0})
    body = {**request.model_dump(mode="json"), "name": "small"}
    made = httpx2.post(f"{real}/v1/plans", json=body, headers={"Prefer": "wait=60"}, timeout=90).json()
    assert made["state"] == "succeeded"
    return str(made["id"])


def _slide(page: Page) -> None:
    for label, key in (("Rate of every link", "ArrowLeft"), ("Memory of every GPU", "ArrowRight")):
        page.get_by_label(label, exact=True).focus()
        page.keyboard.press(key)


def _by_sliders(button: str) -> Callable[[Page], None]:
    def ask(page: Page) -> None:
        _slide(page)
        page.get_by_role("button", name=button).click()

    return ask


def _by_button(words: str) -> Callable[[Page], None]:
    def ask(page: Page) -> None:
        page.get_by_role("button", name=words).click()

    return ask


def _why_not(page: Page) -> None:
    page.get_by_label("Its value").fill("16")
    page.get_by_role("button", name="Ask", exact=True).click()


def _least(page: Page) -> None:
    page.get_by_label("Iteration time to reach").fill("2 s")
    _by_button("What is the least")(page)


def _what_now(page: Page) -> None:
    page.get_by_label("What is lost").select_option("west")
    _by_button("What now, without")(page)


ASK: dict[str, Callable[[Page], None]] = {
    "what_if": _by_sliders("Prove it by a search"),
    "robust": _by_sliders("Find one plan for every case"),
    "why_not": _why_not,
    "least": _least,
    "what_now": _what_now,
    **{kind: _by_button(words) for kind, words in CLICKS.items()},
}
# What has a row of its own in a table of the answer.
ROWS: dict[str, Callable[[Any], int]] = {
    "what_if": lambda answer: len(answer["gains"]),
    "robust": lambda answer: len(answer["figures"]),
    "why_not": lambda answer: len(answer["relaxations"]),
    "least": lambda answer: len(answer["least"]),
    "what_now": lambda answer: len(answer["points"]),
    "worth": lambda answer: len(answer["values"]) + 1,
    "curves": lambda answer: sum(len(one["points"]) for one in answer["curves"]),
    "frontier": lambda answer: sum(len(one["points"]) for one in answer["frontiers"]),
    "what_if_lost": lambda answer: len(answer["losses"]),
}


def test_every_kind_of_question_has_its_place_on_the_page() -> None:
    kinds = {get_args(one.model_fields["ask"].annotation)[0] for one in get_args(get_args(Question)[0])}
    assert ASK.keys() == ROWS.keys() == kinds


@pytest.mark.parametrize("kind", ASK)
def test_a_question_is_asked_by_its_button_and_answered_in_full(
    kind: str, real: str, plan: str, browser: Browser
) -> None:
    with watched(browser, real) as page:
        page.goto(f"{real}/plans/{plan}#ask")
        page.get_by_label("Time for an answer").fill(f"{LIMIT_S} s")
        page.get_by_text("More questions").click()
        ASK[kind](page)
        proof = page.locator(".proof")
        expect(proof.locator(".state").first).to_have_text(
            re.compile("answered|as far as it was searched"), timeout=90_000
        )
        name = re.search(r"question_[0-9a-f]{30}", page.url)
        assert name is not None
        answer = httpx2.get(f"{real}/v1/questions/{name[0]}", timeout=30).json()["answer"]
        assert answer["ask"] == kind
        assert ROWS[kind](answer) > 0
        expect(proof.locator("tbody tr")).to_have_count(ROWS[kind](answer))
        assert UNREADABLE.findall(proof.inner_text()) == []
        assert page.evaluate(OVERLAPS) == []
        assert grave(page) == []
        page.set_viewport_size({"width": 400, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("lost", ["west", "east-pool", "east-west"])
def test_a_loss_is_planned_with_what_is_left(lost: str, real: str, plan: str, browser: Browser) -> None:
    base = PlanRequest.model_validate(httpx2.get(f"{real}/v1/plans/{plan}/request", timeout=30).json())
    with watched(browser, real) as page:
        page.goto(f"{real}/plans/{plan}#ask")
        page.get_by_label("Time for an answer").fill("2 s")
        page.get_by_text("More questions").click()
        page.get_by_label("What is lost").select_option(lost)
        _by_button("What now, without")(page)
        page.get_by_role("button", name=f"Plan without {lost}").click(timeout=90_000)
        expect(page.get_by_role("heading", name="Replan with a change")).to_be_visible()
        made = json.loads(page.input_value("#json"))
    assert made.pop("name") == f"without {lost}"
    assert PlanRequest.model_validate(made) == changed(base, changes_of(base, [lost]))
