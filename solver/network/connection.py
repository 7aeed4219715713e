"""One connection on one path: its rate and the delay of a step, by windows, load balancing, headers and recovery.

Written for columns of options, all of one path at once; one option alone is a column of length one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from models.cluster import LoadBalancing
from models.transport import Connection, Reliability, TransportChoice
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.network import reliability
from solver.network.balancing import balanced_efficiency
from solver.network.technology import TECHNOLOGIES, payload_fraction
from solver.network.topology import PathFacts
from solver.network.transfer import mathis_rate_bytes_per_s

QUEUE_PAIR_S = 2e-7  # posting a message on one more queue pair
ERASURE_DATA, ERASURE_PARITY = reliability.DATA_CHUNKS, reliability.PARITY_CHUNKS


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
    """A path as one connection sees it: `num_connections` share its narrowest edge as equals.

    `num_parallel` send at the same time, of which the slowest is waited for: more where others take a part of the
    path alone. None: as many as share it.
    """

    path: PathFacts
    member_bytes_per_s: float
    num_connections: int
    shared_bytes_per_s: float  # capacity left for all these connections together
    num_parallel: int | None = None


@dataclass(frozen=True, eq=False)
class OptionColumns:
    """Options as columns: those of `options` at `rows`.

    Options of one `spread` share load balancing and queue pairs.
    """

    options: tuple[Option, ...]
    rows: IntArray
    num_queue_pairs: IntArray
    chunk_bytes: IntArray
    in_flight_bytes: FloatArray
    spread: IntArray
    spreads: tuple[tuple[LoadBalancing, int], ...]
    codes: BoolArray

    def option(self, row: int) -> Option:
        """The option of this row."""
        return self.options[int(self.rows[row])]

    def take(self, rows: IntArray) -> OptionColumns:
        """The columns of these rows."""
        columns = ("rows", "num_queue_pairs", "chunk_bytes", "in_flight_bytes", "spread", "codes")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


def option_columns(options: tuple[Option, ...]) -> OptionColumns:
    """These options as columns."""
    spreads = {(one.load_balancing, one.num_queue_pairs): None for one in options}
    number = {key: index for index, key in enumerate(spreads)}
    return OptionColumns(
        options=options,
        rows=np.arange(len(options)),
        num_queue_pairs=np.array([one.num_queue_pairs for one in options]),
        chunk_bytes=np.array([one.chunk_bytes for one in options]),
        in_flight_bytes=np.array([one.in_flight_bytes for one in options]),
        spread=np.array([number[one.load_balancing, one.num_queue_pairs] for one in options]),
        spreads=tuple(spreads),
        codes=np.array([one.reliability == "erasure_code" for one in options]),
    )


@lru_cache(maxsize=1024)
def _alone(option: Option) -> OptionColumns:
    if option.chunk_bytes < 1:
        raise ValueError("a chunk of less than a byte")  # of a forged plan; columns would divide by it unnoticed
    return option_columns((option,))


def connection_rate_bytes_per_s(option: Option, wire: Wire) -> float:
    """Payload rate of one of the busy connections, see `rates_bytes_per_s`."""
    return float(rates_bytes_per_s(_alone(option), wire)[0])


def rates_bytes_per_s(columns: OptionColumns, wire: Wire) -> FloatArray:
    """Payload rate of one of the busy connections under every option: min(card, fair share after collisions, queue
    pairs times what the path allows one flow, window / RTT), less headers.

    TCP streams are further bound by Mathis' formula, codes by what they add. What is resent costs time, not rate:
    `steps_s` has it.
    """
    path = wire.path
    spreads = np.array(
        [
            balanced_efficiency(method, num_connections=wire.num_connections, queue_pairs=pairs, num_planes=path.planes)
            for method, pairs in columns.spreads
        ]
    )
    fair = wire.shared_bytes_per_s * spreads[columns.spread] / max(1, wire.num_connections)
    rates: FloatArray = np.minimum(wire.member_bytes_per_s, fair)
    rates = np.minimum(rates, columns.num_queue_pairs * path.flow_bytes_per_s)
    if path.round_trip_s > 0:
        rates = np.minimum(rates, columns.in_flight_bytes / path.round_trip_s)
    rates = rates * payload_fraction(path.technology, path.mtu_bytes)
    if path.technology == "tcp":
        stream = mathis_rate_bytes_per_s(path.mtu_bytes, path.round_trip_s, path.loss_probability)
        return np.asarray(rates * np.minimum(1.0, columns.num_queue_pairs * stream / rates))
    return np.asarray(rates * _first_sent(columns, path))


def _first_sent(columns: OptionColumns, path: PathFacts) -> FloatArray:
    """Part of the payload on the wire that is neither a code nor sent again."""
    return np.where(columns.codes, ERASURE_DATA / (ERASURE_DATA + ERASURE_PARITY), 1.0 - path.loss_probability)


def wire_efficiency(option: Option, wire: Wire) -> float:
    """Payload over the capacity of links that so many connections fill: after collisions, headers, codes and resends.

    Windows, cards and limits of a flow slow a connection without filling the links, so they are not in it.
    """
    columns, path = _alone(option), wire.path
    balanced = balanced_efficiency(
        option.load_balancing,
        num_connections=wire.num_connections,
        queue_pairs=option.num_queue_pairs,
        num_planes=path.planes,
    )
    return float((balanced * payload_fraction(path.technology, path.mtu_bytes) * _first_sent(columns, path))[0])


def step_s(option: Option, wire: Wire, message_bytes: float, rate: float | None = None) -> float:
    """Delay of one dependent step beyond its bytes, see `steps_s`; `rate` is the connection's, where it is known."""
    columns = _alone(option)
    rates = rates_bytes_per_s(columns, wire) if rate is None else np.array([rate])
    return float(steps_s(columns, wire, message_bytes, rates)[0])


def delays_s(columns: OptionColumns, wire: Wire, message_bytes: float) -> FloatArray:
    """`steps_s` as if nothing was lost: path, software, and posting on every queue pair that the message uses."""
    used = _used_pairs(columns, message_bytes)
    technology = TECHNOLOGIES[wire.path.technology]
    return np.asarray(wire.path.latency_s + technology.step_s + (used - 1) * QUEUE_PAIR_S)


def _used_pairs(columns: OptionColumns, message_bytes: float) -> FloatArray:
    return np.asarray(np.minimum(columns.num_queue_pairs, np.maximum(1, message_bytes // columns.chunk_bytes)))


def steps_s(columns: OptionColumns, wire: Wire, message_bytes: float, rates: FloatArray) -> FloatArray:
    """Delay of one dependent step beyond its bytes under every option, at these rates: `delays_s`, and waiting for
    what was lost.
    """
    delay = delays_s(columns, wire, message_bytes)
    if wire.path.loss_probability == 0 or wire.path.technology == "tcp":
        return delay
    used = _used_pairs(columns, message_bytes).astype(np.int64)
    each = zip(columns.rows.tolist(), used.tolist(), rates.tolist(), strict=True)
    waits = [
        recovery_wait_s(columns.options[row].reliability, wire, message_bytes, pairs, rate) for row, pairs, rate in each
    ]
    return np.asarray(delay + np.array(waits))


def recovery_wait_s(scheme: Reliability, wire: Wire, message_bytes: float, used_pairs: int, rate: float) -> float:
    """Expected time that the slowest of the parallel messages waits for resends.

    Under go-back-N each queue pair resends its own window, so a message is as many shares as it uses pairs; how long
    that takes does not depend on the rate.
    """
    path, connections = wire.path, max(1, wire.num_connections if wire.num_parallel is None else wire.num_parallel)
    at_rate = 1.0 if scheme == "go_back_n" else rate
    lossy = reliability.Path(at_rate, path.round_trip_s, path.loss_probability, path.mtu_bytes, path.mtu_bytes)
    if scheme == "go_back_n":
        share_bytes = message_bytes / used_pairs
        return reliability.go_back_n_wait_s(share_bytes, lossy, num_parallel=used_pairs * connections)
    return _chunk_wait_s(scheme, message_bytes, connections, lossy)


@lru_cache(maxsize=65536)
def _chunk_wait_s(scheme: Reliability, message_bytes: float, num_parallel: int, lossy: reliability.Path) -> float:
    """The same where a lost chunk alone is resent, or decoded."""
    plain = lossy._replace(packet_loss_probability=0.0)
    if scheme == "erasure_code":
        with_loss = reliability.erasure_code_s(message_bytes, lossy, num_parallel=num_parallel)
        return with_loss - reliability.erasure_code_s(message_bytes, plain)
    timeout = reliability.NACK_ROUND_TRIPS if scheme == "selective_repeat_nack" else reliability.TIMER_ROUND_TRIPS
    with_loss = reliability.selective_repeat_s(
        message_bytes, lossy, timeout_round_trips=timeout, num_parallel=num_parallel
    )
    return with_loss - reliability.selective_repeat_s(message_bytes, plain)
