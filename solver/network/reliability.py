"""What loss costs: go-back-N, selective repeat and erasure coding on one path.

Expected completion times under independent loss.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, expm1, log, log1p, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.special import bdtrc

from solver.arrays import FloatArray

TIMER_ROUND_TRIPS = 3.0  # RTO of selective repeat by timer (SDR-RDMA, arXiv 2505.05366)
NACK_ROUND_TRIPS = 1.0  # the same by negative acknowledgement
DATA_CHUNKS, PARITY_CHUNKS = 32, 8  # of a submessage under an erasure code (SDR-RDMA, arXiv 2505.05366)
ERASURE_FALLBACK_ROUND_TRIPS = 0.5  # beta: how late the receiver finds out that decoding failed
_GRID_POINTS = 512  # of a numerical integral
_NEGLIGIBLE = 1e-10  # expected missing chunks, below which the integral ends
_NORMAL_MEAN = 500.0  # beyond this the sum over counts is long, and exp(-mean) soon is zero


def chunk_loss_probability(packet_loss_probability: float, num_packets: int) -> float:
    """A chunk is lost when any of its packets is: 1 - (1-p)^n.

    >>> round(chunk_loss_probability(1e-3, 16), 6)
    0.015881
    """
    if packet_loss_probability >= 1:
        return 1.0
    return -expm1(num_packets * log1p(-packet_loss_probability))


class Path(NamedTuple):
    """What a reliability scheme sees: rate, round trip, loss per packet, and the unit that is resent."""

    rate_bytes_per_s: float
    round_trip_s: float
    packet_loss_probability: float
    packet_bytes: int = 4096
    chunk_bytes: int = 4096

    @property
    def inject_s(self) -> float:
        """Time to put one chunk on the wire."""
        return self.chunk_bytes / self.rate_bytes_per_s

    @property
    def chunk_loss(self) -> float:
        """Loss probability of one chunk."""
        return chunk_loss_probability(self.packet_loss_probability, ceil(self.chunk_bytes / self.packet_bytes))

    def num_chunks(self, size_bytes: float) -> int:
        """Chunks of a message."""
        return max(1, ceil(size_bytes / self.chunk_bytes))


def expected_max_poisson(mean: float, num_samples: int) -> float:
    """E[max] of n independent Poisson counts: sum_k 1 - F(k)^n; beyond a mean of 500, that of normal counts.

    Large means: mu + sqrt(mu) q((n - 3/8) / (n + 1/4)) with the normal quantile q (Blom 1958).
    >>> round(expected_max_poisson(0.5, 1), 9), expected_max_poisson(1e6, 1)
    (0.5, 1000000.0)
    """
    if mean > _NORMAL_MEAN:
        order = (num_samples - 0.375) / (num_samples + 0.25)
        return mean + sqrt(mean) * NormalDist().inv_cdf(order)
    probability = below = exp(-mean)
    expected, k = 0.0, 0
    while True:
        above = -expm1(num_samples * log(below)) if below > 0 else 1.0
        expected += above
        k += 1
        probability *= mean / k
        if (k > mean and above < _NEGLIGIBLE) or below >= 1.0:
            return expected
        below = min(1.0, below + probability)


@lru_cache(maxsize=65_536)
def go_back_n_wait_s(size_bytes: float, path: Path, *, num_parallel: int = 1) -> float:
    """Time that resent windows add to the slowest of parallel messages: a round trip per loss, E[max losses] RTT.

    One message alone pays p W S/B in the mean, which is the efficiency formula to first order.
    >>> one = Path(5e10, 10e-3, 1e-6)
    >>> round(go_back_n_wait_s(128 * 2**20, one) / (128 * 2**20 / 5e10), 4), round(1e-6 * 5e10 * 10e-3 / 4096, 4)
    (0.1221, 0.1221)
    """
    losses = size_bytes / path.packet_bytes * path.packet_loss_probability
    return expected_max_poisson(losses, num_parallel) * path.round_trip_s


def selective_repeat_s(
    size_bytes: float, path: Path, *, timeout_round_trips: float = TIMER_ROUND_TRIPS, num_parallel: int = 1
) -> float:
    """Expected message time under selective repeat: E[max_i X_i] + RTT, the slowest of `num_parallel` messages.

    X_i = i T + (RTO + T)(Y_i - 1), Y_i geometric (SDR-RDMA, arXiv 2505.05366). RTO is 3 RTT by timer and 1 RTT by NACK.
    Integrates 1 - prod_i P(X_i <= t) numerically.
    >>> round(selective_repeat_s(128 * 2**20, Path(5e10, 10e-3, 0.0)) * 1e3, 3)
    12.684
    """
    chunks = path.num_chunks(size_bytes)
    resend_s = timeout_round_trips * path.round_trip_s + path.inject_s
    tail = _Tail(chunks, path.inject_s, resend_s, path.chunk_loss, num_parallel)
    return chunks * path.inject_s + tail.expected_excess_s() + path.round_trip_s


@dataclass(frozen=True)
class _Tail:
    """Distribution of the time after the last injection at which the last chunk is in."""

    num_chunks: int
    inject_s: float
    resend_s: float
    loss: float
    num_parallel: int = 1

    def _exceeds(self, excess_s: FloatArray) -> FloatArray:
        """P(max X_i > M T + excess): counts how many chunks have had time for j resends, and adds their logs."""
        log_all_in: FloatArray = np.zeros(excess_s.shape)
        resends = 0
        while self.loss > 0:
            miss = self.loss ** (resends + 1)
            if miss * self.num_chunks * self.num_parallel < _NEGLIGIBLE:
                break
            younger = self._num_with_more_resends_than(resends, excess_s)
            more = self._num_with_more_resends_than(resends - 1, excess_s)
            log_all_in += (more - younger) * log1p(-min(miss, 1.0 - 1e-15))
            resends += 1
        return -np.expm1(self.num_parallel * log_all_in)

    def _num_with_more_resends_than(self, resends: int, excess_s: FloatArray) -> FloatArray:
        """Chunks i <= M with floor((M T + excess - i T) / O) > resends."""
        if resends < 0:
            return np.full(excess_s.shape, float(self.num_chunks))
        limit = (self.num_chunks * self.inject_s + excess_s - (resends + 1) * self.resend_s) / self.inject_s
        return np.clip(np.floor(limit + 1e-9), 0.0, float(self.num_chunks))

    def _horizon_s(self) -> float:
        """Beyond this excess, fewer than 1e-10 chunks are expected to be missing."""
        sent = self.num_chunks * self.num_parallel
        if self.loss <= 0 or self.loss * sent < _NEGLIGIBLE:
            return 0.0
        return self.resend_s * (ceil(log(_NEGLIGIBLE / sent) / log(self.loss)) + 1)

    def expected_excess_s(self) -> float:
        horizon = self._horizon_s()
        if horizon == 0.0:
            return 0.0
        num_points = _GRID_POINTS * ceil(horizon / self.resend_s)
        width = horizon / num_points
        return float(self._exceeds(np.arange(0.5, num_points) * width).sum() * width)


def erasure_submessage_failure_probability(loss: float, num_data: int, num_parity: int) -> float:
    """A submessage of k data and m parity chunks fails when more than m of its k + m chunks are lost.

    >>> erasure_submessage_failure_probability(0.0, 32, 8)
    0.0
    >>> round(erasure_submessage_failure_probability(0.5, 1, 1), 3)
    0.25
    """
    return float(bdtrc(num_parity, num_data + num_parity, loss))


def erasure_code_s(size_bytes: float, path: Path, *, num_parallel: int = 1) -> float:
    """Expected message time under an erasure code (k, m) with selective repeat as fallback, slowest of `num_parallel`.

    (M + ceil(M/R)) T + RTT + P_fb ((1 + beta) RTT + T_SR of the failed submessages), R = k/m, P_fb = 1 - P_EC^L,
    L = M/k (SDR-RDMA, arXiv 2505.05366).
    >>> round(erasure_code_s(128 * 2**20, Path(5e10, 25e-3, 1e-4)) * 1e3, 3)
    28.355
    """
    chunks = path.num_chunks(size_bytes)
    injected = chunks + ceil(chunks * PARITY_CHUNKS / DATA_CHUNKS)
    failure = erasure_submessage_failure_probability(path.chunk_loss, DATA_CHUNKS, PARITY_CHUNKS)
    submessages = ceil(chunks / DATA_CHUNKS)
    fallback = -expm1(num_parallel * submessages * log1p(-min(failure, 1.0 - 1e-15)))
    direct = injected * path.inject_s + path.round_trip_s
    if fallback < _NEGLIGIBLE:
        return direct
    resent = max(1.0, submessages * failure / fallback) * DATA_CHUNKS * path.chunk_bytes
    repeat = selective_repeat_s(resent, path)
    return direct + fallback * (ERASURE_FALLBACK_ROUND_TRIPS * path.round_trip_s + repeat)
