"""How busy every link is over the iteration, as points of a step curve for the trace.

Bytes of the gradient exchanges are spread evenly over their windows, all others over the pipeline's run: the curve
keeps every byte, its shape inside a window is not known to the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from models.plan import Plan
from models.transport import LinkLoad

Window = tuple[float, float]
Point = tuple[float, float]


def link_curves(plan: Plan) -> Iterator[tuple[str, list[Point]]]:
    """Name of each link and direction, with (time in s, share of its usable capacity)."""
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
