"""Taking turns: same bytes on the link, less delay per message, one offset."""

from __future__ import annotations

import pytest

from solver.transport.sharing import all_at_once_s, num_turns, share_link, turn_s


def test_turns_win_when_messages_are_exposed_often():
    share = share_link(1e9, 4, link_rate=1e9, sender_rate=1e9, num_exposed=16)
    assert share.take_turns
    assert share.message_s == 1.0
    assert share.offset_s == 3.0
    assert share.exposed_s == pytest.approx(16 * 1 + 3)
    assert "64" in share.reason or "6.4e+04 ms all at once" in share.reason


def test_all_at_once_wins_when_the_link_serves_everybody():
    share = share_link(1e9, 4, link_rate=8e9, sender_rate=1e9, num_exposed=16)
    assert not share.take_turns
    assert share.message_s == 1.0
    assert share.offset_s == 0.0


@pytest.mark.parametrize("num_replicas", [1, 2, 7, 64])
@pytest.mark.parametrize("link_rate", [1e9, 3.5e9, 1e12])
def test_the_link_is_busy_equally_long_either_way(num_replicas, link_rate):
    """Turns of as many senders as fit never finish before the link could carry the bytes."""
    sender_rate, size = 1e9, 1e9
    in_turns = num_turns(num_replicas, link_rate, sender_rate) * turn_s(size, link_rate, sender_rate)
    assert in_turns >= num_replicas * size / link_rate * (1 - 1e-12)
    assert in_turns <= all_at_once_s(size, num_replicas, link_rate, sender_rate) * 2


@pytest.mark.parametrize("num_exposed", [0, 0.5, 1, 2, 30])
def test_the_better_of_both_is_taken(num_exposed):
    share = share_link(2e8, 8, link_rate=1e9, sender_rate=5e8, num_exposed=num_exposed)
    together = num_exposed * all_at_once_s(2e8, 8, 1e9, 5e8)
    single = turn_s(2e8, 1e9, 5e8)
    turns = num_exposed * single + (num_turns(8, 1e9, 5e8) - 1) * single
    assert share.exposed_s == pytest.approx(min(together, turns))
