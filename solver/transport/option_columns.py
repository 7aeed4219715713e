"""All options of a path at once, as columns: what rate and step delay each gives.

Owns the same formulas as `solver/network/connection.py`, for arrays; tests hold the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from models.cluster import LoadBalancing
from solver.network.balancing import balanced_efficiency
from solver.network.connection import ERASURE_DATA, ERASURE_PARITY, QUEUE_PAIR_S, Option, Wire, recovery_wait_s
from solver.network.technology import TECHNOLOGIES, payload_fraction
from solver.network.topology import PathFacts
from solver.network.transfer import mathis_rate_bytes_per_s
from solver.transport.options import PathFeatures, options_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class OptionColumns:
    """Options as columns: those of `options` at `rows`.

    Those of one `spread` share balancing and queue pairs. Windows rise from each `least_window` to the next, all else
    is the same there.
    """

    options: tuple[Option, ...]
    rows: IntArray
    num_queue_pairs: IntArray
    chunk_bytes: IntArray
    in_flight_bytes: FloatArray
    spread: IntArray
    spreads: tuple[tuple[LoadBalancing, int], ...]
    least_window: BoolArray
    codes: BoolArray

    def option(self, row: int) -> Option:
        """One of them."""
        return self.options[int(self.rows[row])]

    def take(self, rows: IntArray) -> OptionColumns:
        """Some of them."""
        return OptionColumns(
            self.options,
            self.rows[rows],
            self.num_queue_pairs[rows],
            self.chunk_bytes[rows],
            self.in_flight_bytes[rows],
            self.spread[rows],
            self.spreads,
            self.least_window[rows],
            self.codes[rows],
        )


def columns_of(path: PathFacts) -> OptionColumns:
    """All options of a path."""
    return _columns(PathFeatures.of(path))


@lru_cache(maxsize=256)
def _columns(features: PathFeatures) -> OptionColumns:
    options = options_of(features)
    spreads = {(one.load_balancing, one.num_queue_pairs): None for one in options}
    number = {key: index for index, key in enumerate(spreads)}
    kinds = [(one.load_balancing, one.reliability, one.num_queue_pairs) for one in options]
    return OptionColumns(
        options=options,
        rows=np.arange(len(options)),
        num_queue_pairs=np.array([one.num_queue_pairs for one in options]),
        chunk_bytes=np.array([one.chunk_bytes for one in options]),
        in_flight_bytes=np.array([one.in_flight_bytes for one in options]),
        spread=np.array([number[one.load_balancing, one.num_queue_pairs] for one in options]),
        spreads=tuple(spreads),
        least_window=np.array([True, *(one != other for one, other in pairwise(kinds))]),
        codes=np.array([one.reliability == "erasure_code" for one in options]),
    )


def rates_bytes_per_s(columns: OptionColumns, wire: Wire) -> FloatArray:
    """`connection_rate_bytes_per_s` of every option."""
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
    share = np.where(columns.codes, ERASURE_DATA / (ERASURE_DATA + ERASURE_PARITY), 1.0 - path.loss_probability)
    return np.asarray(rates * share)


def delays_s(columns: OptionColumns, wire: Wire, message_bytes: float) -> FloatArray:
    """`step_s` of every option as if nothing was lost."""
    path = wire.path
    used = _used_pairs(columns, message_bytes)
    return np.asarray(path.latency_s + TECHNOLOGIES[path.technology].step_s + (used - 1) * QUEUE_PAIR_S)


def _used_pairs(columns: OptionColumns, message_bytes: float) -> FloatArray:
    return np.asarray(np.minimum(columns.num_queue_pairs, np.maximum(1, message_bytes // columns.chunk_bytes)))


def steps_s(columns: OptionColumns, wire: Wire, message_bytes: float, rates: FloatArray) -> FloatArray:
    """`step_s` of every option at these rates."""
    delay = delays_s(columns, wire, message_bytes)
    if wire.path.loss_probability == 0 or wire.path.technology == "tcp":
        return delay
    used = _used_pairs(columns, message_bytes).astype(np.int64)
    each = zip(columns.rows.tolist(), used.tolist(), rates.tolist(), strict=True)
    waits = [
        recovery_wait_s(columns.options[row].reliability, wire, message_bytes, pairs, rate) for row, pairs, rate in each
    ]
    return np.asarray(delay + np.array(waits))
