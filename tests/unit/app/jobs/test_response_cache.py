"""Answers of finished plans are shown from memory for a second, to their owner, and no longer than they exist here."""

from __future__ import annotations

import pytest

from app.jobs import response_cache
from app.jobs.response_cache import CachedResponse, ResponseCache

ANSWER = CachedResponse("alice", '"p-3"', b"0123456789")


@pytest.fixture
def now() -> list[float]:
    """The clock; a test moves it."""
    return [0.0]


@pytest.fixture
def answers(now: list[float]) -> ResponseCache:
    """One answer of alice's."""
    made = ResponseCache(clock=lambda: now[0])
    made.put("p", ANSWER)
    return made


def test_an_answer_is_its_owners_and_that_of_who_sees_everything(answers: ResponseCache) -> None:
    assert answers.get("p", "alice") == answers.get("p", None) == ANSWER
    assert answers.get("p", "mallory") is None
    assert answers.get("q", "alice") is None


def test_it_counts_for_a_second_and_again_once_its_tag_is_confirmed(answers: ResponseCache, now: list[float]) -> None:
    now[0] = response_cache.FRESH_S + 0.1
    assert answers.get("p", None) is None
    answers.renew("p", '"p-2"')
    assert answers.get("p", None) is None
    answers.renew("p", '"p-3"')
    assert answers.get("p", None) == ANSWER


def test_what_is_removed_is_not_shown(answers: ResponseCache) -> None:
    answers.forget("p")
    answers.forget("p")
    assert answers.get("p", None) is None
    answers.put("p", ANSWER)
    answers.clear()
    assert answers.get("p", None) is None


def test_the_oldest_go_first(answers: ResponseCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "MOST_BYTES", 25)
    answers.put("q", ANSWER)
    answers.put("r", ANSWER)
    assert [answers.get(name, None) for name in "pqr"] == [None, ANSWER, ANSWER]


def test_many_small_answers_are_too_many(answers: ResponseCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "MOST_ANSWERS", 2)
    for name in "qr":
        answers.put(name, CachedResponse("alice", "", b""))
    assert answers.get("p", None) is None
    assert answers.get("r", None) is not None
