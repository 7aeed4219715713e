"""One connection on one path: its rate and the delay of a step, by windows, load balancing, headers and recovery.

How queue pairs, windows, balancing and recovery act on a connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from models.cluster import LoadBalancing
from models.transport import Connection, Reliability, TransportChoice
from solver.network import reliability
from solver.network.balancing import balanced_efficiency
from solver.network.technology import TECHNOLOGIES, payload_fraction
from solver.network.topology import PathFacts
from solver.network.transfer import mathis_rate_bytes_per_s, windowed_rate_bytes_per_s

QUEUE_PAIR_S = 2e-7  # posting a message on one more queue pair
ERASURE_DATA, ERASURE_PARITY = 32, 8


@dataclass(frozen=True)
class Option:
    """One combination of what the path's technology supports."""

    load_balancing: LoadBalancing
    reliability: Reliability
    num_queue_pairs: int
    chunk_bytes: int
    num_outstanding: int

    @property
    def in_flight_bytes(self) -> float:
        """Window of one connection."""
        return float(self.num_queue_pairs * self.chunk_bytes * self.num_outstanding)


def option_of(stated: Connection | TransportChoice) -> Option:
    """The option that a plan states."""
    return Option(
        load_balancing=stated.load_balancing,
        reliability=stated.reliability,
        num_queue_pairs=stated.num_queue_pairs,
        chunk_bytes=int(stated.chunk_bytes),
        num_outstanding=stated.num_outstanding,
    )


@dataclass(frozen=True)
class Wire:
    """A path as one connection sees it: `num_connections` of them are busy at the same time."""

    path: PathFacts
    member_bytes_per_s: float
    num_connections: int
    shared_bytes_per_s: float  # capacity left for all these connections together


def connection_rate_bytes_per_s(option: Option, wire: Wire) -> float:
    """Payload rate of one of the busy connections: min(card, fair share after collisions, queue pairs times
    what the path allows one flow, window / RTT), less headers.

    TCP streams are further bound by Mathis' formula, codes by what they add. What is resent costs time, not rate:
    `step_s` has it.
    """
    path = wire.path
    spread = balanced_efficiency(
        option.load_balancing,
        num_connections=wire.num_connections,
        queue_pairs=option.num_queue_pairs,
        num_planes=path.planes,
    )
    rate = min(wire.member_bytes_per_s, wire.shared_bytes_per_s * spread / max(1, wire.num_connections))
    rate = min(rate, option.num_queue_pairs * path.flow_bytes_per_s)
    rate = windowed_rate_bytes_per_s(rate, option.in_flight_bytes, path.round_trip_s)
    rate *= payload_fraction(path.technology, path.mtu_bytes)
    return rate * _recovery_share(option, path, rate)


def _recovery_share(option: Option, path: PathFacts, rate: float) -> float:
    """Share of the rate that carries new payload under the scheme."""
    if option.reliability == "erasure_code":
        return ERASURE_DATA / (ERASURE_DATA + ERASURE_PARITY)
    if option.reliability == "tcp":
        bound = option.num_queue_pairs * mathis_rate_bytes_per_s(
            path.mtu_bytes, path.round_trip_s, path.loss_probability
        )
        return min(1.0, bound / rate)
    return 1.0 - path.loss_probability


def step_s(option: Option, wire: Wire, message_bytes: float, rate: float | None = None) -> float:
    """Delay of one dependent step beyond its bytes: path, software, posting, and waiting for what was lost.

    `rate` is the connection's, given where it is known already.
    """
    path = wire.path
    used_pairs = min(option.num_queue_pairs, max(1, int(message_bytes // option.chunk_bytes)))
    delay = path.latency_s + TECHNOLOGIES[path.technology].step_s + (used_pairs - 1) * QUEUE_PAIR_S
    if path.loss_probability == 0 or option.reliability == "tcp":
        return delay
    rate = connection_rate_bytes_per_s(option, wire) if rate is None else rate
    return delay + recovery_wait_s(option.reliability, wire, message_bytes, used_pairs, rate)


def recovery_wait_s(scheme: Reliability, wire: Wire, message_bytes: float, used_pairs: int, rate: float) -> float:
    """Expected time that the slowest of the parallel messages waits for resends.

    Under go-back-N each queue pair resends its own window, so a message is as many shares as it uses pairs; how long
    that takes does not depend on the rate.
    """
    path, connections = wire.path, max(1, wire.num_connections)
    line = RecoveryPath(path.round_trip_s, path.loss_probability, path.mtu_bytes)
    if scheme == "go_back_n":
        return _go_back_n_wait_s(Share(message_bytes / used_pairs, used_pairs * connections), line)
    return _chunk_wait_s(scheme, Share(message_bytes, connections), rate, line)


class RecoveryPath(NamedTuple):
    """What recovery depends on of a path."""

    round_trip_s: float
    loss_probability: float
    mtu_bytes: int

    def at(self, rate: float, loss_probability: float) -> reliability.Path:
        """The line at a rate; with another loss, none for instance."""
        return reliability.Path(rate, self.round_trip_s, loss_probability, self.mtu_bytes, self.mtu_bytes)


class Share(NamedTuple):
    """Bytes that recover as one, and how many such travel at the same time."""

    size_bytes: float
    num_parallel: int


@lru_cache(maxsize=65536)
def _go_back_n_wait_s(share: Share, line: RecoveryPath) -> float:
    lossy = line.at(1.0, line.loss_probability)
    return reliability.go_back_n_wait_s(share.size_bytes, lossy, num_parallel=share.num_parallel)


@lru_cache(maxsize=65536)
def _chunk_wait_s(scheme: Reliability, share: Share, rate: float, line: RecoveryPath) -> float:
    """The same where a lost chunk alone is resent, or decoded."""
    message_bytes, num_parallel = share
    lossy, plain = line.at(rate, line.loss_probability), line.at(rate, 0.0)
    if scheme == "erasure_code":
        with_loss = reliability.erasure_code_s(message_bytes, lossy, num_parallel=num_parallel)
        return with_loss - reliability.erasure_code_s(message_bytes, plain)
    timeout = reliability.NACK_ROUND_TRIPS if scheme == "selective_repeat_nack" else reliability.TIMER_ROUND_TRIPS
    with_loss = reliability.selective_repeat_s(
        message_bytes, lossy, timeout_round_trips=timeout, num_parallel=num_parallel
    )
    return with_loss - reliability.selective_repeat_s(message_bytes, plain)
