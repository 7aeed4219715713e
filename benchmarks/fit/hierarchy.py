"""Fits the constants of all software at once: shared values, and deviations only as far as the runs speak for them.

The transformed constant k of a run is  mu[k] + a[software, k] + b[generation, k] + d[software on generation, k]  plus
the facts of `shifts.SHIFTS`; each part has a normal prior. The posterior mode is found by Gauss-Newton steps on
residuals with Student-t weights; its curvature is the covariance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.fit.deck import Deck
from benchmarks.fit.shifts import SHIFTS
from models.stack import generation_of
from solver.arrays import FloatArray
from solver.calibration.priors import PRIORS, TINY, Prior

RUN_SIGMA = 0.04  # of ln(time): published sweeps of one stack agree to 2-4 %, releases to 6 %
FREEDOM = 3.0  # degrees of the Student t: a few rows of other recipes must not bend the constants
CELL_SHARE = 0.5  # software on one generation departs half as far as either alone
LONGEST_STEP = 1.5  # in standard units of logarithm or logit
MAX_STEPS = 25
ENOUGH = 0.3  # gain of ln(posterior) below which a fit stops

Cell = tuple[str, str]


@dataclass(frozen=True)
class Fit:
    """The posterior mode: deviations, and the covariance of all of them."""

    deviations: FloatArray
    covariance: FloatArray


class Hierarchy:
    """The design of a fit: which deviations every run's constants are made of."""

    def __init__(self, deck: Deck, cells: Sequence[Cell] = (), priors: Mapping[str, Prior] = PRIORS) -> None:
        self.deck = deck
        self.names = tuple(priors)
        self._priors = [priors[name] for name in self.names]
        own = [(run.stack.name, generation_of(run.gpu.name)) for run in deck.runs]
        self.cells = sorted({*own, *cells})
        self._software = sorted({one for one, _ in self.cells})
        self._generations = sorted({one for _, one in self.cells})
        self._own = np.array([self.cells.index(cell) for cell in own], dtype=np.int64)
        self._start = np.array([[_start(name, cell, priors[name]) for name in self.names] for cell in self.cells])
        blocks = [[prior.shared for prior in self._priors]]
        blocks += [[prior.software for prior in self._priors]] * len(self._software)
        blocks += [[prior.generation for prior in self._priors]] * len(self._generations)
        cell = [CELL_SHARE * min(prior.software, prior.generation) for prior in self._priors]
        blocks += [cell] * len(self.cells)
        self._sigma = np.concatenate([np.array(block) for block in blocks])
        self._free = np.flatnonzero((self._sigma > TINY) & self._spoken_of(np.arange(len(own))))

    def _spoken_of(self, train: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which deviations these runs say anything about; all others are zero."""
        cells = sorted(set(self._own[train].tolist()))
        return np.asarray(sum(self.membership(cell).sum(axis=0) for cell in cells) > 0)

    def membership(self, cell: int) -> FloatArray:
        """Deviations that add up to the transformed constants of a cell: constants x deviations."""
        software, generation = self.cells[cell]
        blocks = (
            0,
            1 + self._software.index(software),
            1 + len(self._software) + self._generations.index(generation),
            1 + len(self._software) + len(self._generations) + cell,
        )
        width = len(self.names)
        matrix = np.zeros((width, len(self._sigma)))
        for block in blocks:
            matrix[np.arange(width), block * width + np.arange(width)] = 1.0
        return matrix

    def of_cells(self, deviations: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Constants of every cell, and their d ln(constant) / d transformed: cells x constants."""
        moved = self._start + np.stack([self.membership(i) @ deviations for i in range(len(self.cells))])
        value, slope = np.empty_like(moved), np.empty_like(moved)
        for column, prior in enumerate(self._priors):
            value[:, column], slope[:, column] = _back(moved[:, column], prior)
        return value, slope

    def predicted(self, deviations: FloatArray) -> FloatArray:
        """ln(time) of every run of the deck."""
        return self.deck.log_times(self.of_cells(deviations)[0][self._own])

    def spread(self, fit: Fit) -> FloatArray:
        """Standard deviation of every run's ln(time) by the errors of the constants."""
        values, slopes = self.of_cells(fit.deviations)
        jacobian = self.deck.jacobian(values[self._own]) * slopes[self._own]
        variance = np.zeros(len(jacobian))
        for cell in range(len(self.cells)):
            rows = np.flatnonzero(self._own == cell)
            loads = jacobian[rows] @ self.membership(cell)
            variance[rows] = np.einsum("ij,jk,ik->i", loads, fit.covariance, loads)
        return np.sqrt(variance)

    def usual_slopes(self, fit: Fit) -> FloatArray:
        """Root mean square of d ln(time) / d ln(constant) over the runs, at least a hundredth."""
        jacobian = self.deck.jacobian(self.of_cells(fit.deviations)[0][self._own])
        return np.asarray(np.maximum(np.sqrt((jacobian**2).mean(axis=0)), 0.01))

    def fit(
        self, train: npt.NDArray[np.int64] | None = None, start: FloatArray | None = None, max_steps: int = MAX_STEPS
    ) -> Fit:
        """The posterior mode on the runs `train` (all by default), from `start` or from the priors."""
        train = np.arange(len(self.deck.runs)) if train is None else train
        x = np.zeros(len(self._sigma)) if start is None else np.where(self._spoken_of(train), start, 0.0)
        cost, residuals = self._cost(x, train)
        damping = 1e-3
        for _ in range(max_steps):
            hessian, gradient = self._normal_equations(x, residuals, train)
            taken = None
            for _ in range(6):
                step = self._step(hessian, gradient, damping)
                new_cost, new_residuals = self._cost(x + step, train)
                if new_cost < cost:
                    taken = step
                    break
                damping = max(8.0 * damping, 1e-2)
            if taken is None:
                break
            gain, cost, residuals, x = cost - new_cost, new_cost, new_residuals, x + taken
            damping = max(damping / 5.0, 1e-4)
            if gain < ENOUGH:
                break
        self._cost(x, train)
        hessian, _ = self._normal_equations(x, residuals, train)
        covariance = np.diag(np.where(self._sigma > TINY, self._sigma, 0.0) ** 2)
        free = np.ix_(self._free, self._free)
        covariance[free] = np.linalg.inv(hessian[free])
        return Fit(x, covariance)

    def _cost(self, x: FloatArray, train: npt.NDArray[np.int64]) -> tuple[float, FloatArray]:
        residuals = (self.deck.log_measured - self.predicted(x)) / RUN_SIGMA
        misfit = 0.5 * np.sum((FREEDOM + 1.0) * np.log1p(residuals[train] ** 2 / FREEDOM))
        prior = 0.5 * np.sum((x[self._free] / self._sigma[self._free]) ** 2)
        return float(misfit + prior), residuals

    def _normal_equations(
        self, x: FloatArray, residuals: FloatArray, train: npt.NDArray[np.int64]
    ) -> tuple[FloatArray, FloatArray]:
        """Curvature and descent direction of the cost, weights of the Student t held."""
        values, slopes = self.of_cells(x)
        jacobian = self.deck.jacobian(values[self._own]) * slopes[self._own]
        design = np.zeros((len(jacobian), len(x)))
        for cell in range(len(self.cells)):
            rows = np.flatnonzero(self._own == cell)
            design[rows] = jacobian[rows] @ self.membership(cell)
        design = design[train]
        weight = (FREEDOM + 1.0) / (FREEDOM + residuals[train] ** 2) / RUN_SIGMA**2
        hessian = (design * weight[:, None]).T @ design + np.diag(self._sigma**-2.0)
        gradient = design.T @ (weight * residuals[train] * RUN_SIGMA) - x / self._sigma**2
        return hessian, gradient

    def _step(self, hessian: FloatArray, gradient: FloatArray, damping: float) -> FloatArray:
        free = self._free
        inner = hessian[np.ix_(free, free)]
        step = np.zeros(len(gradient))
        step[free] = np.linalg.solve(inner + damping * np.diag(np.diag(inner)), gradient[free])
        return step * min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), 1e-12))


def _start(name: str, cell: Cell, prior: Prior) -> float:
    """Transformed prior value of a constant in a cell, facts about it included."""
    software, generation = cell
    value = float(np.log(prior.value / (prior.high - prior.value)) if prior.is_share else np.log(prior.value))
    applies = [
        shift.by
        for shift in SHIFTS
        if shift.constant == name
        and (not shift.software or software in shift.software)
        and shift.generation in ("", generation)
    ]
    return value + sum(applies)


def _back(moved: FloatArray, prior: Prior) -> tuple[FloatArray, FloatArray]:
    """Constant and d ln(constant) / d transformed; no slope beyond a limit."""
    if prior.is_share:
        part = 1.0 / (1.0 + np.exp(-moved))
        value, slope = prior.high * part, 1.0 - part
    else:
        value, slope = np.exp(np.clip(moved, -700.0, 700.0)), np.ones_like(moved)
    inside = (value > prior.low) & (value < prior.high)
    return np.clip(value, prior.low, prior.high), np.where(inside, slope, 0.0)
