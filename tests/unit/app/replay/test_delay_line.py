"""Messages arrive when the link would have brought them: one after another, a latency later, never early."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.exporters.replay_case import Message, ReplayCase, ReplayPipeline, Replica, Wait
from app.replay.delay_line import GIVE_UP_S, DelayLine, SentTimes, num_entries, reserve


class Clock:
    """Time that passes only while somebody sleeps; what happens then is called on the way."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.events: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        """Now."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.now_s += seconds
        for at_s, event in [one for one in self.events if one[0] <= self.now_s]:
            self.events.remove((at_s, event))
            event()


def _case(
    channels: tuple[tuple[Message, ...], ...],
    free: tuple[Message, ...] = (),
    exchanges: tuple[Message, ...] = (),
    replicas: int = 1,
) -> ReplayCase:
    return ReplayCase(
        name="two", num_microbatches=2, rank_of_stage=(0, 1), blocking=False,
        replicas=(Replica(pipeline=0),) * replicas,
        pipelines=(ReplayPipeline(schedule_csv="", forward_s=(1.0, 1.0), input_grad_s=(1.0, 1.0),
                                  weight_grad_s=(1.0, 1.0), channels=channels, free_messages=free),),
        exchanges=exchanges, head_start_s=(3.0, 3.0), operation_s=1.0, scale=1.0, predicted_s=4.0,
    )  # fmt: skip


def _line(case: ReplayCase, folder: Path) -> tuple[DelayLine, SentTimes, Clock]:
    reserve(folder / "sent", case, 1)
    sent, clock = SentTimes.in_file(folder / "sent", case, 0), Clock()
    return DelayLine(case, sent, clock=clock.time, sleep=clock.sleep), sent, clock


def _message(operation: str) -> Message:
    return Message(operation=operation, occupancy_s=2.0, lag_s=5.0)


CHANNEL = (_message("0F0"), _message("0F1"))


def test_a_message_takes_its_link_and_then_the_way(tmp_path: Path) -> None:
    line, sent, clock = _line(_case((CHANNEL,)), tmp_path)
    sent.record("0F0", 100.0)
    line.wait_for("0F0")
    assert clock.now_s == 107.0


def test_the_next_one_waits_until_the_link_is_free(tmp_path: Path) -> None:
    line, sent, clock = _line(_case((CHANNEL,)), tmp_path)
    sent.record("0F0", 100.0)
    sent.record("0F1", 100.5)
    line.wait_for("0F1")
    assert clock.now_s == 109.0


def test_the_planned_order_of_the_link_holds_even_if_another_was_ready_first(tmp_path: Path) -> None:
    line, sent, clock = _line(_case(((_message("0F1"), _message("0F0")),)), tmp_path)
    sent.record("0F0", 100.0)
    clock.events.append((103.0, lambda: sent.record("0F1", 103.0)))
    line.wait_for("0F0")
    assert clock.now_s == pytest.approx(112.0)


def test_a_message_without_a_link_is_only_late(tmp_path: Path) -> None:
    free = Message(operation="0F0", occupancy_s=0.0, lag_s=5.0)
    line, sent, clock = _line(_case((), (free,)), tmp_path)
    sent.record("0F0", 98.0)
    line.wait_for("0F0")
    assert clock.now_s == 103.0
    line.wait_for("0F0")
    assert clock.now_s == 103.0


def test_what_the_plan_does_not_delay_is_not_waited_for(tmp_path: Path) -> None:
    line, _, clock = _line(_case((CHANNEL,)), tmp_path)
    line.wait_for("1B0")
    assert clock.now_s == 100.0


def test_a_message_that_is_never_sent_is_given_up(tmp_path: Path) -> None:
    line, _, clock = _line(_case((CHANNEL,)), tmp_path)
    with pytest.raises(TimeoutError, match="a message before 0F1"):
        line.wait_for("0F1")
    assert clock.now_s == pytest.approx(100.0 + GIVE_UP_S, abs=0.01)


def test_processes_and_repetitions_share_one_file(tmp_path: Path) -> None:
    case = _case((CHANNEL,))
    path = tmp_path / "sent"
    reserve(path, case, 2)
    assert path.stat().st_size == 2 * 8 * (num_entries(case) + case.num_stages)
    SentTimes.in_file(path, case, 1).record("1B1", 7.0)
    assert SentTimes.in_file(path, case, 1).of("1B1") == 7.0
    assert SentTimes.in_file(path, case, 0).of("1B1") == 0.0


def test_an_exchange_begins_its_head_start_before_the_last_replica_and_in_its_turn(tmp_path: Path) -> None:
    first = Message(operation="1SYNC", occupancy_s=10.0, lag_s=1.0)
    after = (Wait(operation="1SYNC", lag_s=10.0),)
    exchanges = (first, first.model_copy(update={"operation": "0SYNC", "after": after}))
    line, sent, clock = _line(_case((), exchanges=exchanges, replicas=2), tmp_path)
    other = SentTimes.in_file(tmp_path / "sent", _case((), exchanges=exchanges, replicas=2), 0, 1)
    for stage in (0, 1):
        sent.record_gradients(stage, 100.0)
    assert sent.of("1SYNC") == 0.0, "the other replica has no gradients yet"
    other.record_gradients(1, 104.0)
    other.record_gradients(0, 103.0)
    line.wait_for("1SYNC")
    assert clock.now_s == 104.0 - 3.0 + 10.0 + 1.0
    line.wait_for("0SYNC")
    assert clock.now_s == 104.0 - 3.0 + 20.0 + 1.0


def test_an_exchange_inside_places_waits_for_no_other(tmp_path: Path) -> None:
    exchanges = tuple(Message(operation=f"{stage}SYNC", occupancy_s=0.0, lag_s=7.0) for stage in (0, 1))
    line, sent, clock = _line(_case((), exchanges=exchanges), tmp_path)
    sent.record_gradients(1, 100.0)
    line.wait_for("1SYNC")
    assert clock.now_s == 100.0 - 3.0 + 7.0


def test_a_rank_with_blocking_sends_waits_for_what_it_sent(tmp_path: Path) -> None:
    line, _, clock = _line(_case((CHANNEL,)), tmp_path)
    line.sent_now("0F0")
    line.wait_until_landed()
    assert clock.now_s == 107.0
    line.wait_until_landed()
    assert clock.now_s == 107.0


def test_replicas_do_not_read_each_others_messages(tmp_path: Path) -> None:
    case = _case((CHANNEL,), replicas=2)
    reserve(tmp_path / "sent", case, 1)
    SentTimes.in_file(tmp_path / "sent", case, 0, 1).record("1B1", 7.0)
    assert SentTimes.in_file(tmp_path / "sent", case, 0, 0).of("1B1") == 0.0
    assert SentTimes.in_file(tmp_path / "sent", case, 0, 1).of("1B1") == 7.0
