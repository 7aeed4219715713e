"""Measured runs laid out so that all of them are predicted, and differentiated, in a few calls.

What a source leaves unstated is chosen as in `predict`; derivatives hold that choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.stack import Constant, StackProfile, generation_of
from solver.arrays import FloatArray
from solver.calibration.predict import candidates, chosen, layers_of, schedule_of
from solver.calibration.rows import Run
from solver.calibration.stacked import stacked, structure
from solver.cost.columns import Columns, columns_from
from solver.cost.estimate import iteration_estimate
from solver.cost.job import Job
from solver.cost.layer import Setting

STEP = 1e-3  # of a logarithm, for differences


@dataclass(frozen=True)
class _Group:
    """Runs of one structure, GPU, fabric, software and schedule, with the configurations that each may have run."""

    run: Run
    members: list[int]
    owners: npt.NDArray[np.int64]
    jobs: list[Job]
    columns: Columns


@dataclass(frozen=True)
class _Chosen:
    """The configurations that the runs of a group are taken to have run, with weights where two are blended."""

    group: _Group
    owners: npt.NDArray[np.int64]
    weights: FloatArray
    rows: npt.NDArray[np.int64]


class Deck:
    """Runs with the names of the constants whose values, one row per run, their predictions depend on."""

    def __init__(self, runs: Sequence[Run], names: Sequence[str]) -> None:
        self.runs = list(runs)
        self.names = tuple(names)
        self.log_measured = np.log([run.measured_s for run in runs])
        groups: dict[object, list[int]] = {}
        for index, run in enumerate(runs):
            flags = (run.stack.name, run.stack.sequence_parallel, generation_of(run.gpu.name))
            key = (structure(run.job), run.gpu.name, run.fabric, flags, schedule_of(run.knobs))
            groups.setdefault(key, []).append(index)
        self._groups = [self._group(members) for members in groups.values()]
        self._chosen: list[_Chosen] = []

    def _group(self, members: list[int]) -> _Group:
        rows: list[dict[str, int]] = []
        owners: list[int] = []
        for index in members:
            options = candidates(self.runs[index])
            rows += options
            owners += [index] * len(options)
        jobs = [self.runs[index].job for index in owners]
        return _Group(self.runs[members[0]], members, np.array(owners), jobs, columns_from(rows))

    def log_times(self, constants: FloatArray) -> FloatArray:
        """ln(iteration time) of every run under its row of `constants`; also chooses what is unstated."""
        times = np.zeros(len(self.runs))
        self._chosen = []
        for group in self._groups:
            run = group.run
            stack = self._stack(run, constants[group.members[0]])
            job = stacked(group.jobs)
            layers = layers_of([self.runs[index] for index in group.owners], job, group.columns)
            at = Setting.of(job, run.gpu, run.fabric, stack, group.columns)
            found = iteration_estimate(at, schedule=schedule_of(run.knobs), layers=layers)
            owners, weights, rows = [], [], []
            for index in group.members:
                mine = np.flatnonzero(group.owners == index)
                pick = chosen(self.runs[index], found.iteration_s[mine], found.peak_bytes[mine])
                times[index] = math.log(pick.iteration_s)
                for row, weight in pick.blend:
                    owners.append(index)
                    weights.append(weight)
                    rows.append(int(mine[row]))
            self._chosen.append(_Chosen(group, np.array(owners), np.array(weights), np.array(rows)))
        return times

    def jacobian(self, constants: FloatArray) -> FloatArray:
        """d ln(time) / d ln(constant) at the last choice, runs x constants: forward differences, one call per group."""
        width = len(self.names)
        slopes = np.zeros((len(self.runs), width))
        for one in self._chosen:
            run, count = one.group.run, len(one.owners)
            values = np.repeat(constants[one.owners][:, None, :], width + 1, axis=1)
            values[:, np.arange(width) + 1, np.arange(width)] *= math.exp(STEP)
            flat = values.reshape(count * (width + 1), width)
            jobs = stacked([one.group.jobs[row] for row in one.rows for _ in range(width + 1)])
            columns = one.group.columns.take(np.repeat(one.rows, width + 1))
            stack = self._stack(run, flat.T)
            layers = layers_of([self.runs[index] for index in np.repeat(one.owners, width + 1)], jobs, columns)
            at = Setting.of(jobs, run.gpu, run.fabric, stack, columns)
            found = iteration_estimate(at, schedule=schedule_of(run.knobs), layers=layers)
            total = np.zeros((len(self.runs), width + 1))
            np.add.at(total, one.owners, one.weights[:, None] * found.iteration_s.reshape(count, width + 1))
            logs = np.log(total[one.group.members])
            slopes[one.group.members] = (logs[:, 1:] - logs[:, :1]) / STEP
        return slopes

    def _stack(self, run: Run, values: FloatArray) -> StackProfile:
        """The run's profile with other constants; not checked, and the values may be arrays with one entry per row."""
        fields = {name: getattr(run.stack, name) for name in StackProfile.model_fields}
        for name, value in zip(self.names, values, strict=True):
            fields[name] = Constant.model_construct(value=value, origin="fitted", source="")
        return StackProfile.model_construct(**{**fields, "generations": ()})
