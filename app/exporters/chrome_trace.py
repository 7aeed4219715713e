"""A plan's timelines as a Chrome trace, which Perfetto and chrome://tracing open.

Process = building, thread = pipeline rank of a route; transfers and gradient exchanges have tracks of their own,
because slices of one track must nest; activation memory and the load of every link are counters. Times are in
microseconds. Format: "Trace Event Format" of the Chromium project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from app.exporters.hosts import buildings_of_places
from app.exporters.target import Target
from models.plan import Plan, RouteTimeline
from models.request import PlanRequest
from models.schedule import Operation, PipelineProblem, RankTimeline
from models.transport import LinkLoad

TARGET = Target("Perfetto and chrome://tracing", "Trace Event Format, JSON object form (any version)")
Event = dict[str, Any]
Window = tuple[float, float]
Point = tuple[float, float]
COLOURS = {"F": "thread_state_running", "B": "thread_state_iowait", "W": "good", "BW": "thread_state_iowait"}
US_PER_S = 1e6


def chrome_trace(plan: Plan, request: PlanRequest | None = None) -> str:
    """The whole plan as one trace document."""
    tracks = _Tracks()
    events: list[Event] = []
    building_of = buildings_of_places(request)
    places = {route.id: route.places for route in plan.placement.routes}
    for timeline in plan.timelines:
        buildings = [building_of.get(place, place) for place in places[timeline.route]]
        events.extend(_compute(timeline, buildings, tracks))
        events.extend(_transfers(timeline, tracks))
    events.extend(_exchanges(plan, tracks))
    events.extend(_links(plan, tracks))
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"for": f"{TARGET.tool}, {TARGET.versions}", "not expressed": list(losses(plan, request))},
        "traceEvents": [*tracks.names(), *events],
    }
    return json.dumps(document, separators=(",", ":"))


class _Tracks:
    """Numbers for processes and threads, given in the order of first use."""

    def __init__(self) -> None:
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[str, str], int] = {}

    def of(self, process: str, thread: str) -> dict[str, int]:
        """The pid and tid fields of an event."""
        pid = self.process(process)
        tid = self._threads.setdefault((process, thread), len(self._threads) + 1)
        return {"pid": pid, "tid": tid}

    def process(self, process: str) -> int:
        """The pid of a process that needs no thread: counters have tracks of their own."""
        return self._processes.setdefault(process, len(self._processes) + 1)

    def names(self) -> Iterator[Event]:
        """Metadata events that name every process and thread."""
        for process, pid in self._processes.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process}}
        for (process, thread), tid in self._threads.items():
            pid = self._processes[process]
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}}


def _slice(name: str, start_s: float, end_s: float, track: dict[str, int], **args: object) -> Event:
    return {
        "ph": "X",
        "name": name,
        "ts": round(start_s * US_PER_S, 3),
        "dur": round((end_s - start_s) * US_PER_S, 3),
        **track,
        "args": args,
    }


def _counter(name: str, at_s: float, pid: int, args: dict[str, float]) -> Event:
    return {"ph": "C", "name": name, "ts": round(at_s * US_PER_S, 3), "pid": pid, "args": args}


def _compute(timeline: RouteTimeline, buildings: list[str], tracks: _Tracks) -> Iterator[Event]:
    for rank, row in enumerate(timeline.schedule.ranks):
        track = tracks.of(f"building {buildings[rank]}", f"{timeline.route} rank {rank}")
        for text, start_s, end_s in zip(row.operations, row.start_s, row.end_s, strict=True):
            operation = Operation.parse(text)
            event = _slice(text, start_s, end_s, track, stage=operation.stage, microbatch=operation.microbatch)
            yield {**event, "cat": operation.kind, "cname": COLOURS[operation.kind]}
        for at_s, held_bytes in memory_over_time(row, timeline.problem):
            name = f"activation memory {timeline.route} rank {rank}"
            yield _counter(name, at_s, track["pid"], {"bytes": round(held_bytes)})


def memory_over_time(row: RankTimeline, problem: PipelineProblem) -> list[tuple[float, float]]:
    """Activation memory of a rank after every change: held from F to the input gradient, then its context to W."""
    changes: list[tuple[float, float]] = []
    for text, start_s, end_s in zip(row.operations, row.start_s, row.end_s, strict=True):
        operation = Operation.parse(text)
        stage = problem.stages[operation.stage]
        held, context = stage.activation_bytes, stage.weight_grad_context_bytes
        change_bytes = {"F": held, "B": context - held, "BW": -held, "W": -context}[operation.kind]
        changes.append((start_s if operation.kind == "F" else end_s, change_bytes))
    held_bytes = 0.0
    points: dict[float, float] = {}
    for at_s, change_bytes in sorted(changes):
        held_bytes += change_bytes
        points[at_s] = held_bytes
    return list(points.items())


def _transfers(timeline: RouteTimeline, tracks: _Tracks) -> Iterator[Event]:
    for row in timeline.schedule.transfers:
        track = tracks.of("transfers", f"{timeline.route} {row.link} {row.direction}")
        for text, start_s, end_s in zip(row.transfers, row.start_s, row.end_s, strict=True):
            yield {**_slice(text, start_s, end_s, track, link=row.link), "cat": "transfer"}


def _exchanges(plan: Plan, tracks: _Tracks) -> Iterator[Event]:
    for exchange in plan.exchanges:
        track = tracks.of("gradient exchange", f"stage {exchange.stage}")
        args = {"private_s": exchange.private_s, "shared_s": exchange.shared_s}
        event = _slice(f"stage {exchange.stage} exchange", exchange.start_s, exchange.end_s, track, **args)
        yield {**event, "cat": "exchange"}


def _links(plan: Plan, tracks: _Tracks) -> Iterator[Event]:
    for name, points in link_curves(plan):
        pid = tracks.process("links")
        for at_s, share in points:
            yield _counter(f"load {name}", at_s, pid, {"share of usable capacity": share})


def losses(plan: Plan, _request: PlanRequest | None = None) -> Iterator[str]:
    """What a trace does not carry."""
    yield "replicas: one replica of every route is drawn, the others of the route run the same"
    if plan.link_loads:
        yield "the course of a link's load inside a window: its bytes are spread evenly"
    yield "transport choices, hosts and the proof: see the plan"


def link_curves(plan: Plan) -> Iterator[tuple[str, list[Point]]]:
    """Name of each link and direction, with (time in s, share of its usable capacity).

    Bytes of the gradient exchanges are spread evenly over their windows, all others over the pipeline's run: the curve
    keeps every byte, its shape inside a window is not known to the plan.
    """
    exchanges = [(one.start_s, one.end_s) for one in plan.exchanges if one.shared_s > 0 and one.end_s > one.start_s]
    run = [(0.0, max(line.end_s for line in plan.timelines))]
    for load in plan.link_loads:
        way = "reverse" if load.reverse else "forward"
        yield f"{load.link} {way}", curve(load, exchanges or run, run)


def curve(load: LinkLoad, exchanges: list[Window], run: list[Window]) -> list[Point]:
    """The step curve of one direction; it ends at 0.

    >>> load = LinkLoad(link="l", reverse=False, usable_bytes_per_s=10.0, mean_utilisation=0.5, peak_utilisation=1.0,
    ...                 flows=({"cause": "pp", "bytes_per_iteration": 20}, {"cause": "dp", "bytes_per_iteration": 5}))
    >>> curve(load, [(3.0, 5.0)], [(0.0, 4.0)])
    [(0.0, 0.5), (3.0, 0.75), (4.0, 0.25), (5.0, 0.0)]
    """
    steps: dict[float, float] = {}
    for flow in load.flows:
        windows = exchanges if flow.cause == "dp" else run
        busy_s = sum(end - start for start, end in windows)
        if busy_s <= 0 or load.usable_bytes_per_s <= 0:
            continue
        share = flow.bytes_per_iteration / busy_s / load.usable_bytes_per_s
        for start, end in windows:
            steps[start] = steps.get(start, 0.0) + share
            steps[end] = steps.get(end, 0.0) - share
    times = sorted(steps)
    values = [max(round(value, 9), 0.0) for value in accumulate(steps[at] for at in times)]
    return list(zip(times, values, strict=True))
