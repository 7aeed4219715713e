"""Loss recovery: limits without loss, agreement with sampled runs of the same model, and who wins where."""

from __future__ import annotations

import numpy as np
import pytest

from solver.network import reliability
from solver.network.reliability import Path

MIB = 2**20


def path(loss, round_trip_s=25e-3, chunk_bytes=4096):
    return Path(50e9, round_trip_s, loss, 4096, chunk_bytes)


def sampled_selective_repeat_s(size_bytes, one, timeout_round_trips, *, num_runs, seed=0):
    """max_i [i T + (RTO + T)(Y_i - 1)] + RTT, Y_i geometric, by drawing only the chunks that are lost."""
    generator = np.random.default_rng(seed)
    chunks = one.num_chunks(size_bytes)
    resend_s = timeout_round_trips * one.round_trip_s + one.inject_s
    times = np.empty(num_runs)
    for run in range(num_runs):
        lost = generator.integers(1, chunks + 1, size=generator.binomial(chunks, one.chunk_loss))
        tries = generator.geometric(1 - one.chunk_loss, size=lost.size)
        last = chunks * one.inject_s
        times[run] = max(last, np.max(lost * one.inject_s + resend_s * tries, initial=0.0)) + one.round_trip_s
    return times


@pytest.mark.parametrize("timeout", [1.0, 3.0])
@pytest.mark.parametrize(("size_mib", "loss"), [(128, 1e-5), (128, 1e-4), (1024, 1e-5), (1, 1e-3)])
def test_selective_repeat_equals_sampled_runs(size_mib, loss, timeout):
    one = path(loss)
    expected = reliability.selective_repeat_s(size_mib * MIB, one, timeout_round_trips=timeout)
    sampled = sampled_selective_repeat_s(size_mib * MIB, one, timeout, num_runs=8_000)
    assert expected == pytest.approx(sampled.mean(), rel=0.01)


def test_the_slowest_of_many_messages_waits_longer():
    one = path(1e-6)
    alone = reliability.selective_repeat_s(MIB, one)
    slowest = reliability.selective_repeat_s(MIB, one, num_parallel=1000)
    together = reliability.selective_repeat_s(1000 * MIB, one)
    assert alone < slowest < together


@pytest.mark.parametrize("size_bytes", [4096, MIB, 1024 * MIB])
def test_without_loss_every_scheme_costs_injection_and_a_round_trip(size_bytes):
    one = path(0.0)
    plain = size_bytes / one.rate_bytes_per_s + one.round_trip_s
    assert reliability.selective_repeat_s(size_bytes, one) == pytest.approx(plain)
    coded = reliability.erasure_code_s(size_bytes, one)
    assert coded == pytest.approx(plain + one.inject_s * -(-one.num_chunks(size_bytes) // 4), rel=1e-9)


def test_go_back_n_wait_meets_the_efficiency_formula_at_small_loss():
    one, size = path(1e-8), 1024 * MIB
    window = one.rate_bytes_per_s * one.round_trip_s / one.packet_bytes
    efficiency = (1.0 - 1e-8) / (1.0 + 1e-8 * (window - 1.0))  # Bertsekas & Gallager, Data Networks, 2.4
    by_efficiency = size / one.rate_bytes_per_s * (1.0 / efficiency - 1.0)
    assert reliability.go_back_n_wait_s(size, one) == pytest.approx(by_efficiency, rel=1e-3)


@pytest.mark.parametrize(("mean", "samples"), [(0.3, 1), (0.3, 100), (12.0, 50), (0.0, 5)])
def test_expected_max_poisson_equals_sampled_runs(mean, samples):
    sampled = np.random.default_rng(2).poisson(mean, size=(20_000, samples)).max(axis=1).mean()
    assert reliability.expected_max_poisson(mean, samples) == pytest.approx(sampled, rel=0.02, abs=1e-6)


def test_a_code_fails_only_beyond_its_parity():
    assert reliability.erasure_submessage_failure_probability(1e-3, 32, 8) < 1e-15
    assert reliability.erasure_submessage_failure_probability(1.0, 32, 8) == 1.0
    brute = 1 - sum(
        np.prod([(4 - k) / (k + 1) for k in range(lost)]) * 0.3**lost * 0.7 ** (4 - lost) for lost in range(2)
    )
    assert reliability.erasure_submessage_failure_probability(0.3, 3, 1) == pytest.approx(brute)


def test_certain_loss_is_certain():
    assert reliability.chunk_loss_probability(1.0, 3) == 1.0
