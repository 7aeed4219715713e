"""Best-first search over configurations with a certificate: the least bound of everything not yet ruled out.

Owns the incumbent and the stages of the search. The frontier orders, `evaluation` times, `verify` judges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from models.outcome import Planned, Progress
from models.plan import Configuration, Plan, Proof
from solver.baselines.run import Tried, baseline_of, try_policies
from solver.context import Context
from solver.evaluation.candidate import Candidate
from solver.evaluation.draft import Draft, draft
from solver.evaluation.places import placements
from solver.evaluation.polish import polish, relaxed_bound_s
from solver.evaluation.report import exceeds_traffic_limit, extra_usd, plan_of
from solver.evaluation.scheduling import Schedulers, portfolio_timing
from solver.frontier import Frontier
from solver.objective import Goal
from solver.space.bounds import speed_of_light_s
from solver.space.enumerate import Space
from solver.verify.judge import judge

EXPLORE_SHARE, POLISH_SHARE = 0.35, 0.9
NUM_POLISHED = 3
TIGHTENED_PER_TRY = 8
WORTH_JUDGING = {"search": 0.01, "polish": 1e-9}  # relative improvement that makes a draft the incumbent
PROVEN = {
    "iteration_time": "No configuration of the space, on any placement, transport or schedule of the stated model, "
    "beats the bound; flows between places are free in it.",
    "cost_per_token": "The gap is that of the cost; the bound is the iteration time at which this plan would reach the "
    "least cost that any configuration of the space may have.",
    "fewest_gpus": "The gap is that of the number of GPUs; the bound is the iteration time scaled by the fewest GPUs "
    "that may reach the target over those used.",
}


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
    open_bound: float = 0.0
    _drafts: dict[object, Draft] = field(default_factory=dict)
    _best: Draft | None = None
    _value: float = float("inf")
    _plan: Plan | None = None
    _rejected: int = 0
    _tried: list[Tried] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.goal = Goal.of(self.context)
        self.frontier = Frontier(self.context, self.space, self.goal)
        self._schedulers = Schedulers(self.context, self.hooks.clock, self.hooks.cancelled)

    def run(self) -> Plan | None:
        """Explore, polish the best, explore and tighten on; the best judged plan, or None."""
        limit_s = self.context.request.options.time_limit_s
        self._load()
        if len(self.frontier.rows):
            self._explore(self._deadline(limit_s * EXPLORE_SHARE))
            self._compare(self._deadline(limit_s))
            self._polish(self._deadline(limit_s * POLISH_SHARE))
            self._explore(self._deadline(limit_s))
        self.complete = self.complete or self._good_enough()
        self._tell("done", "")
        return None if self._plan is None else self._finished_plan()

    @property
    def nothing_open(self) -> bool:
        """Every configuration is priced, and none fits into memory and may reach the target."""
        return self.frontier.exhausted and not np.isfinite(self.frontier.bound).any()

    @property
    def least_s(self) -> float:
        """No plan can take less than this."""
        return min(self.frontier.fastest_s, max(self.frontier.cheapest_s, speed_of_light_s(self.context)))

    def account(self) -> str:
        """What was tried, in one sentence."""
        return (
            f"{len(self.frontier.explored)} of {len(self.space)} configurations placed and timed, "
            f"{self._rejected} rejected by the judge"
        )

    def _deadline(self, after_s: float) -> float:
        return self.hooks.started_s + after_s

    def _stopped(self, deadline: float) -> bool:
        return self.hooks.clock() >= deadline or self.hooks.cancelled() or self._good_enough()

    def _good_enough(self) -> bool:
        return self._best is not None and self._gap() <= self.context.request.options.relative_gap

    def _gap(self) -> float:
        return max(self._value - self.open_bound, 0.0) / self._value

    def _cut(self) -> float:
        """Configurations whose bound is not below this cannot improve the plan by more than the gap."""
        return self._value * (1.0 - self.context.request.options.relative_gap)

    def _load(self) -> None:
        if self.frontier.load(self._cut(), planned=self._best is not None):
            self._update_bound()
            self._tell("bounds", f"{len(self.frontier.rows)} configurations fit")

    def _update_bound(self) -> None:
        self.open_bound = max(self.open_bound, min(self.frontier.least_bound, self._value))

    def _explore(self, deadline: float) -> None:
        """Take the most promising configuration, then tighten the least bounds; load more when none is left."""
        while not self._stopped(deadline):
            self._load()
            index = self.frontier.next(self._cut())
            if index is None and not self.frontier.tighten(self._cut()):
                self.complete = self.frontier.exhausted
                self._update_bound()
                return
            if index is not None:
                self._explore_one(index)
            for _ in range(TIGHTENED_PER_TRY):
                if self._stopped(deadline) or not self.frontier.tighten(self._cut()):
                    break
            self._update_bound()

    def _explore_one(self, index: int) -> None:
        """Place and time a configuration, unless its sharper bound already rules it out."""
        self.frontier.explored.add(index)
        configuration = self.frontier.sharpen(index)
        if self.frontier.bound[index] < self._cut():
            for candidate in placements(self.context, configuration, ("replicas_whole", "ranks_whole")):
                self._consider(self._timed(candidate), "search")

    def _timed(self, candidate: Candidate) -> Draft | None:
        cutoff_s = self.goal.seconds(self._cut(), candidate.configuration.degrees.num_gpus)
        return draft(self.context, candidate, self._schedulers.quick, cutoff_s=cutoff_s)

    def _compare(self, deadline: float) -> None:
        """Baselines: their best drafts are candidates like any other, so no plan is worse than a baseline."""
        self._tried = try_policies(
            self.context, self.frontier.taken(), self.frontier.guess, stopped=lambda: self.hooks.clock() >= deadline
        )
        for tried in self._tried:
            if tried.best is not None:
                candidate, policy = tried.best.candidate, tried.policy
                self._consider(self._timed(candidate), "polish")
                own_way = partial(portfolio_timing, names=policy.generators)
                self._consider(draft(self.context, candidate, own_way), "polish")

    def _consider(self, found: Draft | None, phase: str) -> None:
        """Keep the draft among the best; a new incumbent is written out and judged first."""
        if found is None or exceeds_traffic_limit(self.context, found):
            return
        shape = _pipeline_shape(found.candidate.configuration)
        if shape not in self._drafts or found.iteration_s < self._drafts[shape].iteration_s:
            self._drafts[shape] = found
        value = self._value_of(found)
        if value >= self._value * (1 - WORTH_JUDGING[phase]):
            return
        plan = plan_of(self.context, found, self._proof(found, value))
        verdict = judge(self.context.request, plan)
        if not verdict.accepted:
            self._rejected += 1
            first = verdict.violations[0]
            self._tell(phase, f"judge objects: {first.rule} at {first.where}: {first.detail}"[:300])
            return
        self._best, self._value, self._plan = found, value, plan.model_copy(update={"verdict": verdict})
        self._update_bound()
        self.hooks.incumbent(Planned(plan=self._finished_plan(), complete=False, elapsed_s=self._elapsed()))
        degrees = found.candidate.configuration.degrees
        self._tell(phase, f"{self._plan.placement.crossing}, tp {degrees.tp} pp {degrees.pp} dp {degrees.dp}")

    def _value_of(self, found: Draft) -> float:
        extra = extra_usd(self.context, found, self.goal.usd_per_gpu_s) if self.goal.counts_usd else 0.0
        return self.goal.value(found.iteration_s, found.candidate.configuration.degrees.num_gpus, extra)

    def _polish(self, deadline: float) -> None:
        """CP-SAT schedules and priced placements for the drafts of the most promising pipeline shapes."""
        promising = sorted(self._drafts.values(), key=self._promise)[:NUM_POLISHED]
        for index, found in enumerate(promising):
            if self._stopped(deadline):
                return
            share_s = (deadline - self.hooks.clock()) / (len(promising) - index)
            for better in polish(self.context, found, self._schedulers, share_s):
                self._consider(better, "polish")

    def _promise(self, found: Draft) -> float:
        """Half way between what a draft is worth and what its configuration may be worth at best."""
        configuration = found.candidate.configuration
        best_s = relaxed_bound_s(self.context, configuration)
        return self._value_of(found) + self.goal.value(best_s, configuration.degrees.num_gpus)

    def _proof(self, found: Draft, value: float) -> Proof:
        bound = min(self.open_bound, value)
        gap = (value - bound) / value
        return Proof(
            lower_bound_s=found.iteration_s * (1.0 - gap),
            relative_gap=gap,
            status="optimal" if gap <= self.context.request.options.relative_gap else "feasible",
            speed_of_light_s=speed_of_light_s(self.context),
            num_configurations=len(self.space),
            num_pruned=self.frontier.num_ruled_out(self._cut()),
            num_explored=len(self.frontier.explored),
            proven=PROVEN[self.context.request.objective.kind],
        )

    def _finished_plan(self) -> Plan:
        assert self._best is not None
        assert self._plan is not None
        baselines = tuple(baseline_of(tried, self._best.iteration_s) for tried in self._tried)
        return self._plan.model_copy(update={"proof": self._proof(self._best, self._value), "baselines": baselines})

    def _elapsed(self) -> float:
        return self.hooks.clock() - self.hooks.started_s

    def _tell(self, phase: str, message: str) -> None:
        best_s = None if self._best is None else self._best.iteration_s
        by_time = self.context.request.objective.kind == "iteration_time" and np.isfinite(self.open_bound)
        self.hooks.progress(
            Progress(
                phase=phase,
                elapsed_s=self._elapsed(),
                incumbent_s=best_s,
                lower_bound_s=best_s * (1.0 - self._gap()) if best_s else self.open_bound if by_time else None,
                relative_gap=None if self._best is None else self._gap(),
                num_configurations=len(self.space),
                num_explored=len(self.frontier.explored),
                num_pruned=self.frontier.num_ruled_out(self._cut()),
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
        degrees.num_gpus,
        configuration.family,
        configuration.num_microbatches,
        configuration.recompute,
    )
