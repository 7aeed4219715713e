"""The queue's state machine keeps its promises in every interleaving; broken ones are found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage import lease as steps
from app.storage.lease import Hold, Silence
from tests.unit.app.storage.lease_model import Explorer, Rules, explore, histories


def test_two_faults_anywhere_lose_double_or_hang_nothing() -> None:
    num_states, found = explore(Explorer(), 2)
    assert found == []
    assert num_states > 1000, "the exploration has seen something"


@pytest.mark.slow
def test_three_faults_anywhere_lose_double_or_hang_nothing() -> None:
    num_states, found = explore(Explorer(), 3)
    assert found == []
    assert num_states > 20_000


def test_long_histories_with_many_faults_lose_double_or_hang_nothing() -> None:
    assert histories(Explorer(), num_faults=10, number=60, seed=1) == []


@pytest.mark.slow
def test_very_many_histories_lose_double_or_hang_nothing() -> None:
    assert histories(Explorer(), num_faults=12, number=5000, seed=2) == []


def _unfenced_give_back(hold: Hold, _lease: int, *, counts: bool) -> Hold | None:
    if hold.state != "running":
        return None
    return replace(hold, state="queued", holder=None, attempt=hold.attempt - (not counts))


def _late_end(hold: Hold, lease: int, state: str, reason: str) -> Hold | None:
    return None if hold.has_ended or lease > hold.lease else replace(hold, state=state, stop_reason=reason)


def _unfenced_finish(hold: Hold, _lease: int, state: str, reason: str) -> Hold | None:
    return None if hold.state != "running" else replace(hold, state=state, stop_reason=reason, holder=None)


def _old_lease_again(hold: Hold, holder: str) -> Hold | None:
    claimed = steps.claim(hold, holder)
    return claimed and replace(claimed, lease=claimed.attempt)


def _leaving_counts(hold: Hold, lease: int, *, counts: bool) -> Hold | None:  # noqa: ARG001
    return steps.give_back(hold, lease, counts=True)


def _takes_from_anybody(hold: Hold, _holder: str) -> Hold | None:
    return None if hold.has_ended else replace(hold, state="queued", holder=None)


BROKEN = {
    "the lease number is that of the attempt": Rules(claim=_old_lease_again),
    "an older lease may give back": Rules(give_back=_unfenced_give_back),
    "an older lease may end": Rules(finish=_late_end),
    "anybody may end a running plan": Rules(finish=_unfenced_finish),
    "a lost claim is never looked for": Rules(unknown=lambda _held, _running: []),
    "leaving counts as an attempt": Rules(give_back=_leaving_counts),
    "a loss is not asked for the holder": Rules(lose=_takes_from_anybody),
    "a silent worker keeps its plans": Rules(lose=lambda _hold, _holder: None),
    "an ended plan can be claimed": Rules(
        claim=lambda hold, holder: steps.claim(replace(hold, state="queued"), holder)
    ),
    "a plan that was cancelled waits again": Rules(
        ask_to_stop=lambda hold: None if hold.has_ended else replace(hold, state="queued", cancel_requested=True)
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_machine_is_found(fault: str) -> None:
    _, found = explore(Explorer(BROKEN[fault]), 2)
    assert found, fault


LOOKS = st.lists(st.booleans(), max_size=40)


@given(LOOKS, st.integers(1, 6))
def test_silent_is_who_shows_nothing_new_at_so_many_looks_in_a_row(beats: list[bool], num_looks: int) -> None:
    """By definition: compare with the run of unchanged looks that ends here."""
    silence, number, unchanged = Silence(num_looks), 0, 0
    for first, is_new in enumerate(beats):
        number += is_new
        unchanged = 0 if is_new or first == 0 else unchanged + 1
        assert silence.look({"w": number}) == (["w"] if unchanged >= num_looks else [])


@given(st.lists(LOOKS, min_size=2, max_size=4), st.integers(1, 6))
def test_workers_are_judged_one_by_one(of_each: list[list[bool]], num_looks: int) -> None:
    together, alone = Silence(num_looks), [Silence(num_looks) for _ in of_each]
    for look in range(min(map(len, of_each))):
        beats = {str(index): sum(one[: look + 1]) for index, one in enumerate(of_each)}
        silent = {str(index) for index, one in enumerate(alone) if one.look({str(index): beats[str(index)]})}
        assert set(together.look(beats)) == silent


def test_a_holder_that_nobody_knows_is_judged_like_one_that_shows_nothing_new() -> None:
    silence = Silence(2)
    assert [silence.look({"ghost": None}) for _ in range(3)] == [[], [], ["ghost"]]
    assert silence.look({}) == silence.look({"ghost": 7}) == [], "it has come back"
