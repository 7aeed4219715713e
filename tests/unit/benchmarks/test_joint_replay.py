"""The benchmark of the joint replay reads the plans that are made now."""

from __future__ import annotations

from benchmarks.joint_replay import SIZES, row


def test_the_joint_replay_of_the_smallest_size_ends_no_later_than_its_plan() -> None:
    assert row(SIZES[0], repeat=1)
