"""Has tasks done, here and by other processes, and takes in what comes of them: the one place where results land."""

from collections import deque
from dataclasses import dataclass, field, replace

from solver.baselines.policies import POLICIES
from solver.baselines.run import BaselineResult
from solver.evaluation.evaluate import Evaluation
from solver.search.acceptance import Acceptance
from solver.search.choice import next_evaluation, next_refinement
from solver.search.dispatcher import Done, Returned, TaskDispatcher, TaskEvent
from solver.search.frontier import Frontier, begin_refining, give_up_refining
from solver.search.tasks import (
    BaselineTask,
    Bounded,
    BreakTieTask,
    EvaluateTask,
    ImproveTask,
    RefineBoundTask,
    ReorderTask,
    SearchTask,
    Unfinished,
)


@dataclass
class TaskRunner:
    """`wanted` tasks have their turn before any that the frontier offers."""

    dispatcher: TaskDispatcher
    frontier: Frontier
    acceptance: Acceptance
    wanted: deque[SearchTask] = field(default_factory=deque)

    def do(self, task: SearchTask) -> None:
        """Do a task in this process, while the others do what they have."""
        clock = self.acceptance.phases.hooks.clock
        began_s = clock()
        task = self._begun(task)
        self._hand_out()
        for event in self.dispatcher.do_here(task):
            self._take_in(event)
            self._hand_out()
        if isinstance(task, EvaluateTask | BreakTieTask):
            self.acceptance.phases.took(clock() - began_s)

    def do_wanted(self) -> bool:
        """Do a wanted task in this process, if there is one that nobody else has begun."""
        self.attend()
        task = self.wanted.popleft() if self.wanted else self.dispatcher.withdraw()
        if task is None:
            return False
        self.do(task)
        return True

    def attend(self, wait_s: float = 0.0) -> None:
        """Take in what the others found, which may take so long, and give them more to do."""
        for event in self.dispatcher.events(wait_s):
            self._take_in(event)
        self._hand_out()

    def drop(self, kind: type[SearchTask]) -> None:
        """Tasks of this kind are not wanted any more."""
        self.wanted = deque(task for task in self.wanted if not isinstance(task, kind))

    def _hand_out(self) -> None:
        phases, params = self.acceptance.phases, self.dispatcher.params
        left_s = phases.ends_s - phases.hooks.clock()
        if phases.hooks.elapsed_s >= params.alone_s and left_s >= params.alone_s:
            self.dispatcher.begin()
        while self.wanted and self.dispatcher.num_workers:
            self.dispatcher.submit(self._begun(self.wanted.popleft()))
        while self.dispatcher.has_capacity and (task := self._for_others()) is not None:
            self.dispatcher.submit(self._begun(task))

    def _for_others(self) -> SearchTask | None:
        """What somebody else should do next: the most promising configuration, or the least bounds."""
        best, most = self.acceptance.result.best, self.dispatcher.params.refined_per_step
        if self.dispatcher.refines_too_little:
            return next_refinement(self.frontier, best, most) or next_evaluation(self.frontier, best)
        return next_evaluation(self.frontier, best) or next_refinement(self.frontier, best, most)

    def _begun(self, task: SearchTask) -> SearchTask:
        """The task with its share of time, marked as begun."""
        if isinstance(task, RefineBoundTask):
            for one in task.refinements:
                begin_refining(self.frontier, one.indices)
        elif isinstance(task, EvaluateTask | BreakTieTask):
            self.frontier.explored.add(task.index)
            self.frontier.underway.add(task.index)
            if isinstance(task, EvaluateTask) and task.target_bound_s is not None:
                begin_refining(self.frontier, (task.index,))
        elif isinstance(task, BaselineTask | ImproveTask):
            others = self.dispatcher.num_underway(type(task)) + sum(isinstance(one, type(task)) for one in self.wanted)
            left_s = task.until_s - self.acceptance.phases.hooks.clock()
            return replace(task, seconds=self.dispatcher.share_s(1 + others, left_s))
        return task

    def _take_in(self, event: TaskEvent) -> None:
        task, result = event
        match result:
            case Bounded():
                self.frontier.refining.difference_update(result.indices)
                for index in result.indices:
                    self.frontier.raise_bound(index, result.bound_s)
            case Evaluation():
                self.acceptance.consider(
                    result, "search" if isinstance(task, EvaluateTask | ReorderTask) else "improve"
                )
            case BaselineResult():
                self.acceptance.result.comparison.add(result)
            case Unfinished():
                self.frontier.put_back(result.index, result.num_timed)
            case Done() if isinstance(task, EvaluateTask | BreakTieTask):
                self.frontier.underway.discard(task.index)
            case Returned():
                self._take_back(task, result)

    def _take_back(self, task: SearchTask, returned: Returned) -> None:
        """What nobody does any more has its turn again, unless whoever did it is gone too often."""
        if returned.is_harmful:
            if isinstance(task, BaselineTask):
                reason = "every process that tried it ended unexpectedly"
                self._take_in((task, BaselineResult(POLICIES[task.policy], None, reason)))
        elif isinstance(task, EvaluateTask):
            self.frontier.put_back(task.index)
        elif isinstance(task, RefineBoundTask):
            for one in task.refinements:
                give_up_refining(self.frontier, one.indices)
        else:
            self.wanted.appendleft(task)
        if returned.lost:
            self.acceptance.result.tell("search", returned.lost)
