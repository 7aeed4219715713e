"""The transport of one communicator on one tier: exact enumeration of what its path supports, and why the winner won.

Owns the choice and its reason. Never routes: the capacity that a communicator may use is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from models.transport import Algorithm, Reliability, TransportChoice
from solver.network import fabrics
from solver.network.balancing import balanced_efficiency, ecmp_efficiency
from solver.network.collectives import bus_factor
from solver.network.topology import PathFacts
from solver.network.transfer import bandwidth_delay_product_bytes, windowed_rate_bytes_per_s
from solver.transport.algorithms import NUM_SLICES, Communicator, Crossing, algorithm_s, algorithms, least_wire_s
from solver.transport.options import CHUNK_BYTES, Option, Wire, connection_rate_bytes_per_s, options, step_s

# A plainer option (fewer queue pairs, smaller window) is taken when it costs less than this.
_PLAINNESS = 2e-3
_MOST_PER_OPTION = 16  # candidates of one option: algorithms and slices


@dataclass(frozen=True)
class Candidate:
    """One point of the enumeration."""

    option: Option
    algorithm: Algorithm
    num_slices: int
    time_s: float
    rate_bytes_per_s: float


@lru_cache(maxsize=4096)
def choose_transport(
    communicator: Communicator, path: PathFacts, *, shared_bytes_per_s: float | None = None
) -> TransportChoice:
    """The fastest combination on this path; among those within 0.2 % the plainest.

    `shared_bytes_per_s` is the capacity for all its connections together, by default the path's narrowest edge.
    """
    shared = path.capacity_bytes_per_s if shared_bytes_per_s is None else shared_bytes_per_s
    wire = Wire(path, communicator.member_bytes_per_s, communicator.num_connections, shared)
    best = best_candidate(communicator, wire)
    return TransportChoice(
        dimension=communicator.dimension,
        collective=communicator.collective,
        tier=communicator.tier,
        num_ranks=communicator.num_ranks,
        message_bytes=communicator.message_bytes,
        algorithm=best.algorithm,
        chunk_bytes=best.option.chunk_bytes,
        num_queue_pairs=best.option.num_queue_pairs,
        num_outstanding=best.option.num_outstanding,
        load_balancing=best.option.load_balancing,
        reliability=best.option.reliability,
        expected_s=best.time_s,
        effective_bytes_per_s=best.rate_bytes_per_s,
        reason=_reason(communicator, wire, best),
    )


def best_candidate(communicator: Communicator, wire: Wire) -> Candidate:
    """Least time over all options and algorithms, then least window and queue pairs within 0.2 % of it.

    Options whose bytes alone take longer than the best so far, and windows that only add room to a connection that is
    full already, are passed over: neither can change the result.
    """
    found: list[Candidate] = []
    least_s = float("inf")
    rated = [(connection_rate_bytes_per_s(option, wire), option) for option in options(wire.path)]
    for rate, option in sorted(_without_idle_room(communicator, rated), key=lambda one: -one[0]):
        if least_wire_s(communicator, rate) <= least_s * (1 + _PLAINNESS):
            found.extend(_of_option(communicator, wire, option, rate))
            least_s = min(least_s, *(one.time_s for one in found[-_MOST_PER_OPTION:]))
    close = [one for one in found if one.time_s <= least_s * (1 + _PLAINNESS)]
    return min(close, key=_plainness)


def _without_idle_room(
    communicator: Communicator, rated: Sequence[tuple[float, Option]]
) -> Iterator[tuple[float, Option]]:
    """Windows rise within each method, scheme and number of pairs; keep them until rate and slices gain nothing."""
    whole_step = communicator.message_bytes / communicator.num_ranks
    before: tuple[float, Option] | None = None
    for rate, option in rated:
        full = before is not None and _same_but_window(before[1], option) and rate <= before[0] * (1 + 1e-12)
        if full and before is not None and before[1].in_flight_bytes >= whole_step:
            continue
        before = (rate, option)
        yield rate, option


def _same_but_window(one: Option, other: Option) -> bool:
    return (one.load_balancing, one.reliability, one.num_queue_pairs) == (
        other.load_balancing,
        other.reliability,
        other.num_queue_pairs,
    )


def _plainness(candidate: Candidate) -> tuple[float, int, int, int, float]:
    option = candidate.option
    return (option.in_flight_bytes, option.num_queue_pairs, candidate.num_slices, option.chunk_bytes, candidate.time_s)


def candidates(communicator: Communicator, wire: Wire) -> Iterator[Candidate]:
    """Every option with every algorithm and, where it has slices, every number of them."""
    for option in options(wire.path):
        yield from _of_option(communicator, wire, option, connection_rate_bytes_per_s(option, wire))


def _of_option(communicator: Communicator, wire: Wire, option: Option, rate: float) -> Iterator[Candidate]:
    crossing = Crossing(rate, lambda size: step_s(option, wire, size, rate), option.in_flight_bytes)
    for algorithm in algorithms(communicator):
        for slices in NUM_SLICES if algorithm == "hierarchical" else (1,):
            yield Candidate(option, algorithm, slices, algorithm_s(algorithm, communicator, crossing, slices), rate)


def _step_of(option: Option, wire: Wire) -> Callable[[float], float]:
    return lambda message_bytes: step_s(option, wire, message_bytes)


def choose_scale_up(
    communicator: Communicator, *, scale_up_bytes_per_s: float, full_mesh: bool = False
) -> TransportChoice:
    """The transport inside a scale-up domain, from the measured curve of its generation; the fabric has no options."""
    profile = fabrics.scale_up_profile(scale_up_bytes_per_s, full_mesh=full_mesh)
    size, ranks = communicator.message_bytes, communicator.num_ranks
    seconds = profile.collective_s(communicator.collective, size, ranks, line_rate=scale_up_bytes_per_s)
    factor = bus_factor(communicator.collective, ranks) if ranks > 1 else 0.0
    rate = factor * size / seconds if seconds > 0 else scale_up_bytes_per_s
    algorithm: Algorithm = "ring" if communicator.collective not in ("send_recv", "all_to_all") else "direct"
    return TransportChoice(
        dimension=communicator.dimension,
        collective=communicator.collective,
        tier="scale_up",
        num_ranks=ranks,
        message_bytes=size,
        algorithm=algorithm,
        chunk_bytes=min(CHUNK_BYTES),
        num_queue_pairs=1,
        num_outstanding=1,
        load_balancing="ecmp",
        reliability="go_back_n",
        expected_s=seconds,
        effective_bytes_per_s=rate,
        reason=f"Scale-up domain: measured curve of {profile.name} gives {rate / 1e9:.0f} GB/s of bus bandwidth at "
        f"{size / 1e6:.3g} MB; there is no route, hash or loss to choose for.",
    )


def _reason(communicator: Communicator, wire: Wire, best: Candidate) -> str:
    parts = [
        _algorithm_reason(communicator, wire, best),
        _balancing_reason(wire, best.option),
        _window_reason(wire, best),
        _recovery_reason(communicator, wire, best),
    ]
    return " ".join(part for part in parts if part)[:600]


def _algorithm_reason(communicator: Communicator, wire: Wire, best: Candidate) -> str:
    crossing = Crossing(best.rate_bytes_per_s, _step_of(best.option, wire), best.option.in_flight_bytes)
    others = {
        name: min(algorithm_s(name, communicator, crossing, slices) for slices in NUM_SLICES)
        for name in algorithms(communicator)
        if name != best.algorithm
    }
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
        option.load_balancing,
        num_connections=flows,
        queue_pairs=option.num_queue_pairs,
        num_planes=planes,
    )
    return (
        f"{option.load_balancing}: {flows} flows on {planes} planes would collide to {plain:.2f} of the rate, "
        f"this gives {share:.2f}."
    )


def _window_reason(wire: Wire, best: Candidate) -> str:
    path, option = wire.path, best.option
    need = bandwidth_delay_product_bytes(best.rate_bytes_per_s, path.round_trip_s)
    limited = windowed_rate_bytes_per_s(float("inf"), option.in_flight_bytes, path.round_trip_s)
    verb = "cover" if option.in_flight_bytes >= need else f"limit the rate to {limited / 1e9:.3g} GB/s below"
    return (
        f"{option.num_queue_pairs} QPs x {option.num_outstanding} x {option.chunk_bytes / 2**20:.3g} MiB {verb} "
        f"the {need / 1e6:.3g} MB of {path.round_trip_s * 1e3:.3g} ms round trip."
    )


def _recovery_reason(communicator: Communicator, wire: Wire, best: Candidate) -> str:
    if wire.path.loss_probability == 0:
        return ""
    schemes = {
        option.reliability for option in options(wire.path) if option.load_balancing == best.option.load_balancing
    }
    times = {scheme: _time_under(communicator, wire, best, scheme) for scheme in sorted(schemes)}
    chosen = best.option.reliability
    others = ", ".join(f"{name} {time * 1e3:.3g} ms" for name, time in times.items() if name != chosen)
    versus = f" against {others}" if others else ", the only scheme these receivers support"
    return f"Loss {wire.path.loss_probability:.1g}: {chosen}{versus}."


def _time_under(communicator: Communicator, wire: Wire, best: Candidate, scheme: Reliability) -> float:
    """Time of the chosen algorithm and window with another loss recovery."""
    option = replace(best.option, reliability=scheme)
    rate = connection_rate_bytes_per_s(option, wire)
    same = (best.algorithm, best.num_slices)
    return next(
        one.time_s for one in _of_option(communicator, wire, option, rate) if (one.algorithm, one.num_slices) == same
    )
