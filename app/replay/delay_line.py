"""Messages that arrive as late as the plan's links would bring them, held back on the receiving side.

A message leaves its link at max(sent, link free) + occupancy, in the planned order of the link, and arrives a latency
later; the sender never waits. When it was sent stands in a table that all processes of one machine share.
Owns that arithmetic. Never knows PyTorch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.replay.case import Message, ReplayCase
from models.schedule import Operation

POLL_S = 0.0005
GIVE_UP_S = 120.0


class SentTimes:
    """When every message was sent, on the machine's monotonic clock; 0 until then. All processes map one file."""

    def __init__(self, table: npt.NDArray[np.float64], num_stages: int, num_microbatches: int) -> None:
        self._table = table
        self._shape = (num_stages, num_microbatches)

    @classmethod
    def in_file(cls, path: Path, case: ReplayCase, repetition: int) -> SentTimes:
        """The table of one repetition; the file has been made by `reserve`."""
        size = num_entries(case)
        table = np.memmap(path, dtype=np.float64, mode="r+", offset=repetition * size * 8, shape=(size,))
        return cls(table, case.num_stages, case.num_microbatches)

    def of(self, operation: str) -> float:
        """When the result of an operation was sent, or 0."""
        return float(self._table[self._index(operation)])

    def record(self, operation: str, at_s: float) -> None:
        """The result of an operation leaves now."""
        self._table[self._index(operation)] = at_s

    def _index(self, text: str) -> int:
        stage, kind, microbatch = Operation.parse(text)
        num_stages, num_microbatches = self._shape
        return ((kind != "F") * num_stages + stage) * num_microbatches + microbatch


def num_entries(case: ReplayCase) -> int:
    """Messages of one repetition: an activation and a gradient per stage and micro-batch."""
    return 2 * case.num_stages * case.num_microbatches


def reserve(path: Path, case: ReplayCase, num_repetitions: int) -> None:
    """An empty table for every repetition."""
    path.write_bytes(bytes(8 * num_entries(case) * num_repetitions))


@dataclass
class _Channel:
    """A link in one direction, as far as it has been followed."""

    messages: Sequence[Message]
    arrivals_s: dict[str, float] = field(default_factory=dict)
    free_s: float = 0.0

    def advance(self, sent_s: Callable[[str], float]) -> None:
        """Follow the link past every message whose turn it is and that has been sent."""
        while len(self.arrivals_s) < len(self.messages):
            message = self.messages[len(self.arrivals_s)]
            at_s = sent_s(message.operation)
            if at_s == 0.0:
                return
            self.free_s = max(self.free_s, at_s) + message.occupancy_s
            self.arrivals_s[message.operation] = self.free_s + message.latency_s


class DelayLine:
    """Holds a consumer back until the message it needs would have arrived."""

    def __init__(
        self,
        case: ReplayCase,
        sent: SentTimes,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sent, self._clock, self._sleep = sent, clock, sleep
        self._latency_s = {message.operation: message.latency_s for message in case.free_messages}
        channels = [_Channel(messages) for messages in case.channels]
        self._channel_of = {one.operation: channel for channel in channels for one in channel.messages}

    def wait_for(self, operation: str) -> None:
        """Return when the message of an operation has arrived; at once where its way takes no time."""
        if operation in self._channel_of:
            self.sleep_until(self._arrival_over_link_s(operation))
        elif operation in self._latency_s:
            self.sleep_until(self._sent.of(operation) + self._latency_s[operation])

    def sent_now(self, operation: str) -> None:
        """The result of an operation leaves."""
        self._sent.record(operation, self._clock())

    def sleep_until(self, at_s: float) -> None:
        """Sleep to a point of the clock; not at all if it has passed."""
        left_s = at_s - self._clock()
        if left_s > 0:
            self._sleep(left_s)

    def _arrival_over_link_s(self, operation: str) -> float:
        """When it arrives; messages that the plan puts before it on the link are waited for."""
        channel = self._channel_of[operation]
        give_up_s = self._clock() + GIVE_UP_S
        while operation not in channel.arrivals_s:
            channel.advance(self._sent.of)
            if operation in channel.arrivals_s:
                break
            if self._clock() > give_up_s:
                raise TimeoutError(f"a message before {operation} on its link was not sent within {GIVE_UP_S:g} s")
            self._sleep(POLL_S)
        return channel.arrivals_s[operation]
