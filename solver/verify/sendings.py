"""Messages between stages as rates over time between places: what shares the links with what.

Owns the reading of stated transfers into rates. Never judges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.schedule import PipelineHop
from solver.verify.case import Case
from solver.verify.network_facts import Boundary

Rates = npt.NDArray[np.float64]


class Sending(NamedTuple):
    """Rate that a message puts on the way from one place to another while it is under way."""

    start_s: float
    end_s: float
    bytes_per_s: float
    from_place: str
    to_place: str


def stated_hops(case: Case) -> Iterator[tuple[Boundary, PipelineHop]]:
    """Every boundary with its stated hop; one without delay where none is stated."""
    stated = {(route, hop.from_stage): hop for route, one in case.timeline_by_route.items() for hop in one.problem.hops}
    for boundary in case.network.boundaries:
        if boundary.route in case.timeline_by_route:
            nothing = PipelineHop(from_stage=boundary.from_stage, to_stage=boundary.from_stage + 1)
            yield boundary, stated.get((boundary.route, boundary.from_stage), nothing)


def sendings(case: Case) -> list[Sending]:
    """Every message between two places, with the rate of all replicas that send it at once."""
    found: list[Sending] = []
    for boundary, hop in stated_hops(case):
        ends = (boundary.sender.place, boundary.receiver.place)
        if ends[0] == ends[1] or hop.transfer_s <= 0:
            continue
        at_once = -(-case.route_by_id[boundary.route].num_replicas // hop.num_sharing_replicas)
        rate = at_once * case.network.boundary_bytes(boundary) / hop.transfer_s
        times = case.message_times[boundary.route]
        for kind, stage, way in (("F", boundary.from_stage, ends), ("B", boundary.from_stage + 1, ends[::-1])):
            found += [Sending(start, end, rate, *way) for start, end in times[kind, stage]]
    return found


def peak_rate(messages: list[Sending]) -> tuple[float, float]:
    """Highest summed rate and when; what ends at an instant makes room for what starts at it."""
    changes: defaultdict[tuple[float, bool], float] = defaultdict(float)
    slack = 1e-9 * max((one.end_s for one in messages), default=0.0)
    for one in messages:
        changes[one.start_s, True] += one.bytes_per_s
        changes[one.end_s - slack, False] -= one.bytes_per_s
    now, peak, at_s = 0.0, 0.0, 0.0
    for (time, _), change in sorted(changes.items()):
        now += change
        if now > peak:
            peak, at_s = now, time
    return peak, at_s


def rates(messages: Iterable[Sending]) -> Rates:
    """Start, end and rate of messages, one row each."""
    return np.array([one[:3] for one in messages], dtype=np.float64).reshape(-1, 3)


def bytes_within(messages: Rates, start_s: float, end_s: float) -> float:
    """Bytes that are sent between two instants.

    >>> bytes_within(rates([Sending(0.0, 2.0, 10.0, "a", "b")]), 1.0, 5.0)
    10.0
    """
    under_way = np.minimum(messages[:, 1], end_s) - np.maximum(messages[:, 0], start_s)
    return float(np.maximum(under_way, 0.0) @ messages[:, 2])
