"""How evenly flows fill parallel planes: hash collisions under ECMP, more queue pairs, spraying, segment balancing."""

from functools import lru_cache
from math import exp, lgamma, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len

from models.cluster import LoadBalancing
from solver.arrays import FloatArray, IntArray

# Above this many flows per plane the skew-corrected normal is within 0.1 % of the exact sum.
MANY_FLOWS_PER_PLANE = 100
# Above this many flows Edgeworth's series is within 0.01 % of the transform for any number of planes, at a tenth of its
# time: a transform of 400,000 flows on 4,096 planes takes 60 ms, and a search asks for thousands of such numbers.
MANY_FLOWS = 256
_PORTION = 32  # loads whose probabilities are worked out together
_NEGLIGIBLE = 1e-9  # probability beyond which no larger load counts
_NOISE = 1e-6  # probability below which rounding may hide the fall


def expected_max_load(num_flows: int, num_planes: int) -> float:
    """E[max] of n equal flows hashed uniformly and independently on m planes.

    Exact: E[max] = sum_k P(max > k), with Levin's representation of the multinomial distribution (Annals of Statistics
    1981): P(max <= k) = P(X <= k)^m P(W_k = n) / P(Poisson(n) = n), X Poisson(n/m), W_k the sum of m such X that do not
    exceed k, evaluated by a Fourier transform, and for many flows by Edgeworth's series as Levin does.
    >>> round(expected_max_load(2, 2), 9), round(expected_max_load(16, 16) / 1.0, 2)
    (1.5, 3.08)
    """
    if num_flows < 0 or num_planes < 1:
        raise ValueError(f"{num_flows} flows on {num_planes} planes: give flows >= 0 and planes >= 1")
    if num_planes == 1 or num_flows <= 1:
        return float(num_flows)
    if num_flows > MANY_FLOWS_PER_PLANE * num_planes:
        return _many_flows_max_load(num_flows, num_planes)
    return _exact_max_load(num_flows, num_planes)


def max_load_at_most(num_flows: IntArray, num_planes: IntArray) -> FloatArray:
    """What `expected_max_load` does not exceed, in no time at all.

    The load of a plane is binomial, sub-gamma with variance factor n/m and scale 1/3: E[max] <= n/m + sqrt(2 n/m log m)
    + log(m) / 3 (Boucheron, Lugosi and Massart, Concentration Inequalities, 2013, Corollary 2.6), and never above n.
    >>> max_load_at_most(np.array([2, 1600]), np.array([2, 16])).round(1).tolist()
    [2.0, 124.5]
    """
    mean, log_planes = num_flows / num_planes, np.log(num_planes)
    return np.minimum(num_flows, mean + np.sqrt(2.0 * mean * log_planes) + log_planes / 3.0)


@lru_cache(maxsize=16384)
def _exact_max_load(num_flows: int, num_planes: int) -> float:
    lowest = -(-num_flows // num_planes)
    expected, first = float(lowest), lowest
    while first < num_flows:
        above = 1.0 - _probabilities_max_at_most(first, min(first + _PORTION, num_flows), num_flows, num_planes)
        noise = np.append(above[1:] >= above[:-1], False) & (above < _NOISE)  # P(max > k) falls with k, errors do not
        rare = np.flatnonzero((above < _NEGLIGIBLE) | noise)
        if len(rare):
            return expected + float(above[: rare[0]].sum())
        expected += float(above.sum())
        first += _PORTION
    return expected


def _probabilities_max_at_most(first: int, end: int, num_flows: int, num_planes: int) -> FloatArray:
    """Levin's identity for k from `first` up to `end`."""
    mean = num_flows / num_planes
    counts = np.arange(end)
    log_factorials = np.concatenate(([0.0], np.cumsum(np.log(counts[1:]))))
    pmf: FloatArray = np.exp(counts * log(mean) - mean - log_factorials)
    below = np.cumsum(pmf)[first:]
    if num_flows > MANY_FLOWS:
        hits, poisson = _sum_by_series(pmf, below, num_flows, num_planes), _sum_of_whole_by_series(num_flows)
    else:
        hits = _sum_by_transform(pmf, below, num_flows, num_planes)
        poisson = exp(num_flows * log(num_flows) - num_flows - lgamma(num_flows + 1))
    return np.minimum(1.0, np.maximum(0.0, hits) * below**num_planes / poisson)


def _sum_by_transform(pmf: FloatArray, below: FloatArray, num_flows: int, num_planes: int) -> FloatArray:
    """P(W_k = n) for the last k of `pmf`; the transform is so long that it folds back less than 1e-12."""
    end, first = len(pmf), len(pmf) - len(below)
    counts = np.arange(end)
    rows = np.where(counts <= counts[first:, None], pmf, 0.0) / below[:, None]
    least = max(end, min(num_planes * (end - 1) + 1, int(24 * sqrt(num_flows)) + 128))
    length = next_fast_len(least, real=True)
    spectrum = _power(np.fft.rfft(rows, length), num_planes)
    phase = np.exp(2j * np.pi * np.arange(spectrum.shape[1]) * (num_flows % length) / length)
    phase[1 : (length + 1) // 2] *= 2.0  # each stands for its conjugate too
    hits: FloatArray = (spectrum * phase).real.sum(axis=1) / length
    return hits


def _sum_by_series(pmf: FloatArray, below: FloatArray, num_flows: int, num_planes: int) -> FloatArray:
    """P(W_k = n) for the last k of `pmf`, from the first four moments of a Poisson variable that does not exceed k.

    With x = (n - m mu) / (sigma sqrt(m)), skewness g1 and excess kurtosis g2 of the sum: density of a standard normal
    at x times 1 + g1 He3(x) / 6 + g2 He4(x) / 24 + g1^2 He6(x) / 72, over sigma sqrt(m) (Edgeworth 1905).
    """
    powers = np.arange(len(pmf), dtype=np.float64) ** np.arange(1, 5)[:, None]
    m1, m2, m3, m4 = np.cumsum(pmf * powers, axis=1)[:, len(pmf) - len(below) :] / below
    variance = np.maximum(m2 - m1**2, np.finfo(float).tiny)
    skew = (m3 - 3 * m1 * m2 + 2 * m1**3) / variance**1.5 / sqrt(num_planes)
    excess = ((m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4) / variance**2 - 3.0) / num_planes
    deviation = np.sqrt(num_planes * variance)
    x = (num_flows - num_planes * m1) / deviation
    he3, he4, he6 = x**3 - 3 * x, x**4 - 6 * x**2 + 3, x**6 - 15 * x**4 + 45 * x**2 - 15
    series = 1.0 + skew * he3 / 6 + excess * he4 / 24 + skew**2 * he6 / 72
    density: FloatArray = np.exp(-(x**2) / 2) / sqrt(2 * np.pi) * series / deviation
    return density


def _sum_of_whole_by_series(num_flows: int) -> float:
    """P(Poisson(n) = n) by the same series: skewness 1 / sqrt(n), excess kurtosis 1 / n, at x = 0."""
    return (1.0 + 3.0 / (24 * num_flows) - 15.0 / (72 * num_flows)) / sqrt(2 * np.pi * num_flows)


def _power(values: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """Whole powers by squaring.

    >>> _power(np.array([1j]), 3).tolist()
    [(-0-1j)]
    """
    result = np.ones_like(values)
    while exponent:
        if exponent % 2:
            result = result * values
        values, exponent = values * values, exponent // 2
    return result


def _many_flows_max_load(num_flows: int, num_planes: int) -> float:
    """Mean + sd (z + skew (z^2 - 1) / 6), z the largest of m normals (Cornish & Fisher 1938).

    The loads of two planes are correlated by -1/(m-1), which makes sd^2 = mean (1 - 1/m) the mean.
    """
    mean = num_flows / num_planes
    deviation = sqrt(mean)
    skew = (1 - 2 / num_planes) / deviation
    z = _expected_max_normal(num_planes)
    return mean + deviation * (z + skew * (z * z - 1) / 6)


@lru_cache(maxsize=256)
def _expected_max_normal(num_samples: int) -> float:
    """E[max] of m standard normals: the integral of 1 - Phi^m above zero less that of Phi^m below."""
    grid = np.linspace(-9.0, 9.0, 18_001)
    step = float(grid[1] - grid[0])
    density = np.exp(-(grid**2) / 2) / sqrt(2 * np.pi)
    cumulative = np.clip((np.cumsum(density) - density / 2) * step, 0.0, 1.0) ** num_samples
    return float(np.where(grid >= 0, 1.0 - cumulative, -cumulative).sum() * step)


def collision_slowdown(num_flows: int, num_planes: int) -> float:
    """Slowest flow over a fair one under ECMP: E[max] / mean.

    >>> round(collision_slowdown(1000, 16), 2)
    1.23
    """
    return expected_max_load(num_flows, num_planes) * num_planes / num_flows


def ecmp_efficiency(num_flows: int, num_planes: int) -> float:
    """Share of the capacity that F equal synchronous flows carry on L planes: F / (L E[max]).

    >>> round(ecmp_efficiency(64, 16), 2)
    0.51
    """
    return 1.0 / collision_slowdown(num_flows, num_planes) if num_flows > 0 else 1.0


def dqplb_efficiency(num_connections: int, queue_pairs: int, num_planes: int) -> float:
    """Share under dynamic queue-pair load balancing: a connection moves segments to whichever of its pairs is free.

    Every plane that has a pair is used, and a connection sees the mean of Q planes instead of one, which shrinks the
    spread by sqrt(Q): occupied / (1 + (E[max]/mean - 1) / sqrt(Q)). An approximation after the mechanism in NCCLX
    (arXiv 2510.20171).
    >>> round(dqplb_efficiency(16, 16, 16), 3)
    0.896
    """
    flows = num_connections * queue_pairs
    occupied = 1.0 - (1.0 - 1.0 / num_planes) ** flows
    return occupied / (1.0 + (collision_slowdown(flows, num_planes) - 1.0) / sqrt(queue_pairs))


@lru_cache(maxsize=65_536)
def balanced_efficiency(method: LoadBalancing, *, num_connections: int, queue_pairs: int, num_planes: int) -> float:
    """Share of a link's capacity under a balancing method. Spraying needs receivers that reorder; the caller checks.

    Plain ECMP hashes a connection as one flow; with QP scaling every queue pair has its own entropy. Packets sprayed
    over 8 or more paths were within 10 % of the ideal in packet simulation, and at 16 within noise.
    >>> balanced_efficiency("spray", num_connections=16, queue_pairs=1, num_planes=76)
    1.0
    """
    if num_planes == 1 or num_connections == 0:
        return 1.0
    if method == "spray":
        return 1.0
    if method == "dqplb":
        return dqplb_efficiency(num_connections, queue_pairs, num_planes)
    flows = num_connections if method == "ecmp" else num_connections * queue_pairs
    return ecmp_efficiency(flows, num_planes)
