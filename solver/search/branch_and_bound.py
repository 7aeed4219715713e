"""Best-first branch and bound over configurations, with a certificate: the least bound of what is not ruled out.

Every step but pricing is a task, done here or by another process; the task runner takes in what comes of it. The
frontier orders and bounds, tasks place and time, the acceptance judges. Parameters are in `params.py`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from models.plan import Plan
from solver.clock import WORK_PER_ROW_S, charge
from solver.configurations.enumerate import Space
from solver.context import Context
from solver.evaluation.scheduling import Schedulers
from solver.objective import Goal
from solver.search.acceptance import Acceptance
from solver.search.choice import baselines, next_evaluation, next_refinement, tie_breaks
from solver.search.comparison import Comparison
from solver.search.dispatcher import TaskDispatcher
from solver.search.frontier import Frontier
from solver.search.hooks import Hooks
from solver.search.incumbent import Incumbent
from solver.search.params import DEFAULTS, SearchParams
from solver.search.phases import Phases
from solver.search.pricing import Pricing
from solver.search.result import SearchResult
from solver.search.runner import TaskRunner
from solver.search.saved import Saver
from solver.search.tasks import (
    AlternativeTask,
    BaselineTask,
    BreakTieTask,
    ImproveTask,
    ReorderTask,
    SearchTask,
    TaskContext,
)
from solver.search.warm_start import COLD, Resumption, WarmStart
from solver.search.worker_pool import WorkerPool


class Search:
    """One search. `run` returns the best judged plan; the attributes say how far it came."""

    def __init__(
        self,
        context: Context,
        space: Space,
        hooks: Hooks,
        worker_pool: WorkerPool,
        *,
        params: SearchParams = DEFAULTS,
        warm_start: WarmStart = COLD,
    ) -> None:
        charge(hooks.clock, WORK_PER_ROW_S * len(space))
        self.params, self.hooks = params, hooks
        self.goal = Goal.of(context)
        self.phases = Phases(hooks, context.request.options.time_limit_s, params)
        self.frontier = Frontier(
            context, space, self.goal, lambda: not self.phases.step_fits(params.look_share), params
        )
        self.best = Incumbent(context, self.goal)
        self.result = SearchResult(context, hooks, self.frontier, self.best, Comparison(self.frontier, self.best))
        self.acceptance = Acceptance(self.result, self.phases)
        self.schedulers = Schedulers(context, hooks.clock, hooks.cancelled, self.phases.ends_s)
        task_context = TaskContext(context, self.goal, self.schedulers, self.best)
        self.dispatcher = TaskDispatcher(worker_pool, task_context, params)
        self.runner = TaskRunner(self.dispatcher, self.frontier, self.acceptance)
        self.pricing = Pricing(self.frontier, self.phases)
        self.saver = Saver(self.frontier, self.best, self.phases)
        self.resumption = Resumption(warm_start, self.acceptance, self.schedulers)
        self.complete = False
        self.evaluating_s = self.refining_s = 0.0

    def run(self) -> Plan | None:
        """Explore, compare, improve the best, explore on, improve again, refine on; the best judged plan, or None."""
        self.resumption.begin()
        while not len(self.frontier.rows) and self._price():
            continue
        if len(self.frontier.rows):
            try:
                self._run_phases()
            finally:
                self.dispatcher.worker_pool.shutdown()
            self.acceptance.settle()
            self.saver.save()
        self.complete = self.complete or self.best.is_good_enough
        return self.result.finished_plan(self.schedulers.quick, self.phases, complete=self.complete)

    def _run_phases(self) -> None:
        params = self.params
        deadline_s = self.phases.deadline(params.explore_share)
        self._see_through(AlternativeTask, self.resumption.alternatives(), deadline_s, self._out_of_time)
        self._explore(params.explore_share)
        if self.best.plan is None:
            self._explore(params.first_share, until_planned=True)
        if self.best.is_good_enough:
            self._break_ties(params.ties_share)
        self._compare(params.compare_share)
        # A better schedule or placement changes nothing of how many GPUs a plan has.
        improvable = self.goal.objective.kind != "fewest_gpus"
        improve, improve_again = (self._improve, self._improve_again) if improvable else (self._explore, self._explore)
        improve(params.improve_share)
        self.saver.save()
        self._explore(params.resume_share)
        improve_again(params.again_share)
        self._break_ties(params.last_share)
        self._explore(params.last_share)
        self.runner.attend()
        self._price(params.short_step_s)
        self._refine(self.phases.ends_s, params.short_step_s)
        self.result.update_bound()
        self._see_through(BaselineTask, (), self.phases.ends_s, self._out_of_time)
        self.result.comparison.add_untried()

    def _explore(self, share: float, *, until_planned: bool = False) -> None:
        """Step by step until this share of the time limit, or until nothing is left to evaluate and to refine."""
        until_s = self.phases.deadline(share)
        while not self._stopped(until_s) and not (until_planned and self.best.plan is not None):
            if self.runner.do_wanted() or self._step(until_s):
                continue
            if not self.dispatcher.num_underway():
                self.complete = self.frontier.exhausted
                self.result.update_bound()
                return
            self.runner.attend(self.params.wait_s)

    def _step(self, until_s: float) -> bool:
        """Price what may hold the least bound, pop the most promising configurations, evaluate, refine, prune.

        One is evaluated, and more until evaluations had their share of the time. False when nothing is left to
        evaluate and to refine.
        """
        self._price()
        clock, began_s = self.hooks.clock, self.hooks.clock()
        due_s = began_s + self.params.evaluate_share * (began_s - self.hooks.started_s) - self.evaluating_s
        task = next_evaluation(self.frontier, self.best) or next_refinement(self.frontier, self.best, 1)
        if task is None:
            return False
        while task is not None:
            self.runner.do(task)
            late = self.best.plan is None or clock() >= due_s or self._stopped(until_s)
            task = None if late else next_evaluation(self.frontier, self.best)
        self.evaluating_s += clock() - began_s
        self._refine(until_s)
        self.result.update_bound()
        self.saver.save_now_and_then()
        return True

    def _refine(self, until_s: float, step_s: float | None = None) -> None:
        """Refine the least bounds until they had their share of the time, or until then, and a few in any case.

        Where what is not priced holds the least bound, price it first: no refined bound raises that of the search.
        With `step_s`, what one takes, until then whatever share that is.
        """
        began_s = self.hooks.clock()
        if step_s is None and self.best.plan is None:
            return  # nothing is ruled out yet, whatever its bound
        if step_s is None:
            due_s = self.params.refine_share * (began_s - self.hooks.started_s) - self.refining_s
            until_s = min(until_s, began_s + due_s)
        for number in count():
            self.runner.attend()
            late = number >= self.params.refined_per_step and self.hooks.clock() >= until_s
            late = late or self._stopped(self.phases.ends_s, step_s)
            if not late and self.frontier.waits_for_prices and self._price(step_s):
                continue
            task = None if late else next_refinement(self.frontier, self.best, 1)
            if task is None:
                break
            self.runner.do(task)
        self.refining_s += self.hooks.clock() - began_s

    def _price(self, step_s: float | None = None) -> bool:
        """Price what may hold the least bound, a few portions before something else has its turn; whether any was."""
        for portion in range(self.params.portions_at_once):
            late = portion and self._stopped(self.phases.ends_s, step_s)
            planned = self.best.plan is not None
            if late or not self.pricing.load(self.best.cutoff, planned=planned, until_s=self.phases.ends_s):
                return portion > 0
            self.result.update_bound()
            self.result.tell("bounds", f"{len(self.frontier.rows)} configurations fit")
        return True

    def _break_ties(self, share: float) -> None:
        """Of the configurations that are as good as the plan by a target, evaluate those that may be faster."""

        def over() -> bool:
            return not self.phases.step_fits(share) or self.hooks.cancelled()

        tasks = tie_breaks(self.frontier, self.best, self.params)
        self._see_through(BreakTieTask, tasks, self.phases.deadline(share), over)

    def _compare(self, share: float) -> None:
        """Baselines: their best evaluations are candidates like any other, so no plan is worse than a baseline."""
        until_s = self.phases.deadline(share)
        self.result.comparison.price(self.pricing, until_s, self.hooks.cancelled)
        tasks = baselines(self.result.comparison, until_s, self.phases.longest_step_s)
        self._see_through(BaselineTask, tasks, until_s, self._out_of_time)

    def _improve(self, share: float) -> None:
        """Better placements and schedules until this share of the time limit, or later where phases before it were."""
        least_s = (share - self.params.compare_share) * self.phases.limit_s
        self._halve(self.phases.deadline(share), least_s)

    def _halve(self, until_s: float, least_s: float = 0.0) -> None:
        """Successive halving: short schedules for many evaluations, longer ones for the best of them, then everything
        that may help for the best one (Jamieson and Talwalkar 2016).

        Other orders of GPU types come first; what then is improved has so many seconds at least.
        """
        self.acceptance.settle_if_due()
        params, promising, doers = self.params, self.result.promising, self.dispatcher.num_workers + 1
        typed = [ReorderTask(one) for one in promising.take_to_reorder(params.num_reordered * doers)]
        self._see_through(ReorderTask, typed, until_s, partial(self._stopped, until_s))
        began_s = self.hooks.clock()
        until_s = max(until_s, began_s + least_s)
        round_s = (until_s - began_s) / params.improve_rounds
        each_s = max(params.least_improve_s, params.improve_steps * self.phases.longest_step_s)
        most = min(int(round_s * doers / each_s), params.num_improved)
        chosen = promising.take(max(most, doers))
        for number in range(1, params.improve_rounds + 1):
            last, ends_s = number == params.improve_rounds, min(began_s + number * round_s, until_s)
            if not last and len(chosen) <= doers:
                continue
            tasks = [ImproveTask(one, ends_s, schedules_only=not last) for one in chosen]
            self._see_through(ImproveTask, tasks, ends_s, partial(self._stopped, ends_s))
            chosen = promising.best_of(chosen, max(len(chosen) // params.improve_narrowing, doers))

    def _improve_again(self, share: float) -> None:
        """What came up since, for a part of the time; then the best evaluation's schedules, from those that it has."""
        now_s, until_s = self.hooks.clock(), min(self.phases.deadline(share), self.phases.last_plan_s)
        self._halve(now_s + self.params.halving_share * (until_s - now_s))
        best = self.acceptance.best_known
        if best is not None:
            again = ImproveTask(best, until_s, schedules_only=True)
            self._see_through(ImproveTask, [again], until_s, partial(self._stopped, until_s))
        self.acceptance.settle()

    def _see_through(
        self, kind: type[SearchTask], tasks: Sequence[SearchTask], until_s: float, over: Callable[[], bool]
    ) -> None:
        """Have these tasks begun, and done by then where others do them; explore while they do, unless it is over."""
        self.runner.wanted.extend(tasks)
        while not over() and (
            self.runner.wanted or (self.dispatcher.num_underway(kind) and self.hooks.clock() < until_s)
        ):
            if self.runner.do_wanted():
                self._refine(until_s)
            elif self._stopped(until_s) or not self._step(until_s):
                self.runner.attend(self.params.wait_s)
        self.runner.drop(kind)

    def _stopped(self, until_s: float, step_s: float | None = None) -> bool:
        """Time is up, or would be before another step ends, or nothing more is wanted."""
        planned = self.best.plan is not None
        late = self.hooks.clock() >= until_s or (planned and not self.phases.step_fits(self.params.last_share, step_s))
        return late or self.hooks.cancelled() or self.best.is_good_enough

    def _out_of_time(self) -> bool:
        return self.hooks.clock() >= self.phases.ends_s or self.hooks.cancelled()
