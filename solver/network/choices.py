"""The transport of one communicator on one tier: exact enumeration of what its path supports, and why the winner won.

The capacity that a communicator may use is an argument.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from models.transport import Algorithm, Reliability, TransportChoice
from solver.arrays import FloatArray
from solver.network.algorithms import NUM_SLICES, Communicator, StepCost, algorithm_s, algorithms
from solver.network.balancing import balanced_efficiency, ecmp_efficiency
from solver.network.connection import (
    Option,
    OptionColumns,
    Wire,
    connection_rate_bytes_per_s,
    delays_s,
    rates_bytes_per_s,
    step_s,
    steps_s,
)
from solver.network.options import path_options
from solver.network.topology import PathFacts
from solver.network.transfer import windowed_rate_bytes_per_s

# A plainer option (fewer queue pairs, smaller window) is taken when it costs less than this.
_PLAINNESS = 2e-3
_PORTION = 8  # options whose recovery is worked out together, after the one that is best without loss


Way = tuple[Algorithm, int]  # an algorithm with its number of slices


@dataclass(frozen=True)
class TimedOption:
    """An option of the path with an algorithm and a number of slices: seconds of the operation, bytes per second of a
    connection.
    """

    option: Option
    algorithm: Algorithm
    num_slices: int
    time_s: float
    rate_bytes_per_s: float


@lru_cache(maxsize=4096)
def choose_transport(communicator: Communicator, path: PathFacts) -> TransportChoice:
    """The fastest combination on this path, whose narrowest edge its connections share; within 0.2 % the plainest."""
    wire = communicator.wire(path)
    best = fastest_option(communicator, wire)
    return TransportChoice(
        dimension=communicator.dimension,
        collective=communicator.collective,
        tier=communicator.tier,
        num_ranks=communicator.num_ranks,
        message_bytes=communicator.message_bytes,
        algorithm=best.algorithm,
        **vars(best.option),
        expected_s=best.time_s,
        num_slices=best.num_slices,
        effective_bytes_per_s=best.rate_bytes_per_s,
        reason=_reason(communicator, wire, best),
    )


def fastest_option(communicator: Communicator, wire: Wire) -> TimedOption:
    """Least time over all options and algorithms, then least window and queue pairs within 0.2 % of it.

    Options that would be too slow even if nothing was lost are passed over: they cannot change the result.
    """
    columns = path_options(wire.path)
    rates = rates_bytes_per_s(columns, wire)
    ways = _ways(communicator)
    time_s = _times_s(communicator, ways, columns, rates, partial(delays_s, columns, wire))
    if wire.path.loss_probability > 0:
        _add_recovery(communicator, wire, columns, rates, time_s)
    close = np.argwhere((time_s <= time_s.min() * (1 + _PLAINNESS)).T).tolist()
    found = (
        TimedOption(columns.option(row), *ways[way], float(time_s[way, row]), float(rates[row])) for row, way in close
    )
    return min(found, key=_plainness)


def _times_s(
    communicator: Communicator,
    ways: Sequence[Way],
    columns: OptionColumns,
    rates: FloatArray,
    step_s: Callable[[float], FloatArray],
) -> FloatArray:
    """Time of every one of these ways with every option."""
    crossing = StepCost(rates, step_s, columns.in_flight_bytes)
    return np.array([algorithm_s(algorithm, communicator, crossing, slices) for algorithm, slices in ways])


def _add_recovery(
    communicator: Communicator, wire: Wire, columns: OptionColumns, rates: FloatArray, time_s: FloatArray
) -> None:
    """Times with what is lost, as far as they may be the least; all others become infinite."""
    ideal_s, ways, least_s = time_s.copy(), _ways(communicator), float("inf")
    order = np.argsort(ideal_s.min(axis=0), kind="stable")
    time_s[:] = np.inf
    for first, end in pairwise((0, *range(1, len(order), _PORTION), len(order))):
        rows = order[first:end]
        open_ways = np.flatnonzero((ideal_s[:, rows] <= least_s * (1 + 2 * _PLAINNESS)).any(axis=1))
        if not len(open_ways):
            return
        some, at = columns.take(rows), rates[rows]
        found = _times_s(
            communicator, [ways[way] for way in open_ways], some, at, partial(steps_s, some, wire, rates=at)
        )
        time_s[np.ix_(open_ways, rows)] = found
        least_s = min(least_s, float(found.min()))


def _ways(communicator: Communicator) -> list[Way]:
    """Every algorithm and, where it has slices, every number of them."""
    return [
        (algorithm, slices)
        for algorithm in algorithms(communicator)
        for slices in (NUM_SLICES if algorithm == "hierarchical" else (1,))
    ]


def _plainness(candidate: TimedOption) -> tuple[float, int, int, int, float]:
    option = candidate.option
    return (option.in_flight_bytes, option.num_queue_pairs, candidate.num_slices, option.chunk_bytes, candidate.time_s)


def of_option(communicator: Communicator, wire: Wire, option: Option, rate: float) -> Iterator[TimedOption]:
    """One option with every algorithm and, where it has slices, every number of them."""
    crossing = _step_cost(wire, option, rate)
    for algorithm, slices in _ways(communicator):
        yield TimedOption(option, algorithm, slices, algorithm_s(algorithm, communicator, crossing, slices), rate)


def _step_cost(wire: Wire, option: Option, rate: float) -> StepCost[float]:
    return StepCost(rate, lambda size: step_s(option, wire, size, rate), option.in_flight_bytes)


def _reason(communicator: Communicator, wire: Wire, best: TimedOption) -> str:
    parts = [
        _algorithm_reason(communicator, wire, best),
        _balancing_reason(wire, best.option),
        _window_reason(wire, best),
        _recovery_reason(communicator, wire, best),
    ]
    return " ".join(part for part in parts if part)[:600]


def _algorithm_reason(communicator: Communicator, wire: Wire, best: TimedOption) -> str:
    others: dict[Algorithm, float] = {}
    for one in of_option(communicator, wire, best.option, best.rate_bytes_per_s):
        if one.algorithm != best.algorithm:
            others[one.algorithm] = min(one.time_s, others.get(one.algorithm, float("inf")))
    slices = f" in {best.num_slices} slices" if best.num_slices > 1 else ""
    if not others:
        return f"{best.algorithm}: {best.time_s * 1e3:.3g} ms, the only algorithm here."
    name = min(others, key=lambda one: others[one])
    return f"{best.algorithm}{slices}: {best.time_s * 1e3:.3g} ms against {others[name] * 1e3:.3g} ms for {name}."


def _balancing_reason(wire: Wire, option: Option) -> str:
    planes, flows = wire.path.planes, wire.num_connections
    if planes == 1:
        return ""
    plain = ecmp_efficiency(flows, planes)
    if option.load_balancing == "ecmp":
        return f"ecmp: {flows} flows on {planes} planes carry {plain:.2f} of it; spreading them gains nothing here."
    share = balanced_efficiency(
        option.load_balancing, num_connections=flows, queue_pairs=option.num_queue_pairs, num_planes=planes
    )
    return (
        f"{option.load_balancing}: {flows} flows on {planes} planes would collide to {plain:.2f} of the rate, "
        f"this gives {share:.2f}."
    )


def _window_reason(wire: Wire, best: TimedOption) -> str:
    path, option = wire.path, best.option
    need = best.rate_bytes_per_s * path.round_trip_s  # bytes in flight that fill the path
    limited = windowed_rate_bytes_per_s(float("inf"), option.in_flight_bytes, path.round_trip_s)
    verb = "cover" if option.in_flight_bytes >= need else f"limit the rate to {limited / 1e9:.3g} GB/s below"
    return (
        f"{option.num_queue_pairs} QPs x {option.num_outstanding} x {option.chunk_bytes / 2**20:.3g} MiB {verb} "
        f"the {need / 1e6:.3g} MB of {path.round_trip_s * 1e3:.3g} ms round trip."
    )


def _recovery_reason(communicator: Communicator, wire: Wire, best: TimedOption) -> str:
    if wire.path.loss_probability == 0:
        return ""
    listed, method = path_options(wire.path).options, best.option.load_balancing
    schemes = {one.reliability for one in listed if one.load_balancing == method}
    times = {scheme: _time_under(communicator, wire, best, scheme) for scheme in sorted(schemes)}
    chosen = best.option.reliability
    others = ", ".join(f"{name} {time * 1e3:.3g} ms" for name, time in times.items() if name != chosen)
    versus = f" against {others}" if others else ", the only scheme these receivers support"
    return f"Loss {wire.path.loss_probability:.1g}: {chosen}{versus}."


def _time_under(communicator: Communicator, wire: Wire, best: TimedOption, scheme: Reliability) -> float:
    """Time of the chosen algorithm and window with another loss recovery."""
    option = replace(best.option, reliability=scheme)
    crossing = _step_cost(wire, option, connection_rate_bytes_per_s(option, wire))
    return algorithm_s(best.algorithm, communicator, crossing, best.num_slices)
