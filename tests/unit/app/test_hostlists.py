"""Hostlists unfold as slurm.conf(5) says, fold back to the same names in the same order, and refuse the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.hostlists import MAX_HOSTS, fold, unfold
from models.errors import InvalidRequest, LimitExceeded

LETTERS = "abcXYZ._-"
PARTS = st.tuples(st.text(LETTERS + "0123456789", min_size=1, max_size=8), st.integers(0, 1200), st.integers(0, 5))
NAMES = st.builds(lambda part: f"{part[0]}{str(part[1]).zfill(part[2])}", PARTS) | st.text(LETTERS, min_size=1)
RUNS = st.builds(
    lambda prefix, first, count, width: [f"{prefix}{str(n).zfill(width)}" for n in range(first, first + count)],
    st.sampled_from(["node", "n-", "rack0_blade", "a1b"]),
    st.integers(0, 1100),
    st.integers(0, 40),
    st.integers(0, 5),
)


@given(st.lists(NAMES))
def test_any_names_survive(names: list[str]) -> None:
    assert unfold(fold(names)) == tuple(names)


@given(st.lists(RUNS, max_size=4))
def test_runs_survive_and_get_short(runs: list[list[str]]) -> None:
    names = [name for run in runs for name in run]
    folded = fold(names)
    assert unfold(folded) == tuple(names)
    assert len(folded) <= 30 * len(runs)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tux[0-3,12,18-20]", "tux0 tux1 tux2 tux3 tux12 tux18 tux19 tux20"),  # topology.conf(5)
        ("node[01-02]", "node01 node02"),
        ("n[099-101]", "n099 n100 n101"),
        ("n[9-11]", "n9 n10 n11"),
        ("a,b[2,1], c", "a b2 b1 c"),
        ("unit[0-1]-ib", "unit0-ib unit1-ib"),
        ("a[0-1]b[0-1]c[0-1]", "a0b0c0 a0b0c1 a1b0c0 a1b0c1 a0b1c0 a0b1c1 a1b1c0 a1b1c1"),
        ("x", "x"),
        ("", ""),
    ],
)
def test_the_grammar(text: str, names: str) -> None:
    assert unfold(text) == tuple(names.split())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("node[1-", "no partner"),
        ("node1]", "no partner"),
        ("n[[1]]", "no partner"),
        ("node[3-1]", "backwards"),
        ("node[001-10]", "widths"),
        ("node[]", "neither a number"),
        ("node[1,]", "neither a number"),
        ("node[a-b]", "neither a number"),
        ("node[1-9999999999]", "neither a number"),
        ("a,,b", "missing"),
        ("a,", "missing"),
        ("a b", "no part of a host name"),
        ("$(reboot)", "no part of a host name"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        unfold(text)
    assert "character" in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text", [f"n[0-{MAX_HOSTS}]", "a[0-999]b[0-999]c[0-999]", "n[1-999999999]", "a," * MAX_HOSTS + "a"]
)
def test_a_bomb_is_refused_before_it_is_built(text: str) -> None:
    with pytest.raises(LimitExceeded, match="the limit is 1,000,000"):
        unfold(text)


def test_the_limit_is_inclusive() -> None:
    assert len(unfold("n[1-4]", limit=4)) == 4
    with pytest.raises(LimitExceeded):
        unfold("n[1-5]", limit=4)


@pytest.mark.parametrize("name", ["", "a,b", "a[1]", "a b", "a\nb", "ä"])
def test_a_name_that_would_break_the_list_is_not_folded(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot stand in a hostlist"):
        fold([name])
