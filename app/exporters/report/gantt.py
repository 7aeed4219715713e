"""The pipeline over time: ranks as rows, F, B and W as colours, transfers between buildings as lanes, memory below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.exporters.report.figures import WIDTH, drawing
from app.exporters.report.formatting import fitted, size
from app.exporters.report.markup import Markup, tag
from app.exporters.report.scene import Scene
from app.exporters.report.svg import Scale, boxes, line, rect, steps, time_axis, words
from app.exporters.report.timings import Lane, Timing, lane_labels
from app.exporters.report.windows import Window
from app.words import seconds
from models.schedule import Operation

LABELS_WIDTH = 132.0
RIGHT = WIDTH - 8
TOP = 6.0
LANE_HEIGHT = 12.0
MEMORY_HEIGHT = 54.0
GAP = 8.0
DIGIT_WIDTH = 5.2
KINDS = ("F", "B", "W", "BW")
Shown = TypeVar("Shown")


@dataclass(frozen=True)
class Frame:
    """Where things lie in one window."""

    scale: Scale
    row_height: float
    num_rows: int
    num_lanes: int

    @property
    def lanes_top(self) -> float:
        """Top of the first lane."""
        return TOP + self.num_rows * self.row_height + GAP

    @property
    def memory_top(self) -> float:
        """Top of the memory curve."""
        return self.lanes_top + self.num_lanes * LANE_HEIGHT + GAP

    @property
    def bottom(self) -> float:
        """Where the time axis lies."""
        return self.memory_top + MEMORY_HEIGHT

    def shown(self, spans: Iterable[tuple[float, float, Shown]]) -> Iterator[tuple[float, float, Shown]]:
        """Left end and width of each span (start, end, what it is) of which anything lies in the window, cut there."""
        for start_s, end_s, what in spans:
            if end_s > self.scale.low and start_s < self.scale.high:
                left, right = self.scale(max(start_s, self.scale.low)), self.scale(min(end_s, self.scale.high))
                yield left, right - left, what


def panel(name: str, timing: Timing, window: Window, scene: Scene) -> Markup:
    """One window of the pipeline."""
    num_rows = len(timing.rows)
    row_height = max(3.0, min(15.0, 520.0 / num_rows))
    scale = Scale(window.start_s, window.end_s, LABELS_WIDTH, RIGHT)
    frame = Frame(scale, row_height, num_rows, len(timing.lanes) + 1)
    parts = (
        *time_axis(scale, frame.bottom, TOP),
        *_rows(timing, frame),
        *_lanes(timing.lanes, frame),
        *_last_lane(scene, frame),
        *_memory(timing, frame),
    )
    return drawing(
        name,
        height=frame.bottom + 18,
        title=f"{window.name}: {seconds(window.start_s)} to {seconds(window.end_s)}",
        description=f"Operations of {num_rows} pipeline ranks over time, with transfers between buildings and the "
        f"activation memory of rank {timing.fullest_rank}. The tables below hold the same as numbers.",
        parts=parts,
    )


def _rows(timing: Timing, frame: Frame) -> Iterator[Markup]:
    every = max(1, round(11.0 / frame.row_height + 0.4))
    for rank in range(0, frame.num_rows, every):
        y = TOP + (rank + 0.5) * frame.row_height + 3.5
        label = fitted(f"{rank} {timing.buildings[rank]}".rstrip(), LABELS_WIDTH - 10, 12.0)
        yield words(LABELS_WIDTH - 6, y, label, "label", "end")
    yield boxes(
        ((LABELS_WIDTH, TOP + rank * frame.row_height, RIGHT - LABELS_WIDTH, frame.row_height - 1)
         for rank in range(frame.num_rows)), "idle"
    )  # fmt: skip
    shown = [
        (rank, *part)
        for rank, row in enumerate(timing.rows)
        for part in frame.shown((bar.start_s, bar.end_s, bar.operation) for bar in row)
    ]
    for kind in KINDS:
        of_kind = ((rank, x, width) for rank, x, width, operation in shown if operation.kind == kind)
        # a little space parts neighbours of one colour
        yield boxes(((x, TOP + rank * frame.row_height, width - (0.6 if width > 3 else 0.0), frame.row_height - 1)
                     for rank, x, width in of_kind), f"op-{kind}")  # fmt: skip
    if frame.row_height >= 9:
        yield from _numbers(shown, frame)


def _numbers(shown: Iterable[tuple[int, float, float, Operation]], frame: Frame) -> Iterator[Markup]:
    """Micro-batch numbers where they fit, row by row as one text with a position for each."""
    for rank, x, width, operation in shown:
        text = str(operation.microbatch)
        if width >= DIGIT_WIDTH * len(text) + 1.5:
            y = TOP + (rank + 0.5) * frame.row_height + 2.5
            yield words(x + width / 2, y, text, f"on-{operation.kind}")


def _lanes(lanes: Sequence[Lane], frame: Frame) -> Iterator[Markup]:
    for index, (lane, label) in enumerate(zip(lanes, lane_labels(lanes, 7), strict=True)):
        top = frame.lanes_top + index * LANE_HEIGHT
        yield from _lane(label, top)
        delays = frame.shown((bar.end_s, bar.end_s + bar.latency_s, bar) for bar in lane.bars)
        messages = frame.shown((bar.start_s, bar.end_s, bar) for bar in lane.bars)
        yield boxes(((x, top + 4, width, 2.0) for x, width, _ in delays), "delay")
        yield boxes(((x, top, max(width, 0.7), LANE_HEIGHT - 2) for x, width, _ in messages), "message")


def _lane(label: str, top: float) -> Iterator[Markup]:
    """A lane in which nothing happens."""
    yield words(LABELS_WIDTH - 6, top + 8.5, label, "label", "end")
    yield rect(LABELS_WIDTH, top, RIGHT - LABELS_WIDTH, LANE_HEIGHT - 2, class_="idle")


def _last_lane(scene: Scene, frame: Frame) -> Iterator[Markup]:
    """Gradient exchanges of all stages, one over the other, then the optimizer."""
    top = frame.lanes_top + (frame.num_lanes - 1) * LANE_HEIGHT
    yield from _lane("gradients, update", top)
    total_s, update_s = scene.plan.metrics.iteration_s, scene.plan.time.step_end_s
    endings = [(one.start_s, one.end_s, "gradient") for one in scene.plan.exchanges]
    for x, width, class_ in frame.shown([*endings, (total_s - update_s, total_s, "update")]):
        yield rect(x, top, width, LANE_HEIGHT - 2, class_=class_)


def _memory(timing: Timing, frame: Frame) -> Iterator[Markup]:
    """Activation memory of the fullest rank against its budget."""
    rank = timing.fullest_rank
    budget_bytes = timing.timeline.problem.ranks[rank].activation_budget_bytes
    points = timing.memory_of(rank)
    highest = max([held for _, held in points] + [budget_bytes or 0.0]) or 1.0
    level = Scale(0.0, highest, frame.bottom, frame.memory_top + 4)
    shown = _between(points, frame.scale.low, frame.scale.high)
    placed = [(frame.scale(at_s), level(held)) for at_s, held in shown]
    last_x = frame.scale(min(frame.scale.high, max(timing.end_s, frame.scale.low)))
    yield words(LABELS_WIDTH - 6, frame.memory_top + 14, f"memory, rank {rank}", "label", "end")
    yield words(LABELS_WIDTH - 6, frame.memory_top + 27, f"full height {size(highest)}", "tick", "end")
    if placed:
        curve = steps(placed, last_x)
        yield tag("path", d=f"{curve}V{frame.bottom:.1f}H{placed[0][0]:.1f}z", class_="area")
        yield tag("path", d=curve, class_="curve")
    if budget_bytes is not None:
        yield line(LABELS_WIDTH, level(budget_bytes), RIGHT, level(budget_bytes), "limit")
    yield line(LABELS_WIDTH, frame.bottom, RIGHT, frame.bottom, "axis")


def _between(points: Sequence[tuple[float, float]], low_s: float, high_s: float) -> list[tuple[float, float]]:
    """The changes inside a window, begun with the value at its start."""
    before = [held for at_s, held in points if at_s <= low_s]
    inside = [(at_s, held) for at_s, held in points if low_s < at_s < high_s]
    return [(low_s, before[-1] if before else 0.0), *inside]
