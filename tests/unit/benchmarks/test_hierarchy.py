"""Constants are shared, and depart from it only as far as runs speak for it."""

import numpy as np
import pytest

from benchmarks.fit.deck import Deck
from benchmarks.fit.hierarchy import Hierarchy
from benchmarks.fit.shifts import SHIFTS
from benchmarks.fit.software import SOFTWARE
from benchmarks.left_out import LeftOut, spreads
from solver.calibration.priors import PRIORS
from solver.calibration.rows import run_of

NAMES = tuple(PRIORS)
ROW = {
    "family": "planted", "model": "GPT", "layers": "24", "hidden": "4096", "heads": "32", "seq_len": "2048",
    "gpu": "A100-80G", "precision": "fp16", "recompute": "full", "framework": "Megatron-LM", "iter_time_s": "1",
    "source": "2021", "vpp": "1",
}  # fmt: skip


def rows(count: int, **changes: str) -> list[dict[str, str]]:
    """Runs of one software with all kinds of degrees."""
    dice = np.random.default_rng(5)
    found = []
    for _ in range(count):
        tp, pp, dp, mbs = (int(dice.choice(values)) for values in ((1, 2, 4, 8), (1, 2, 4), (1, 2, 8), (1, 2, 4)))
        degrees = {"tp": tp, "pp": pp, "dp": dp, "num_gpus": tp * pp * dp, "mbs": mbs, "gbs": 16 * mbs * dp}
        found.append({**ROW, **{name: str(value) for name, value in degrees.items()}, **changes})
    return found


def hierarchy(given: list[dict[str, str]], factor: float = 1.0) -> Hierarchy:
    """A design whose measured times are the priors' own, times a factor."""
    runs = [run_of(row, SOFTWARE) for row in given]
    plan = Hierarchy(Deck(runs, NAMES))
    times = plan.predicted(np.zeros(len(plan.membership(0)[0])))
    plan.deck.log_measured = times + np.log(factor)
    return plan


def test_runs_that_the_priors_explain_move_nothing():
    plan = hierarchy(rows(30))
    assert np.abs(plan.fit().deviations).max() < 0.02


def test_constants_without_a_run_keep_the_shared_value():
    plan = hierarchy(rows(30), factor=1.3)
    fit = plan.fit()
    values, _ = plan.of_cells(fit.deviations)
    fresh, _ = plan.of_cells(np.zeros_like(fit.deviations))
    idle = NAMES.index("expert_gemm_share")
    moved = NAMES.index("gemm_efficiency")
    assert values[0, idle] == pytest.approx(fresh[0, idle])
    assert values[0, moved] < fresh[0, moved]


def test_what_software_learns_reaches_software_without_runs_only_in_part():
    given = rows(30)
    runs = [run_of(row, SOFTWARE) for row in given]
    plan = Hierarchy(Deck(runs, NAMES), [("megatron-2022", "ampere")])
    times = plan.predicted(np.zeros(len(plan.membership(0)[0])))
    plan.deck.log_measured = times + np.log(1.3)
    values, _ = plan.of_cells(plan.fit().deviations)
    fresh, _ = plan.of_cells(np.zeros(len(plan.membership(0)[0])))
    host = NAMES.index("gemm_efficiency")
    own, other = (plan.cells.index((name, "ampere")) for name in ("megatron-2021", "megatron-2022"))
    assert values[own, host] < values[other, host] < fresh[other, host]


def test_constants_stay_within_their_limits_and_sources_are_named():
    plan = hierarchy(rows(20), factor=4.0)
    values, _ = plan.of_cells(plan.fit().deviations)
    for column, name in enumerate(NAMES):
        assert PRIORS[name].low <= values[0, column] <= PRIORS[name].high, name
        assert PRIORS[name].source, name
    assert all(shift.source for shift in SHIFTS)


def test_more_runs_leave_less_doubt():
    few, many = hierarchy(rows(6)), hierarchy(rows(40))
    assert few.spread(few.fit())[0] > many.spread(many.fit())[0] > 0.0


def test_spreads_make_four_fifths_of_the_intervals_hold():
    run = run_of(rows(1)[0], SOFTWARE)
    dice = np.random.default_rng(3)
    errors = dice.normal(0.0, 0.15, 400)
    found = spreads([LeftOut(run, float(np.exp(error)), 0.02) for error in errors])
    assert found["family_spread_dense"] == pytest.approx(np.sqrt(0.15**2 - 0.02**2 - 0.04**2), rel=0.15)


def test_a_fit_without_a_software_forgets_what_its_runs_said():
    given = rows(12) + rows(12, framework="Megatron-LM (sail-sg fork)")
    plan = hierarchy(given, factor=1.3)
    plan.deck.log_measured[12:] += 0.2  # the second software is slower than the first
    without = plan.fit(np.arange(12), plan.fit().deviations)
    seen, left_out = (plan.membership(plan.cells.index((name, "ampere"))).any(axis=0)
                      for name in ("megatron-2021", "zero-bubble-2024"))  # fmt: skip
    assert not without.deviations[left_out & ~seen].any()
