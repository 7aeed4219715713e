"""Conflicts and corrections of random monotone constraints are those that trying all subsets finds."""

from __future__ import annotations

from itertools import chain, combinations
from random import Random

import pytest

from models.question_parts import Status
from solver.questions.conflicts import Names, enumerate_conflicts

LETTERS = "abcdef"


def _subsets(names: str) -> list[Names]:
    sizes = range(len(names) + 1)
    return [frozenset(one) for one in chain.from_iterable(combinations(names, size) for size in sizes)]


def _least(sets: list[Names]) -> set[Names]:
    return {one for one in sets if not any(other < one for other in sets)}


def _clashes(random: Random, names: str) -> list[Names]:
    """Up to five sets of constraints that nothing meets together, at least one."""
    return [frozenset(random.sample(names, random.randint(1, len(names)))) for _ in range(random.randint(1, 5))]


@pytest.mark.parametrize("seed", range(200))
def test_all_minimal_conflicts_and_corrections_are_found_and_nothing_else(seed: int) -> None:
    random = Random(seed)
    names = LETTERS[: random.randint(1, len(LETTERS))]
    clashes = _clashes(random, names)
    asked: list[Names] = []

    def decide(kept: Names) -> Status:
        asked.append(kept)
        return "infeasible" if any(one <= kept for one in clashes) else "planned"

    found = enumerate_conflicts(names, decide)
    infeasible = [one for one in _subsets(names) if any(clash <= one for clash in clashes)]
    helpful = [frozenset(names) - one for one in _subsets(names) if one not in infeasible]
    assert {core.names for core in found.cores} == _least(infeasible)
    assert set(found.corrections) == _least(helpful)
    assert found.complete
    assert not any(core.unsure for core in found.cores)
    assert len(asked) == len(set(asked)), "no subset is asked about twice"


@pytest.mark.parametrize("seed", range(200))
def test_with_undecided_subsets_nothing_false_is_said(seed: int) -> None:
    random = Random(seed)
    clashes = _clashes(random, LETTERS)
    foggy = {one for one in _subsets(LETTERS) if random.random() < 0.3 and one != frozenset(LETTERS)}

    def truth(kept: Names) -> Status:
        return "infeasible" if any(one <= kept for one in clashes) else "planned"

    found = enumerate_conflicts(LETTERS, lambda kept: "not_found" if kept in foggy else truth(kept))
    for core in found.cores:
        assert truth(core.names) == "infeasible"
        sure = core.names - core.unsure
        assert all(truth(core.names - {name}) == "planned" for name in sure), "what is said to be needed is"
    for correction in found.corrections:
        assert truth(frozenset(LETTERS) - correction) == "planned"
    if found.complete:
        infeasible = [one for one in _subsets(LETTERS) if truth(one) == "infeasible"]
        assert {core.names for core in found.cores} == _least(infeasible)
    assert set(found.undecided) <= foggy


def test_what_is_known_is_told_when_it_is_stopped() -> None:
    asked: list[Names] = []

    def decide(kept: Names) -> Status:
        asked.append(kept)
        return "infeasible" if {"a", "b"} <= kept or {"c", "d"} <= kept else "planned"

    found = enumerate_conflicts("abcd", decide, stopped=lambda: len(asked) >= 3)
    assert not found.complete
    assert all(decide(core.names) == "infeasible" for core in found.cores)
