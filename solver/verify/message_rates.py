"""Messages between stages as rates over time between places: what shares the links with what."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from models.schedule import PipelineHop
from solver.verify.network_facts import Boundary
from solver.verify.reading import Reading

Rates = npt.NDArray[np.float64]  # start, end and rate of messages, one row each
Way = tuple[str, str]  # places from and to


def stated_hops(case: Reading) -> Iterator[tuple[Boundary, PipelineHop]]:
    """Every boundary with its stated hop; one without delay where none is stated."""
    stated = {(route, hop.from_stage): hop for route, one in case.timeline_by_route.items() for hop in one.problem.hops}
    for boundary in case.network.boundaries:
        if boundary.route in case.timeline_by_route:
            nothing = PipelineHop(from_stage=boundary.from_stage, to_stage=boundary.from_stage + 1)
            yield boundary, stated.get((boundary.route, boundary.from_stage), nothing)


def message_rates(case: Reading) -> dict[Way, Rates]:
    """Every message between two places by its way, with the rate of all replicas that send it at once."""
    found: defaultdict[Way, list[Rates]] = defaultdict(list)
    for boundary, hop in stated_hops(case):
        ends = boundary.places
        if ends[0] == ends[1] or hop.transfer_s <= 0:
            continue
        at_once = -(-case.route_by_id[boundary.route].num_replicas // hop.num_sharing_replicas)
        rate = at_once * case.network.boundary_bytes(boundary) / hop.transfer_s
        times = case.message_times[boundary.route]
        for kind, stage, way in (("F", boundary.from_stage, ends), ("B", boundary.from_stage + 1, ends[::-1])):
            if (kind, stage) in times:
                found[way].append(np.insert(times[kind, stage], 2, rate, axis=1))
    return {way: np.concatenate(parts) for way, parts in found.items()}


def concatenated(parts: Iterable[Rates]) -> Rates:
    """The messages of several ways."""
    return np.concatenate([np.zeros((0, 3)), *parts])


def peak_rate(messages: Rates) -> tuple[float, float]:
    """Highest summed rate and when; what ends at an instant makes room for what starts at it.

    >>> peak_rate(np.array([[0.0, 2.0, 10.0], [1.0, 3.0, 5.0], [2.0, 4.0, 5.0]]))
    (15.0, 1.0)
    """
    slack = 1e-9 * float(messages[:, 1].max(initial=0.0))
    at_s = np.concatenate([messages[:, 0], messages[:, 1] - slack])
    change = np.concatenate([messages[:, 2], -messages[:, 2]])
    order = np.lexsort((change > 0, at_s))
    rate = np.cumsum(change[order])
    if rate.max(initial=0.0) <= 0.0:
        return 0.0, 0.0
    peak = int(np.argmax(rate))
    return float(rate[peak]), float(at_s[order[peak]])


def bytes_within(messages: Rates, start_s: float, end_s: float) -> float:
    """Bytes that are sent between two instants.

    >>> bytes_within(np.array([[0.0, 2.0, 10.0]]), 1.0, 5.0)
    10.0
    """
    under_way = np.minimum(messages[:, 1], end_s) - np.maximum(messages[:, 0], start_s)
    return float(np.maximum(under_way, 0.0) @ messages[:, 2])
