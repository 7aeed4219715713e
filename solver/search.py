"""Best-first search over configurations with a certificate: the least bound of everything not yet ruled out.

Owns the order of exploration, the incumbent and the open bound. `evaluation` times, `verify` judges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from models.outcome import Planned, Progress
from models.plan import Configuration, Plan, Proof
from solver.baselines.run import Tried, baseline_of, try_policies
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.draft import Draft, draft
from solver.evaluation.places import placements
from solver.evaluation.polish import polish, relaxed_bound_s
from solver.evaluation.report import plan_of
from solver.evaluation.scheduling import Schedulers
from solver.space.bounds import cheap_bounds, lower_bounds, speed_of_light_s
from solver.space.enumerate import Space
from solver.verify.judge import judge

FIRST_ROWS_FACTOR = 2.0  # configurations whose cheap bound is within this factor of the least are priced at once
MAX_ROWS_AT_ONCE = 60_000
REPEAT_PENALTY = 0.02  # each further configuration of one pipeline shape waits a little longer
EXPLORE_SHARE, POLISH_SHARE = 0.35, 0.9
NUM_POLISHED = 3
TIGHTENED_PER_TRY = 8
WORTH_JUDGING = {"search": 0.01, "polish": 1e-9}  # relative improvement that makes a draft the incumbent


@dataclass(frozen=True)
class Hooks:
    """The world as the search sees it."""

    progress: Callable[[Progress], None]
    incumbent: Callable[[Planned], None]
    cancelled: Callable[[], bool]
    clock: Callable[[], float]
    started_s: float


@dataclass
class Search:
    """One search. `run` returns the best judged plan; the attributes say how far it came."""

    context: Context
    space: Space
    hooks: Hooks
    complete: bool = False
    nothing_fits: bool = False
    open_bound_s: float = 0.0
    _rows: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _bound: FloatArray = field(default_factory=lambda: np.zeros(0))
    _guess: FloatArray = field(default_factory=lambda: np.zeros(0))
    _explored: set[int] = field(default_factory=set)
    _relaxed: set[int] = field(default_factory=set)
    _drafts: dict[object, Draft] = field(default_factory=dict)
    _best: Draft | None = None
    _plan: Plan | None = None
    _rejected: int = 0
    _tried: list[Tried] = field(default_factory=list)

    def run(self) -> Plan | None:
        """Explore, polish the best, explore and tighten on; the best judged plan, or None."""
        limit_s = self.context.request.options.time_limit_s
        self._schedulers = Schedulers(self.context, self.hooks.clock, self.hooks.cancelled)
        self._cheap = cheap_bounds(self.context, self.space)
        self._pending = np.argsort(self._cheap, kind="stable")
        self._load()
        if not len(self._rows) and not len(self._pending):
            self.nothing_fits = True
            return None
        self._explore(self._deadline(limit_s * EXPLORE_SHARE))
        self._compare()
        self._polish(self._deadline(limit_s * POLISH_SHARE))
        self._explore(self._deadline(limit_s))
        self.complete = self.complete or self._good_enough()
        self._tell("done", "")
        return self._finished()

    def _compare(self) -> None:
        """Baselines: their best drafts are candidates like any other, so no plan is worse than a baseline."""
        self._tried = try_policies(self.context, self.space.take(self._rows), self._guess)
        for tried in self._tried:
            if tried.best is not None:
                self._consider(self._timed(tried.best.candidate), "search")

    def account(self) -> str:
        """What was tried, in one sentence."""
        return (
            f"{len(self._explored)} of {len(self.space)} configurations placed and timed, "
            f"{self._rejected} rejected by the judge"
        )

    def _deadline(self, after_s: float) -> float:
        return self.hooks.started_s + after_s

    def _stopped(self, deadline: float) -> bool:
        return self.hooks.clock() >= deadline or self.hooks.cancelled() or self._good_enough()

    def _good_enough(self) -> bool:
        if self._best is None:
            return False
        gap = (self._best.iteration_s - self.open_bound_s) / self._best.iteration_s
        return gap <= self.context.request.options.relative_gap

    def _load(self) -> None:
        """Price the next configurations by their cheap bounds while they may hold the least bound, or none is left."""
        while len(self._pending) and (not len(self._rows) or self._must_load()):
            limit_s = FIRST_ROWS_FACTOR * self._pending_bound_s()
            take = int(np.searchsorted(self._cheap[self._pending], limit_s, side="right"))
            rows = self._pending[: min(max(take, 1), MAX_ROWS_AT_ONCE)]
            self._pending = self._pending[len(rows) :]
            bounds = lower_bounds(self.context, self.space.take(rows))
            keep = bounds.fits
            self._rows = np.concatenate([self._rows, rows[keep]])
            self._bound = np.concatenate([self._bound, bounds.iteration_s[keep]])
            self._guess = np.concatenate([self._guess, self._guesses(rows[keep], bounds.guess_s[keep])])
            self._update_bound()
            self._tell("bounds", f"{len(self._rows)} configurations fit")

    def _must_load(self) -> bool:
        """Nothing that is loaded is left to try, or what is not has the least bound and may beat the plan."""
        if self._next() is None:
            return self._pending_bound_s() < self._cut_s()
        return self._best is not None and self._pending_bound_s() < min(float(self._bound.min()), self._cut_s())

    def _guesses(self, rows: np.ndarray, guess_s: FloatArray) -> FloatArray:
        """Expected times, later entries of one pipeline shape a little later, so that shapes are tried in turn."""
        columns, family = self.space.columns, self.space.family
        shapes = np.stack(
            [getattr(columns, name)[rows] for name in ("tp", "pp", "vpp", "num_microbatches", "recompute")]
            + [family[rows]]
        )
        order = np.argsort(guess_s, kind="stable")
        _, inverse = np.unique(shapes[:, order], axis=1, return_inverse=True)
        seen = np.zeros(int(inverse.max(initial=0)) + 1, dtype=np.int64)
        repeats = np.zeros(len(rows))
        for place, shape in zip(order, inverse.ravel(), strict=True):
            repeats[place] = seen[shape]
            seen[shape] += 1
        return guess_s * (1.0 + REPEAT_PENALTY * repeats)

    def _pending_bound_s(self) -> float:
        return float(self._cheap[self._pending[0]]) if len(self._pending) else float("inf")

    def _cut_s(self) -> float:
        """Configurations whose bound is not below this cannot improve the plan by more than the gap."""
        if self._best is None:
            return float("inf")
        return self._best.iteration_s * (1.0 - self.context.request.options.relative_gap)

    def _update_bound(self) -> None:
        incumbent = float("inf") if self._best is None else self._best.iteration_s
        least = float(self._bound.min(initial=float("inf")))
        self.open_bound_s = max(self.open_bound_s, min(least, self._pending_bound_s(), incumbent))

    def _explore(self, deadline: float) -> None:
        """Take the most promising configuration, then tighten the least bound; load more when none is left."""
        while not self._stopped(deadline):
            self._load()
            index = self._next()
            if index is None and not self._tighten():
                self.complete = not len(self._pending)
                return
            self._explore_one()
            for _ in range(TIGHTENED_PER_TRY):
                if self._stopped(deadline) or not self._tighten():
                    break

    def _explore_one(self) -> None:
        """Place and time the most promising configuration, unless its sharper bound already rules it out."""
        index = self._next()
        if index is not None:
            self._explored.add(index)
            configuration = self._sharpen(index)
            if self._bound[index] < self._cut_s():
                self._try(configuration)

    def _sharpen(self, index: int) -> Configuration:
        """Replace a configuration's bound by the pipeline's own."""
        configuration = configuration_of(self.context, self.space, int(self._rows[index]))
        if index not in self._relaxed:
            self._relaxed.add(index)
            self._bound[index] = max(self._bound[index], relaxed_bound_s(self.context, configuration))
            self._update_bound()
        return configuration

    def _next(self) -> int | None:
        open_rows = np.flatnonzero(self._bound < self._cut_s())
        left = [index for index in open_rows[np.argsort(self._guess[open_rows])][: len(self._explored) + 1]
                if int(index) not in self._explored]  # fmt: skip
        return int(left[0]) if left else None

    def _tighten(self) -> bool:
        """Sharpen the least bound that is not sharp yet; false when none is left below the cut."""
        order = np.argsort(self._bound, kind="stable")
        for index in order[: len(self._relaxed) + 1]:
            if self._bound[index] >= self._cut_s():
                break
            if int(index) not in self._relaxed:
                self._sharpen(int(index))
                return True
        return False

    def _try(self, configuration: Configuration) -> None:
        for candidate in placements(self.context, configuration, ("replicas_whole", "ranks_whole")):
            self._consider(self._timed(candidate), "search")

    def _timed(self, candidate: Candidate) -> Draft | None:
        return draft(self.context, candidate, self._schedulers.quick, cutoff_s=self._cut_s())

    def _consider(self, found: Draft | None, phase: str) -> None:
        """Keep the draft among the best; a new incumbent is written out and judged first."""
        if found is None:
            return
        shape = _pipeline_shape(found.candidate.configuration)
        if shape not in self._drafts or found.iteration_s < self._drafts[shape].iteration_s:
            self._drafts[shape] = found
        if self._best is not None and found.iteration_s >= self._best.iteration_s * (1 - WORTH_JUDGING[phase]):
            return
        plan = plan_of(self.context, found, self._proof(found))
        verdict = judge(self.context.request, plan)
        if not verdict.accepted:
            self._rejected += 1
            first = verdict.violations[0]
            self._tell(phase, f"judge objects: {first.rule} at {first.where}: {first.detail}"[:300])
            return
        self._best, self._plan = found, plan.model_copy(update={"verdict": verdict})
        self._update_bound()
        self.hooks.incumbent(Planned(plan=self._finished_plan(), complete=False, elapsed_s=self._elapsed()))
        degrees = found.candidate.configuration.degrees
        self._tell(phase, f"{self._plan.placement.crossing}, tp {degrees.tp} pp {degrees.pp} dp {degrees.dp}")

    def _polish(self, deadline: float) -> None:
        """CP-SAT schedules and priced placements for the drafts of the most promising pipeline shapes."""
        promising = sorted(self._drafts.values(), key=self._promise_s)[:NUM_POLISHED]
        for index, found in enumerate(promising):
            if self._stopped(deadline):
                return
            share = (deadline - self.hooks.clock()) / (NUM_POLISHED - index)
            for better in polish(self.context, found, self._schedulers, share):
                self._consider(better, "polish")

    def _promise_s(self, found: Draft) -> float:
        """Half way between what a draft takes and what its configuration may take at best."""
        return found.iteration_s + relaxed_bound_s(self.context, found.candidate.configuration)

    def _proof(self, found: Draft) -> Proof:
        time_s = found.iteration_s
        bound_s = min(self.open_bound_s, time_s)
        gap = (time_s - bound_s) / time_s
        pruned = int(np.count_nonzero(self._bound >= self._cut_s()))
        return Proof(
            lower_bound_s=bound_s,
            relative_gap=gap,
            status="optimal" if gap <= self.context.request.options.relative_gap else "feasible",
            speed_of_light_s=speed_of_light_s(self.context),
            num_configurations=len(self.space),
            num_pruned=pruned + len(self.space) - len(self._rows) - len(self._pending),
            num_explored=len(self._explored),
            proven="No configuration of the space, on any placement, transport or schedule of the stated model, "
            "beats the bound; flows between places are free in it.",
        )

    def _finished_plan(self) -> Plan:
        assert self._best is not None
        assert self._plan is not None
        baselines = tuple(baseline_of(tried, self._best.iteration_s) for tried in self._tried)
        return self._plan.model_copy(update={"proof": self._proof(self._best), "baselines": baselines})

    def _finished(self) -> Plan | None:
        return None if self._plan is None else self._finished_plan()

    def _elapsed(self) -> float:
        return self.hooks.clock() - self.hooks.started_s

    def _tell(self, phase: str, message: str) -> None:
        time_s = None if self._best is None else self._best.iteration_s
        gap = None if time_s is None else max(time_s - self.open_bound_s, 0.0) / time_s
        self.hooks.progress(
            Progress(
                phase=phase,
                elapsed_s=self._elapsed(),
                incumbent_s=time_s,
                lower_bound_s=self.open_bound_s if np.isfinite(self.open_bound_s) else None,
                relative_gap=gap,
                num_configurations=len(self.space),
                num_explored=len(self._explored),
                num_pruned=int(np.count_nonzero(self._bound >= self._cut_s())),
                message=message,
            )
        )


def _pipeline_shape(configuration: Configuration) -> tuple[object, ...]:
    """Configurations that differ in nothing else have almost the same pipeline to schedule."""
    degrees = configuration.degrees
    return (
        degrees.tp,
        degrees.pp,
        degrees.vpp,
        configuration.family,
        configuration.num_microbatches,
        configuration.recompute,
    )
