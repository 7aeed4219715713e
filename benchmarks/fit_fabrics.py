"""Fits the packaged efficiency curves again and prints them with their fit and hold-out errors.

`python -m benchmarks.fit_fabrics MEASURED_NETWORK.csv`. The shapes are those of `solver/network/efficiency.py`, one
set of constants per kind of fabric. Hold-out: ten folds, every row predicted by a fit that has not seen it.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from models.transport import Collective
from solver.network.efficiency import EfficiencyCurve, FabricProfile, ShortProtocol

Row = dict[str, str]
Build = Callable[[Sequence[float]], EfficiencyCurve]
MIB = float(2**20)


@dataclass(frozen=True)
class Family:
    """Rows of one fabric, the shape of its curve and where the fit starts."""

    name: str
    belongs: Callable[[Row], bool]
    collective: Collective
    line_bytes_per_s: float
    build: Build
    start: tuple[float, ...]


def per_rank(x: Sequence[float]) -> EfficiencyCurve:
    """A100: plateau falls for few ranks; short payloads bound by latency."""
    return EfficiencyCurve(x[0], x[1], x[2], ((2, x[3]),), x[4], ShortProtocol(4 * MIB, x[5], x[6], 100.0))


def one_size(x: Sequence[float]) -> EfficiencyCurve:
    """One node size: latency is all base."""
    return EfficiencyCurve(x[0], 0.0, x[1], ((2, x[2]),), short=ShortProtocol(2 * MIB, x[3], 0.0, x[4]))


def mesh(x: Sequence[float]) -> EfficiencyCurve:
    """V100 hybrid cube mesh: rings that NCCL finds among n GPUs, times the rate of one."""
    lanes = {2: 1.0, 3: 2.0, 4: 3.8, 5: x[3], 6: 2.02, 7: 3.87, 8: 6.0}
    return EfficiencyCurve(x[0], x[1], 0.0, tuple((n, x[2] * count / 6) for n, count in lanes.items()))


def hops(x: Sequence[float]) -> EfficiencyCurve:
    """Ring over nodes: a latency per hop and a plateau."""
    return EfficiencyCurve(0.0, x[0], 0.0, ((2, x[1]),))


def hops_pipelined(x: Sequence[float]) -> EfficiencyCurve:
    """Ring over nodes with chunk pipelining."""
    return EfficiencyCurve(0.0, x[0], x[1], ((2, x[2]),))


def base_pipelined(x: Sequence[float]) -> EfficiencyCurve:
    """A fixed latency with chunk pipelining."""
    return EfficiencyCurve(x[0], 0.0, x[1], ((2, x[2]),))


def exchange(x: Sequence[float]) -> EfficiencyCurve:
    """All-to-all over nodes: the plateau depends on how much stays inside and on incast."""
    return EfficiencyCurve(x[0], 0.0, x[1], ((2, x[2]), (4, x[3]), (8, x[4]), (16, x[5])))


def _sweep(system: str) -> Callable[[Row], bool]:
    return lambda row: row["system"] == system and row["kind"] == "collective" and bool(row["time_us"])


def _ratio(collective: str, fabric: str) -> Callable[[Row], bool]:
    return lambda row: row["kind"] == "ratio" and row["collective"].startswith(collective) and row["fabric"] == fabric


FAMILIES = (
    Family("a100", _sweep("A100 8-GPU node"), "all_reduce", 300e9, per_rank, (2e-5, 1e-6, 3e-6, 0.85, 0.4, 3e-5, 3e-6)),
    Family("v100", _sweep("V100 8-GPU node"), "all_reduce", 150e9, mesh, (1e-5, 4e-6, 0.9, 1.63)),
    Family("h200", _sweep("8x H200"), "all_reduce", 450e9, one_size, (4e-5, 5e-6, 1.1, 4e-5, 0.6)),
    Family("b200", _sweep("8x B200"), "all_reduce", 900e9, one_size, (7e-5, 1e-5, 0.95, 5e-5, 0.7)),
    Family("b200_efa", _sweep("4x8 B200 (P6)"), "all_reduce", 400e9, hops_pipelined, (5e-5, 1e-5, 1.0)),
    Family("roce_ring", _ratio("all_reduce", "NIC"), "all_reduce", 400e9, hops, (3e-5, 0.97)),
    Family("nvlink_ring", _ratio("all_reduce", "NVLink"), "all_reduce", 200e9, base_pipelined, (1e-5, 1e-6, 0.8)),
    Family("nvlink_exchange", _ratio("all_to", "NVLink"), "all_to_all", 200e9, base_pipelined, (1e-5, 1e-6, 0.8)),
    Family("roce_exchange", _ratio("all_to", "NIC"), "all_to_all", 400e9, exchange, (1e-5, 1e-6, 0.8, 0.95, 0.95, 0.9)),
)


def log_errors(family: Family, curve: EfficiencyCurve, rows: Sequence[Row]) -> np.ndarray:
    """log(predicted / measured) of time, or of the fraction of line rate where that is what was measured."""
    profile = FabricProfile(family.name, family.line_bytes_per_s, {"*": curve}, "")
    errors = []
    for row in rows:
        size, ranks, nodes = float(row["size_bytes"]), int(row["ranks"]), int(row["nodes"])
        if row["time_us"]:
            predicted = profile.collective_s(family.collective, size, ranks, num_nodes=nodes) * 1e6
            errors.append(np.log(predicted / float(row["time_us"])))
        else:
            fraction = profile.line_fraction(family.collective, size, ranks, num_nodes=nodes)
            errors.append(np.log(fraction / float(row["fraction_of_line_rate"])))
    return np.array(errors)


def fit(family: Family, rows: Sequence[Row]) -> np.ndarray:
    """Constants that minimise a robust loss of the log errors; all are positive, so their logs are fitted."""
    generator = np.random.default_rng(0)
    start = np.log(np.array(family.start))
    best_cost, best = np.inf, start
    for trial in range(4):
        noise = generator.normal(0, 0.5, len(start)) if trial else 0.0
        found = least_squares(
            lambda x: np.clip(log_errors(family, family.build(np.exp(np.clip(x, -40, 5))), rows), -20, 20),
            start + noise,
            loss="soft_l1",
            f_scale=0.03,
        )
        if found.cost < best_cost:
            best_cost, best = found.cost, found.x
    return np.exp(np.clip(best, -40, 5))


def hold_out_pct(family: Family, rows: Sequence[Row], folds: int = 10) -> float:
    """Mean absolute error of rows that their fit has not seen."""
    errors: list[float] = []
    for fold in range(folds):
        held = [row for index, row in enumerate(rows) if index % folds == fold]
        seen = [row for index, row in enumerate(rows) if index % folds != fold]
        if held and len(seen) > len(family.start):
            errors.extend(np.abs(np.expm1(log_errors(family, family.build(fit(family, seen)), held))))
    return 100 * float(np.mean(errors))


def main(path: str) -> None:
    """Print constants, fit and hold-out error of every family."""
    with open(path, newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    for family in FAMILIES:
        own = [row for row in rows if family.belongs(row)]
        constants = fit(family, own)
        error = 100 * float(np.mean(np.abs(np.expm1(log_errors(family, family.build(constants), own)))))
        shown = ", ".join(f"{value:.3g}" for value in constants)
        sys.stdout.write(f"{family.name}: rows {len(own)}, fit {error:.2f} %, ")
        sys.stdout.write(f"hold-out {hold_out_pct(family, own):.2f} %, constants {shown}\n")


if __name__ == "__main__":
    main(sys.argv[1])
