"""The pipeline over time: ranks as rows, F, B and W as colours, transfers between buildings as lanes, memory below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.exporters.report.figures import WIDTH, drawing
from app.exporters.report.formatting import fitted, size
from app.exporters.report.markup import Markup, tag
from app.exporters.report.scene import Scene
from app.exporters.report.svg import Scale, boxes, line, rect, steps, time_axis, words
from app.exporters.report.timings import Bar, Lane, Timing, lane_labels
from app.exporters.report.windows import Window
from app.words import seconds

LABELS_WIDTH = 132.0
RIGHT = WIDTH - 8
TOP = 6.0
LANE_HEIGHT = 12.0
MEMORY_HEIGHT = 54.0
GAP = 8.0
DIGIT_WIDTH = 5.2
KINDS = ("F", "B", "W", "BW")


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

    def clipped(self, bar: Bar) -> tuple[float, float]:
        """Left end and width of a bar inside the window."""
        low, high = self.scale(max(bar.start_s, self.scale.low)), self.scale(min(bar.end_s, self.scale.high))
        return low, high - low

    def shows(self, bar: Bar) -> bool:
        """Whether any of a bar lies in the window."""
        return bar.end_s > self.scale.low and bar.start_s < self.scale.high


def panel(name: str, timing: Timing, window: Window, scene: Scene) -> Markup:
    """One window of the pipeline."""
    ends = _endings(scene)
    num_rows = len(timing.rows)
    row_height = max(3.0, min(15.0, 520.0 / num_rows))
    scale = Scale(window.start_s, window.end_s, LABELS_WIDTH, RIGHT)
    frame = Frame(scale, row_height, num_rows, len(timing.lanes) + 1)
    parts = (
        *time_axis(scale, frame.bottom, TOP),
        *_rows(timing, frame),
        *_lanes(timing.lanes, frame),
        *_last_lane(ends, frame),
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
    for kind in KINDS:
        yield boxes(_boxes_of(timing, frame, kind), f"op-{kind}")
    yield from _numbers(timing, frame)


def _visible(timing: Timing, frame: Frame) -> Iterator[tuple[int, Bar]]:
    return ((rank, bar) for rank, row in enumerate(timing.rows) for bar in row if frame.shows(bar))


def _boxes_of(timing: Timing, frame: Frame, kind: str) -> Iterator[tuple[float, float, float, float]]:
    for rank, bar in _visible(timing, frame):
        if bar.operation.kind == kind:
            x, width = frame.clipped(bar)
            space = 0.6 if width > 3 else 0.0  # parts neighbours of one colour
            yield x, TOP + rank * frame.row_height, width - space, frame.row_height - 1


def _numbers(timing: Timing, frame: Frame) -> Iterator[Markup]:
    """Micro-batch numbers where they fit, row by row as one text with a position for each."""
    if frame.row_height < 9:
        return
    for rank, bar in _visible(timing, frame):
        x, width = frame.clipped(bar)
        text = str(bar.operation.microbatch)
        if width >= DIGIT_WIDTH * len(text) + 1.5:
            y = TOP + (rank + 0.5) * frame.row_height + 2.5
            yield words(x + width / 2, y, text, f"on-{bar.operation.kind}")


def _lanes(lanes: Sequence[Lane], frame: Frame) -> Iterator[Markup]:
    for index, (lane, label) in enumerate(zip(lanes, lane_labels(lanes, 7), strict=True)):
        top = frame.lanes_top + index * LANE_HEIGHT
        shown = [bar for bar in lane.bars if frame.shows(Bar(bar.start_s, bar.end_s + bar.latency_s, bar.operation))]
        yield words(LABELS_WIDTH - 6, top + 8.5, label, "label", "end")
        yield rect(LABELS_WIDTH, top, RIGHT - LABELS_WIDTH, LANE_HEIGHT - 2, class_="idle")
        yield boxes(_delays(shown, frame, top + 4), "delay")
        yield boxes(_messages(shown, frame, top), "message")


def _messages(bars: Iterable[Bar], frame: Frame, top: float) -> Iterator[tuple[float, float, float, float]]:
    for bar in bars:
        if frame.shows(bar):
            x, width = frame.clipped(bar)
            yield x, top, max(width, 0.7), LANE_HEIGHT - 2


def _delays(bars: Iterable[Bar], frame: Frame, top: float) -> Iterator[tuple[float, float, float, float]]:
    for bar in bars:
        late = Bar(bar.end_s, bar.end_s + bar.latency_s, bar.operation)
        if frame.shows(late):
            x, width = frame.clipped(late)
            yield x, top, width, 2.0


@dataclass(frozen=True)
class Ending:
    """What happens after the pipeline."""

    start_s: float
    end_s: float
    class_: str


def _endings(scene: Scene) -> list[Ending]:
    total_s, update_s = scene.plan.metrics.iteration_s, scene.plan.time.step_end_s
    gradients = [Ending(one.start_s, one.end_s, "gradient") for one in scene.plan.exchanges]
    return [*gradients, Ending(total_s - update_s, total_s, "update")]


def _last_lane(endings: Sequence[Ending], frame: Frame) -> Iterator[Markup]:
    """Gradient exchanges of all stages, one over the other, then the optimizer."""
    top = frame.lanes_top + (frame.num_lanes - 1) * LANE_HEIGHT
    yield words(LABELS_WIDTH - 6, top + 8.5, "gradients, update", "label", "end")
    yield rect(LABELS_WIDTH, top, RIGHT - LABELS_WIDTH, LANE_HEIGHT - 2, class_="idle")
    for one in endings:
        low, high = max(one.start_s, frame.scale.low), min(one.end_s, frame.scale.high)
        if high > low:
            yield rect(frame.scale(low), top, frame.scale(high) - frame.scale(low), LANE_HEIGHT - 2, class_=one.class_)


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
