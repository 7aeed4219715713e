"""An iteration executed as `isthmus replay` is told, one operation after another, with nothing of the planner."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator

from app.exporters.replay_case import EXCHANGE, Message, ReplayCase, ReplayPipeline

CELL = re.compile(r"(\d+)([FIWB])(\d+)")
Operation = tuple[int, str, int]  # stage, action in PyTorch's words, micro-batch


class Stuck(Exception):
    """Every rank waits for another."""


def ends_s(case: ReplayCase) -> float:
    """When the iteration of a case has ended, its first operation at 0."""
    executions = [Execution(case, pipeline) for pipeline in case.pipelines]
    last_s: defaultdict[int, float] = defaultdict(float)
    end_s = 0.0
    for replica in case.replicas:
        one = executions[replica.pipeline]
        end_s = max(end_s, max(one.clock_s) + replica.shift_s)
        for stage, at_s in one.last_weight_grad_s.items():
            last_s[stage] = max(last_s[stage], at_s + replica.shift_s)
    return max(end_s, _exchanges_end_s(case, last_s)) + case.closing_s


def _exchanges_end_s(case: ReplayCase, last_s: dict[int, float]) -> float:
    """When the last exchange of gradients has ended: each has a head start, and begins behind those it waits for."""
    head_start_s = dict(zip(sorted(_stage_of(one) for one in case.exchanges), case.head_start_s, strict=True))
    start_s: dict[str, float] = {}
    end_s = 0.0
    for one in case.exchanges:
        stage = _stage_of(one)
        waits = [start_s[other.operation] + other.lag_s for other in one.after]
        start_s[one.operation] = max([last_s[stage] - head_start_s[stage], *waits])
        end_s = max(end_s, last_s[stage], start_s[one.operation] + one.occupancy_s + one.lag_s)
    return end_s


def _stage_of(exchange: Message) -> int:
    return int(exchange.operation.removesuffix(EXCHANGE))


class Execution:
    """One replica: every rank runs its row in order, every link carries its messages in order."""

    def __init__(self, case: ReplayCase, pipeline: ReplayPipeline) -> None:
        self._pipeline, self._blocking, self._num_stages = pipeline, case.blocking, case.num_stages
        self._rows = [deque(_operations(line)) for line in pipeline.schedule_csv.splitlines()]
        self._links = [deque(order) for order in pipeline.channels]
        self._link_free_s = [0.0] * len(self._links)
        self._link_of = {one.operation: link for link, order in enumerate(self._links) for one in order}
        self._late = {one.operation: one.occupancy_s + one.lag_s for one in pipeline.free_messages}
        self._done_s: dict[str, float] = {}
        self._landed_s: dict[str, float] = {}
        self._sent: dict[int, str] = {}  # by rank, the message that it sent last
        self.clock_s = [0.0] * len(self._rows)
        self.last_weight_grad_s: defaultdict[int, float] = defaultdict(float)
        while any(self._advance(rank) for rank in range(len(self._rows))):
            pass
        if any(self._rows):
            raise Stuck

    def _advance(self, rank: int) -> bool:
        """Run what can be run on a rank; whether that is anything."""
        before = len(self._rows[rank])
        while self._rows[rank] and (start_s := self._start_s(rank, self._rows[rank][0])) is not None:
            self._run(rank, self._rows[rank].popleft(), start_s)
        return len(self._rows[rank]) < before

    def _start_s(self, rank: int, operation: Operation) -> float | None:
        """When an operation can start; None before all that it waits for has landed."""
        landings = [self._landed_s.get(one) for one in self._awaited(rank, operation)]
        known = [one for one in landings if one is not None]
        return max([self.clock_s[rank], *known]) if len(known) == len(landings) else None

    def _awaited(self, rank: int, operation: Operation) -> Iterator[str]:
        stage, kind, microbatch = operation
        if kind == "F" and stage > 0:
            yield f"{stage - 1}F{microbatch}"
        if kind in "IB" and stage + 1 < self._num_stages:
            yield f"{stage + 1}B{microbatch}"
        if kind != "W" and self._blocking and rank in self._sent:
            yield self._sent[rank]

    def _run(self, rank: int, operation: Operation, start_s: float) -> None:
        stage, kind, microbatch = operation
        one = self._pipeline
        backward_s = {"I": one.input_grad_s, "W": one.weight_grad_s, "F": one.forward_s}
        parts = "IW" if kind == "B" else kind
        self.clock_s[rank] = end_s = start_s + sum(backward_s[part][stage] for part in parts)
        if kind in "WB":
            self.last_weight_grad_s[stage] = end_s
        if kind != "W":
            self._send(rank, f"{stage}{'F' if kind == 'F' else 'B'}{microbatch}", end_s)

    def _send(self, rank: int, name: str, end_s: float) -> None:
        self._done_s[name] = end_s
        if name in self._link_of:
            self._sent[rank] = name
            self._carry(self._link_of[name])
            return
        if name in self._late:
            self._sent[rank] = name
        self._landed_s[name] = end_s + self._late.get(name, 0.0)

    def _carry(self, link: int) -> None:
        """Everything that the link can carry by now, in its order."""
        order = self._links[link]
        while order and order[0].operation in self._done_s:
            one = order.popleft()
            free_s = max(self._done_s[one.operation], self._link_free_s[link]) + one.occupancy_s
            self._link_free_s[link], self._landed_s[one.operation] = free_s, free_s + one.lag_s


def _operations(line: str) -> Iterator[Operation]:
    for cell in line.split(","):
        found = CELL.fullmatch(cell)
        assert found is not None, cell
        yield int(found[1]), found[2], int(found[3])
