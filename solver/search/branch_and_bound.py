"""Best-first search over configurations with a certificate: the least bound of everything not yet ruled out.

Owns the stages of the search and what each may spend. The frontier orders, `evaluation` times, the incumbent judges.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice

import numpy as np

from models.plan import Plan
from solver.baselines.policies import POLICIES
from solver.baselines.run import BaselineResult, Effort, configurations_for, try_policies
from solver.bounds.relaxation import relaxed_bound_s
from solver.clock import WORK_PER_EVALUATION_S, WORK_PER_OPERATION_S, WORK_PER_PLAN_S, WORK_PER_ROW_S, charge
from solver.configurations.enumerate import Space
from solver.context import Context
from solver.evaluation.candidate import Candidate, space_of
from solver.evaluation.evaluate import Evaluation
from solver.evaluation.improve import improve
from solver.evaluation.scheduling import Schedulers
from solver.objective import Goal
from solver.search import phases
from solver.search.dispatcher import REFINE_SHARE, TaskDispatcher
from solver.search.frontier import Frontier
from solver.search.hooks import Hooks
from solver.search.incumbent import Incumbent
from solver.search.phases import Phases
from solver.search.pricing import Pricing
from solver.search.result import SearchResult
from solver.search.tasks import (
    BaselineTask,
    Bounded,
    EvaluateTask,
    ImproveTask,
    PartialResult,
    RefineBoundTask,
    SearchTask,
    TaskContext,
    placed,
    rivals,
)
from solver.search.worker_pool import NoWorkerPool, WorkerPool

ALONE_S = 1.0  # a search is alone for so long, and when no more is left: most small ones are over by then
MOST_COMPARED = 40  # configurations of which a baseline tries some, where somebody else tries it
WAIT_S = 0.05  # for events, when there is nothing else to do
PORTIONS_AT_ONCE = 4  # priced before something else has its turn
REFINED_PER_TRY = 8  # bounds refined after a configuration was tried, at least
MOST_TIED = 24  # configurations as good as the plan that are tried for a faster one
NUM_PROMISING = 12  # evaluations of different pipeline shapes that are weighed for improvement,
NUM_IMPROVED = 3  # and those of them that are improved
WORTH_JUDGING = {"search": 0.01, "polish": 1e-9}  # relative improvement that makes an evaluation the incumbent


@dataclass
class Search:
    """One search. `run` returns the best judged plan; the attributes say how far it came."""

    context: Context
    space: Space
    hooks: Hooks
    worker_pool: WorkerPool = field(default_factory=NoWorkerPool)
    complete: bool = False
    _first: set[Candidate] = field(default_factory=set)
    _wanted: deque[SearchTask] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._work(WORK_PER_ROW_S * len(self.space))
        self.goal = Goal.of(self.context)
        self._phases = Phases(self.hooks, self.context.request.options.time_limit_s)
        self.frontier = Frontier(
            self.context, self.space, self.goal, lambda: not self._phases.has_room(phases.LOOK_SHARE)
        )
        self.best = Incumbent(self.context, self.goal)
        self.result = SearchResult(self.context, self.hooks, self.frontier, self.best)
        self._pricing = Pricing(self.frontier, self._phases)
        self._schedulers = Schedulers(self.context, self.hooks.clock, self.hooks.cancelled, self._phases.ends_s)
        self._task_context = TaskContext(self.context, self.goal, self._schedulers)
        self.dispatcher = TaskDispatcher(self.worker_pool, partial(self.result.tell, "search"), self._take_back)
        self.result.num_underway = lambda: self.dispatcher.num_underway(EvaluateTask)

    def run(self) -> Plan | None:
        """Explore, improve the best, explore and refine on; the best judged plan, or None."""
        while not len(self.frontier.rows) and self._load():
            continue
        if len(self.frontier.rows):
            self._search()
            self._settle()
        self.complete = self.complete or self.result.good_enough()
        return self.result.finished_plan(self._schedulers.quick, self._phases, complete=self.complete)

    def _search(self) -> None:
        try:
            self._explore(self._phases.deadline(phases.EXPLORE_SHARE))
            if self.best.plan is None:
                self._explore(self._phases.deadline(phases.FIRST_SHARE), until_planned=True)
            if self.result.good_enough():
                self._break_ties(phases.TIES_SHARE)
            self._compare(self._phases.deadline(phases.COMPARE_SHARE))
            # A better schedule or placement changes nothing of how many GPUs a plan has.
            improve = self._explore if self.goal.objective.kind == "fewest_gpus" else self._improve
            improve(self._phases.deadline(phases.IMPROVE_SHARE))
            self._break_ties(phases.LAST_SHARE)
            self._explore(self._phases.ends_s)
            self._take_in_results()
            self._phases.only_short_steps(WORK_PER_EVALUATION_S)  # until the end bounds are refined
            self._load()
            self._refine_bounds(self._phases.ends_s)
            self.result.update_bound()
            self._compare_no_more()
        finally:
            self.worker_pool.shutdown()

    def _work(self, seconds: float) -> None:
        charge(self.hooks.clock, seconds)

    def _stopped(self, deadline: float) -> bool:
        """Time is up, or would be before another step ends, or nothing more is wanted."""
        planned = self.best.plan is not None
        late = self.hooks.clock() >= deadline or (planned and not self._phases.has_room())
        return late or self.hooks.cancelled() or self.result.good_enough()

    def _load(self) -> bool:
        """Price what may hold the least bound, a few portions before something else has its turn; whether any was."""
        for portion in range(PORTIONS_AT_ONCE):
            planned = self.best.plan is not None
            if (portion and self._late()) or not self._pricing.load(
                self.result.cutoff(), planned=planned, until_s=self._phases.ends_s
            ):
                return portion > 0
            self.result.update_bound()
            self.result.tell("bounds", f"{len(self.frontier.rows)} configurations fit")
        return True

    def _explore(self, deadline: float, *, until_planned: bool = False) -> None:
        """Explore until it is late, or nothing is left to explore and to refine."""
        while not self._stopped(deadline) and not (until_planned and self.best.plan is not None):
            if not self._step(deadline):
                if not self.dispatcher.is_busy:
                    self.complete = self.frontier.exhausted
                    self.result.update_bound()
                    return
                self._attend(WAIT_S)

    def _step(self, deadline: float) -> bool:
        """Take the most promising configuration, then refine the least bounds; load more when none is left.

        What was wanted and nobody else has room for comes first. False when there is nothing to do.
        """
        self._load()
        self._attend()
        own = self._wanted.popleft() if self._wanted else self.dispatcher.withdraw()
        if own is not None:
            self._do(own)
            return True
        index = self.frontier.next(self.result.cutoff(), planned=self.best.plan is not None)
        if index is None and not self._refine_least():
            return False
        if index is not None:
            self._explore_one(index)
        self._refine_bounds(min(deadline, self.hooks.clock() + REFINE_SHARE * self._phases.last_step_s))
        self.result.update_bound()
        return True

    def _see_done(self, kind: type[SearchTask], deadline: float) -> None:
        """Have the wanted tasks done by whoever is free, and explore on meanwhile."""
        while self._wanted or self.dispatcher.num_underway(kind):
            if self.hooks.clock() >= deadline or self.hooks.cancelled():
                return
            idle = self._stopped(deadline) and not self._wanted and self.dispatcher.num_workers
            if idle or not self._step(deadline):
                self._attend(WAIT_S)

    def _refine_bounds(self, until_s: float) -> None:
        """Refine the least bounds for as long as that; a few in any case."""
        began_s = self.hooks.clock()
        for number in count():
            self._attend()
            late = number >= REFINED_PER_TRY and self.hooks.clock() >= until_s
            if late or self._stopped(self._phases.ends_s) or not self._refine_least():
                self.dispatcher.spend(RefineBoundTask, self.hooks.clock() - began_s)
                return

    def _refine_least(self) -> bool:
        self._work(WORK_PER_EVALUATION_S / 4)
        return self.frontier.refine_least(self.result.cutoff())

    def _explore_one(self, index: int) -> None:
        """Place and time a configuration, unless its sharper bound already rules it out.

        The first plan does not wait for its other placements: they have their turn after it.
        """
        began_s, planned = self.hooks.clock(), self.best.plan is not None
        self.frontier.explored.add(index)
        self._submit_tasks(for_long=True)
        configuration = self.frontier.refine_bound(index, self.result.cutoff())
        self._work(WORK_PER_EVALUATION_S / 4)
        if self.frontier.bound[index] < self.result.cutoff():
            for candidate in placed(self.context, configuration):
                if candidate in self._first:
                    continue
                self._consider(self._task_context.timed(candidate, self.result.cutoff()), "search")
                self._attend()
                if not planned:
                    self._first.add(candidate)
                    if self.best.plan is not None:
                        self.frontier.explored.discard(index)
                        break
        self._phases.took(self.hooks.clock() - began_s)
        self.dispatcher.spend(EvaluateTask, self._phases.last_step_s)

    def _break_ties(self, share: float) -> None:
        """Where time only has to reach a target: of the configurations that are as good, those that may be faster."""
        wanted = self.best.evaluation is not None and self.goal.has_target
        for index in self.frontier.tied(self.best.value, MOST_TIED) if wanted else ():
            if self.best.evaluation is None or not self._phases.has_room(share) or self.hooks.cancelled():
                return
            began_s = self.hooks.clock()
            self.frontier.explored.add(index)
            for candidate in placed(self.context, self.frontier.configuration(index)):
                self._consider(self._task_context.timed_within(candidate, self.best.evaluation.iteration_s), "polish")
            self._phases.took(self.hooks.clock() - began_s)

    def _compare(self, deadline: float) -> None:
        """Baselines: their best evaluations are candidates like any other, so no plan is worse than a baseline."""
        self.result.comparison.price(self._pricing, deadline, self.hooks.cancelled)
        priced, guess = self.frontier.taken(), self.frontier.guess
        if not self.dispatcher.num_workers:
            effort = Effort(self.hooks.clock, self.hooks.cancelled, deadline, self._phases.ends_s)
            for tried in try_policies(self.context, priced, guess, effort):
                for found in rivals(self._task_context, tried, effort, cutoff=self.result.cutoff, stopped=self._late):
                    self._consider(found, "polish")
                self._compared(tried)
            return
        seconds = self.dispatcher.share_s(len(POLICIES), deadline - self.hooks.clock())
        for number, policy in enumerate(POLICIES):
            considered = tuple(islice(configurations_for(self.context, policy, priced, guess), MOST_COMPARED))
            if considered:
                self._wanted.append(BaselineTask(number, considered, seconds, self.result.cutoff()))
        self._see_done(BaselineTask, deadline)

    def _late(self) -> bool:
        return self._stopped(self._phases.ends_s)

    def _compared(self, tried: BaselineResult) -> None:
        """A baseline that the search had its turn with. A time of a plan that the judge rejects is none."""
        own = None if tried.best is None else self.best.value_of(tried.best)
        if tried.best is not None and own is not None and self.best.is_better(tried.best, own, WORTH_JUDGING["polish"]):
            tried = replace(tried, best=None, reason="no time was left to judge its best plan")
        elif own is not None and own < self.best.value * (1.0 - WORTH_JUDGING["polish"]):
            tried = replace(tried, best=None, reason="the judge rejects its best plan")
        self.result.comparison.add(tried)

    def _compare_no_more(self) -> None:
        """Baselines that are still tried elsewhere have the time that is left; then what is true of the others."""
        self._see_done(BaselineTask, self._phases.ends_s)
        for policy in self.result.comparison.missing():
            self._compared(BaselineResult(policy, None, self.result.comparison.why_untried(policy)))

    def _consider(self, found: Evaluation | None, phase: str) -> None:
        """Keep the evaluation among the best; a new incumbent is written out and judged first."""
        if found is None:
            return
        value = self.best.value_of(found)
        if not np.isfinite(value):
            return
        self.result.kinds.add(self.context, found, value)
        if self.best.is_better(found, value, WORTH_JUDGING[phase]):
            self._submit(found, value, phase)

    def _submit(self, found: Evaluation, value: float, phase: str) -> None:
        """Have the evaluation judged, unless there is a plan and writing another one out would take too long."""
        began_s = self.hooks.clock()
        if self.best.plan is not None and not self._phases.has_room_for_plan():
            return
        operations = sum(problem.num_operations for problem in set(found.problems))
        self._work(WORK_PER_PLAN_S + 10 * WORK_PER_OPERATION_S * operations)
        self._submit_tasks(for_long=True)
        verdict = self.best.submit(found, value, self.result.proof(found, value))
        self._phases.plan_s = self.hooks.clock() - began_s
        if not verdict.accepted:
            self.result.kinds.drop(found)
            first = verdict.violations[0]
            self.result.tell(phase, f"judge objects: {first.rule} at {first.where}: {first.detail}"[:300])
            return
        self.result.update_bound()
        self.result.show(phase)

    def _settle(self) -> None:
        """An evaluation that was too little better to be judged at once takes its place now."""
        for value, found in self.result.kinds.ranked():
            if not self.best.is_better(found, value, WORTH_JUDGING["polish"]):
                return
            self._submit(found, value, "polish")

    def _improve(self, deadline: float) -> None:
        """CP-SAT schedules and priced placements for the evaluations of the most promising pipeline shapes."""
        self._settle()
        promising = sorted(self.result.kinds.per_shape()[:NUM_PROMISING], key=self._priority)[
            : max(NUM_IMPROVED, self.dispatcher.num_workers)
        ]
        if self.dispatcher.num_workers and not self._stopped(deadline):
            seconds = self.dispatcher.share_s(len(promising), deadline - self.hooks.clock())
            self._wanted.extend(ImproveTask(found, seconds) for _, found in promising)
            self._see_done(ImproveTask, deadline)
            return
        for index, (_, found) in enumerate(promising):
            if self._stopped(deadline):
                return
            now = self.hooks.clock()
            until_s = now + (deadline - now) / (len(promising) - index)
            for better in improve(self.context, found, self._schedulers, until_s):
                self._consider(better, "polish")

    def _priority(self, pair: tuple[float, Evaluation]) -> float:
        """Values of an evaluation and of the bound of its configuration, together: only the order counts."""
        value, found = pair
        best_s = relaxed_bound_s(self.context, found.candidate.configuration)
        size = self.goal.sizes(self.context, space_of(found.candidate.configuration))
        return value + self.goal.value(best_s, float(size[0]))

    def _attend(self, wait_s: float = 0.0) -> None:
        """Take in what the others found, and give them more to do."""
        self._take_in_results(wait_s)
        self._submit_tasks()

    def _submit_tasks(self, *, for_long: bool = False) -> None:
        left_s = self._phases.ends_s - self.hooks.clock()
        if self.hooks.elapsed_s >= ALONE_S and left_s >= ALONE_S:
            self.dispatcher.begin(self._task_context)
        num_workers = self.dispatcher.num_workers
        while self._wanted and num_workers and (for_long or self.dispatcher.num_long < num_workers):
            self.dispatcher.submit(self._wanted.popleft())
        while self.dispatcher.has_capacity(for_long=for_long):
            task = self._next_task()
            if task is None:
                break
            self.dispatcher.submit(task)

    def _take_in_results(self, wait_s: float = 0.0) -> None:
        for task, part in self.dispatcher.results(wait_s):
            self._take_in(part, "search" if isinstance(task, EvaluateTask) else "polish")

    def _take_in(self, part: PartialResult, phase: str) -> None:
        if isinstance(part, Bounded):
            self.frontier.raise_bound(part.index, part.bound_s)
        elif isinstance(part, BaselineResult):
            self._compared(part)
        else:
            self._consider(part, phase)

    def _do(self, task: SearchTask) -> None:
        """A task done here, because the others have enough to do or are gone."""
        self._submit_tasks(for_long=True)
        began_s = self.hooks.clock()
        for part in task.do(self._task_context):
            self._take_in(part, "polish")
            self._attend()
        self.dispatcher.spend(type(task), self.hooks.clock() - began_s)

    def _next_task(self) -> SearchTask | None:
        """What somebody else should do next: the most promising configuration, or the least bounds."""
        if self.dispatcher.refines_too_little:
            return self._to_refine() or self._to_evaluate()
        return self._to_evaluate() or self._to_refine()

    def _to_evaluate(self) -> EvaluateTask | None:
        index = self.frontier.next(self.result.cutoff(), planned=self.best.plan is not None)
        if index is None:
            return None
        self.frontier.explored.add(index)
        self.frontier.refined.add(index)
        cutoff, frontier = self.result.cutoff(), self.frontier
        target_bound_s = frontier.target_bound_s(index, cutoff)
        return EvaluateTask(index, frontier.configuration(index), cutoff, target_bound_s, frozenset(self._first))

    def _to_refine(self) -> RefineBoundTask | None:
        cutoff, frontier = self.result.cutoff(), self.frontier
        places = frontier.unrefined(cutoff, REFINED_PER_TRY)
        frontier.refined.update(places)
        asked = tuple((one, frontier.configuration(one), frontier.target_bound_s(one, cutoff)) for one in places)
        return RefineBoundTask(asked) if asked else None

    def _take_back(self, task: SearchTask, is_harmful: bool) -> None:
        """What nobody does any more has its turn again, unless whoever did it is gone too often."""
        if is_harmful:
            if isinstance(task, BaselineTask):
                reason = "every process that tried it ended unexpectedly"
                self._compared(BaselineResult(POLICIES[task.policy], None, reason))
        elif isinstance(task, EvaluateTask):
            self.frontier.explored.discard(task.index)
        elif isinstance(task, RefineBoundTask):
            self.frontier.refined.difference_update(one[0] for one in task.configurations)
        else:
            self._wanted.appendleft(task)
