"""The timelines of a plan as bars and lanes: routes that run alike are one timing, slowest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from app.exporters.chrome_trace import memory_over_time
from app.exporters.report.formatting import told_apart
from app.exporters.report.scene import Scene
from models.plan import RouteTimeline
from models.schedule import LinkTimeline, Operation


@dataclass(frozen=True)
class Bar:
    """One operation of a rank, or one message of a lane with its delay on the way."""

    start_s: float
    end_s: float
    operation: Operation
    latency_s: float = 0.0


@dataclass(frozen=True)
class Lane:
    """Messages from one building to another."""

    source: str
    target: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Timing:
    """One way to run the pipeline, and the routes that run it."""

    routes: tuple[str, ...]
    timeline: RouteTimeline
    buildings: tuple[str, ...]  # of every rank; empty names where the routes sit in different ones
    lanes: tuple[Lane, ...]

    @cached_property
    def rows(self) -> tuple[tuple[Bar, ...], ...]:
        """Bars of every rank, in order."""
        return tuple(
            tuple(
                Bar(start_s, end_s, Operation.parse(text))
                for text, start_s, end_s in zip(row.operations, row.start_s, row.end_s, strict=True)
            )
            for row in self.timeline.schedule.ranks
        )

    @property
    def num_operations(self) -> int:
        """Operations of all ranks."""
        return sum(len(row.operations) for row in self.timeline.schedule.ranks)

    @cached_property
    def end_s(self) -> float:
        """End of the last operation."""
        return max(row[-1].end_s for row in self.rows)

    @cached_property
    def usual_s(self) -> float:
        """Median time of an operation on the first rank."""
        return median(bar.end_s - bar.start_s for bar in self.rows[0]) or self.end_s

    @cached_property
    def fullest_rank(self) -> int:
        """The rank that comes closest to its activation budget; without budgets the one that holds most."""
        ranks = self.timeline.schedule.ranks
        budgets = [one.activation_budget_bytes for one in self.timeline.problem.ranks]

        def fullness(rank: int) -> tuple[float, float]:
            peak, budget = ranks[rank].peak_memory_bytes, budgets[rank]
            return (peak / budget if budget else 0.0, peak)

        return max(range(len(ranks)), key=fullness)

    def memory_of(self, rank: int) -> list[tuple[float, float]]:
        """Activation memory of a rank after every change."""
        return memory_over_time(self.timeline.schedule.ranks[rank], self.timeline.problem)

    def busy_s(self, rank: int, start_s: float, end_s: float) -> float:
        """Time that a rank works between two moments."""
        return sum(max(0.0, min(bar.end_s, end_s) - max(bar.start_s, start_s)) for bar in self.rows[rank])


def timings(scene: Scene) -> list[Timing]:
    """The different timings of the plan, slowest first; ties keep the order of the plan."""
    groups: dict[object, list[RouteTimeline]] = defaultdict(list)
    for timeline in scene.plan.timelines:
        groups[_likeness(timeline, scene.buildings_of_route[timeline.route])].append(timeline)
    found = [_timing(members, scene) for members in groups.values()]
    return sorted(found, key=lambda one: -one.timeline.schedule.makespan_s)


def _likeness(timeline: RouteTimeline, buildings: tuple[str, ...]) -> object:
    """Equal for routes whose drawings would be equal; where a pipeline stays in one building, which does not matter."""
    schedule = timeline.schedule
    crossing = buildings if len(set(buildings)) > 1 else ()
    return schedule.ranks, tuple((one.activation_budget_bytes,) for one in timeline.problem.ranks), crossing


def _timing(members: Sequence[RouteTimeline], scene: Scene) -> Timing:
    first = members[0]
    buildings = scene.buildings_of_route[first.route]
    elsewhere = any(scene.buildings_of_route[one.route] != buildings for one in members)
    shown = ("",) * len(buildings) if elsewhere else buildings
    return Timing(tuple(one.route for one in members), first, shown, tuple(_lanes(first, buildings)))


def _lanes(timeline: RouteTimeline, buildings: tuple[str, ...]) -> Iterator[Lane]:
    """Messages between different buildings, by pair and direction; gradient exchanges are no such messages."""
    found: dict[tuple[str, str], list[Bar]] = defaultdict(list)
    if len(set(buildings)) > 1:
        for row in timeline.schedule.transfers:
            for pair, bar in _messages(row, timeline, buildings):
                found[pair].append(bar)
    for (source, target), bars in sorted(found.items()):
        yield Lane(source, target, tuple(sorted(bars, key=lambda bar: bar.start_s)))


def _messages(
    row: LinkTimeline, timeline: RouteTimeline, buildings: tuple[str, ...]
) -> Iterator[tuple[tuple[str, str], Bar]]:
    if row.direction == "both":
        return
    placement = timeline.problem.placement
    latency_of = {hop.from_stage: hop.latency_s for hop in timeline.problem.hops}
    for text, start_s, end_s in zip(row.transfers, row.start_s, row.end_s, strict=True):
        operation = Operation.parse(text)
        forward = operation.kind == "F"
        receiver = operation.stage + (1 if forward else -1)
        pair = buildings[placement[operation.stage]], buildings[placement[receiver]]
        if pair[0] != pair[1]:
            latency_s = latency_of.get(operation.stage if forward else receiver, 0.0)
            yield pair, Bar(start_s, end_s, operation, latency_s)


def lane_labels(lanes: Sequence[Lane], limit: int) -> list[str]:
    """From where to where, each end in at most so many characters.

    >>> lane_labels([Lane("building-00", "building-01", ()), Lane("building-01", "building-00", ())], 7)
    ['…ing-00 → …ing-01', '…ing-01 → …ing-00']
    """
    names = told_apart(list(dict.fromkeys(end for lane in lanes for end in (lane.source, lane.target))), limit)
    return [f"{names[lane.source]} → {names[lane.target]}" for lane in lanes]
