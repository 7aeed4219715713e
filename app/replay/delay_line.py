"""Messages that arrive as late as the plan's links would bring them, held back on the receiving side.

A message leaves its link at max(sent, link free) + occupancy, in the planned order of the link, and arrives a latency
later. An exchange of gradients begins when the last replica has its gradients and those have ended whose links or cards
it takes in the plan. When things were sent stands in a table that all processes of one machine share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.exporters.replay_case import EXCHANGE, Message, ReplayCase
from models.schedule import Operation

POLL_S = 0.0005
GIVE_UP_S = 120.0


class SentTimes:
    """When a replica sent every message and every replica had its gradients, on the machine's monotonic clock; 0 until
    then. All processes map one file.
    """

    def __init__(self, table: npt.NDArray[np.float64], case: ReplayCase, replica: int) -> None:
        num_messages = len(case.replicas) * num_entries(case)
        self._sent = table[:num_messages].reshape(len(case.replicas), 2, case.num_stages, case.num_microbatches)[
            replica
        ]
        self._gradients = table[num_messages:].reshape(case.num_stages, len(case.replicas))
        self._case, self._replica = case, replica

    @classmethod
    def in_file(cls, path: Path, case: ReplayCase, repetition: int, replica: int = 0) -> SentTimes:
        """The table of one repetition; the file has been made by `reserve`."""
        size = _table_size(case)
        table = np.memmap(path, dtype=np.float64, mode="r+", offset=repetition * size * 8, shape=(size,))
        return cls(table, case, replica)

    def of(self, operation: str) -> float:
        """When the result of an operation was sent, or 0; of an exchange: when it may begin."""
        if not operation.endswith(EXCHANGE):
            return float(self._sent[_index(operation)])
        stage = int(operation.removesuffix(EXCHANGE))
        ends_s = self._gradients[stage]
        return float(ends_s.max()) - self._case.head_start_s[stage] if ends_s.all() else 0.0

    def record(self, operation: str, at_s: float) -> None:
        """The result of an operation leaves now."""
        self._sent[_index(operation)] = at_s

    def record_gradients(self, stage: int, at_s: float) -> None:
        """The last W of a stage of this replica has ended."""
        self._gradients[stage, self._replica] = at_s


def _index(text: str) -> tuple[int, int, int]:
    stage, kind, microbatch = Operation.parse(text)
    return int(kind != "F"), stage, microbatch


def num_entries(case: ReplayCase) -> int:
    """Messages of one replica and repetition: an activation and a gradient per stage and micro-batch."""
    return 2 * case.num_stages * case.num_microbatches


def _table_size(case: ReplayCase) -> int:
    return len(case.replicas) * (num_entries(case) + case.num_stages)


def reserve(path: Path, case: ReplayCase, num_repetitions: int) -> None:
    """An empty table for every repetition."""
    path.write_bytes(bytes(8 * _table_size(case) * num_repetitions))


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
            self.arrivals_s[message.operation] = self.free_s + message.lag_s


@dataclass
class _Exchanges:
    """Exchanges of all stages in the order in which they begin, as far as they have been followed."""

    messages: Sequence[Message]
    arrivals_s: dict[str, float] = field(default_factory=dict)
    _starts_s: dict[str, float] = field(default_factory=dict)

    def advance(self, sent_s: Callable[[str], float]) -> None:
        """Time every exchange that may begin and behind which all that it waits for have been timed."""
        for one in self.messages:
            if one.operation in self._starts_s or any(wait.operation not in self._starts_s for wait in one.after):
                continue
            at_s = sent_s(one.operation)
            if at_s > 0.0:
                start_s = max([at_s, *(self._starts_s[wait.operation] + wait.lag_s for wait in one.after)])
                self._starts_s[one.operation] = start_s
                self.arrivals_s[one.operation] = start_s + one.occupancy_s + one.lag_s


class DelayLine:
    """Holds a consumer back until the message it needs would have arrived."""

    def __init__(
        self,
        case: ReplayCase,
        sent: SentTimes,
        replica: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sent, self._clock, self._sleep = sent, clock, sleep
        pipeline = case.pipeline_of(replica)
        self._lag_s = {message.operation: message.lag_s for message in pipeline.free_messages}
        channels: list[_Channel | _Exchanges] = [_Channel(messages) for messages in pipeline.channels]
        channels.append(_Exchanges(case.exchanges))
        self._channel_of = {one.operation: channel for channel in channels for one in channel.messages}
        self._in_flight: list[str] = []

    def wait_for(self, operation: str) -> None:
        """Return when the message of an operation has arrived; at once where its way takes no time."""
        if operation in self._channel_of:
            self.sleep_until(self._arrival_over_link_s(operation))
        elif operation in self._lag_s:
            self.sleep_until(self._sent.of(operation) + self._lag_s[operation])

    def sent_now(self, operation: str) -> None:
        """The result of an operation leaves."""
        self._sent.record(operation, self._clock())
        self._in_flight.append(operation)

    def wait_until_landed(self) -> None:
        """Return when everything that was sent has arrived: what a rank with blocking sends does."""
        for operation in self._in_flight:
            self.wait_for(operation)
        self._in_flight.clear()

    def gradients_now(self, stage: int) -> None:
        """The last W of a stage has ended."""
        self._sent.record_gradients(stage, self._clock())

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
