"""PyTorch's rows, read by its grammar run by a small machine of our own: no message is late, lost or out of turn."""

from __future__ import annotations

import re
from collections import defaultdict, deque

import pytest

from app.exporters.torch_schedule_csv import compute_and_comms, compute_only
from app.faults import Refused
from benchmarks.first_schedules import quick_schedule
from models.schedule import PipelineProblem, PipelineSchedule
from tests.pipelines import cut, pipeline
from tests.unit.app.fake_solver import SCHEDULE

CELL = re.compile(r"(\d+)(F|I|W|B|SEND_F|RECV_F|SEND_B|RECV_B)(\d+)|(\d+)(UNSHARD|RESHARD|REDUCE_GRAD)")
PROBLEMS = {
    "zb_h1": pipeline(4, 6, hops=[cut(1, 2.0, 0.25, "A-B")]),
    "greedy": pipeline(4, 6, hops=[cut(1, 2.0, 0.25, "A-B")]),
    "zbv": pipeline(3, 6, chunks=2, hops=[cut(0, 1.0, 0.25, "A-B"), cut(4, 1.0, 0.25, "A-B")]),
    "interleaved": pipeline(3, 6, chunks=2, layout="loop", hops=[cut(0, 1.0, 0.25, "A-B"), cut(3, 1.0, 0.25, "A-B")]),
}
Row = deque[tuple[int, str, int | None]]


def _rows(text: str) -> list[Row]:
    return [deque(_cell(cell) for cell in line.split(",")) for line in text.splitlines()]


def _cell(text: str) -> tuple[int, str, int | None]:
    found = CELL.fullmatch(text)
    assert found, text
    if found[4]:
        return int(found[4]), found[5], None
    return int(found[1]), found[2], int(found[3])


class Machine:
    """Runs rows as the runtime does: sends never wait, a receive takes the oldest message of its pair of ranks."""

    def __init__(self, rows: list[Row]) -> None:
        self.rank_of = {stage: rank for rank, row in enumerate(rows) for stage, kind, _ in row if kind == "F"}
        self.last = max(self.rank_of)
        self.wires: dict[tuple[int, int], deque[tuple[str, int, int | None]]] = defaultdict(deque)
        self.have: set[tuple[str, int, int | None]] = set()
        self.log: list[tuple[int, str, int | None]] = []

    def step(self, rank: int, action: tuple[int, str, int | None]) -> bool:
        """Do it, or say that it has to wait."""
        stage, kind, number = action
        if kind.startswith("SEND"):
            way = 1 if kind == "SEND_F" else -1
            assert (kind[-1], stage, number) in self.have, "sent before it is computed"
            self.wires[rank, self.rank_of[stage + way]].append((kind[-1], stage + way, number))
        elif kind.startswith("RECV"):
            sender = self.rank_of[stage + (-1 if kind == "RECV_F" else 1)]
            if not self.wires[sender, rank]:
                return False
            assert self.wires[sender, rank].popleft() == (kind[-1], stage, number), (
                "another message is next on this pair"
            )
            self.have.add((f"in {kind[-1]}", stage, number))
        elif number is not None:
            return self._compute(rank, stage, kind, number)
        return True

    def _compute(self, rank: int, stage: int, kind: str, number: int) -> bool:
        if kind == "F" and stage > 0:
            assert self._arrived("F", rank, stage, stage - 1, number)
        if kind in "IB" and stage < self.last:
            assert self._arrived("B", rank, stage, stage + 1, number)
        self.have.add(("F" if kind == "F" else "B" if kind in "IB" else "W", stage, number))
        self.log.append((stage, kind, number))
        return True

    def _arrived(self, way: str, rank: int, stage: int, sender: int, number: int) -> bool:
        if self.rank_of[sender] == rank:
            return (way, sender, number) in self.have
        return (f"in {way}", stage, number) in self.have


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_rows_with_communication_run_to_their_end(name: str) -> None:
    schedule = quick_schedule(PROBLEMS[name], (name,))
    rows = _rows(compute_and_comms(schedule))
    machine = Machine(rows)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while row and machine.step(rank, row[0]):
                row.popleft()
                moved = True
    assert not any(rows), "every rank ran to its end"
    assert not any(machine.wires.values()), "every message was received"


@pytest.mark.parametrize("name", PROBLEMS)
def test_both_forms_have_the_same_computation(name: str) -> None:
    schedule = quick_schedule(PROBLEMS[name], (name,))
    with_messages = [[one for one in row if one[1] in "FIWB"] for row in _rows(compute_and_comms(schedule))]
    assert with_messages == [list(row) for row in _rows(compute_only(schedule))]


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_stage_reduces_its_gradients_once_after_its_last_operation(name: str) -> None:
    for row in _rows(compute_and_comms(quick_schedule(PROBLEMS[name], (name,)))):
        for stage in {one[0] for one in row if one[1] == "F"}:
            of_stage = [
                kind for where, kind, _ in row if where == stage and kind in ("F", "I", "W", "B", "REDUCE_GRAD")
            ]
            assert of_stage.count("REDUCE_GRAD") == 1
            assert of_stage[-1] == "REDUCE_GRAD"


def _changed(rank: int, operations: tuple[str, ...]) -> PipelineSchedule:
    ranks = list(SCHEDULE.ranks)
    ranks[rank] = ranks[rank].model_copy(update={"operations": operations})
    return SCHEDULE.model_copy(update={"ranks": tuple(ranks)})


@pytest.mark.parametrize(
    ("rank", "operations", "reason"),
    [
        (0, ("0F0", "0F0", "0B0", "0W0", "0B1", "0W1"), "0F0 occurs 2 times"),
        (0, ("0F0", "0F1", "0B0", "0W0", "0B1"), "micro-batch 1 on stage 0 has"),
        (0, ("0F0", "0F1", "0B0", "0W0", "0BW0", "0B1", "0W1"), "micro-batch 0 on stage 0 has"),
        (1, ("1F1", "1B1", "1F0", "1B0", "1W0", "1W1"), "not in the order of the micro-batches"),
        (1, (), "rank 1 has no operation"),
        (1, ("1F0", "1B0", "0F1", "1B1", "1W0", "1W1"), "stage 0 lies on ranks 0 and 1"),
    ],
)
def test_what_pytorch_would_run_wrongly_without_a_word_is_refused(
    rank: int, operations: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        compute_only(_changed(rank, operations))


def test_fused_backwards_are_one_action() -> None:
    fused = PipelineProblem.model_validate({**PROBLEMS["zb_h1"].model_dump(), "backward": "fused"})
    actions = {kind for row in _rows(compute_only(quick_schedule(fused, ("one_f_one_b",)))) for _, kind, _ in row}
    assert actions == {"F", "B"}
