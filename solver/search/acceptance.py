"""Which evaluations become the incumbent: those better by enough to be worth the judge's time, if it accepts them."""

from dataclasses import dataclass

import numpy as np

from solver.clock import WORK_PER_PLAN_S, WORK_PER_WRITTEN_OPERATION_S, charge
from solver.evaluation.evaluate import Evaluation
from solver.search.phases import Phases
from solver.search.result import SearchResult


@dataclass(frozen=True)
class Acceptance:
    """The criterion of one search. The `phase` of an evaluation is the name that users see."""

    result: SearchResult
    phases: Phases

    def consider(self, found: Evaluation, phase: str) -> None:
        """Keep the evaluation among the best of its kind. If it is better than the incumbent and another plan is due,
        have the best one judged.
        """
        best, params = self.result.best, self.phases.params
        value = best.value_of(found)
        if not np.isfinite(value):
            return
        self.result.kinds.add(best.context, found, value)
        self.result.promising.add(found, value)
        gain = params.search_gain if phase == "search" else params.improve_gain
        if best.is_better(found, value, gain) and self._plan_is_due:
            self._settle(gain, phase)

    def settle(self) -> None:
        """An evaluation that was too little better to be judged at once, or came too soon, takes its place now."""
        self._settle(self.phases.params.improve_gain, "improve")

    def settle_if_due(self) -> None:
        """`settle` unless a plan was judged a moment ago: what is improved next may be better."""
        if self._plan_is_due:
            self.settle()

    @property
    def best_known(self) -> Evaluation | None:
        """The best evaluation, judged or not."""
        for value, found in self.result.kinds.ranked():
            if self.result.best.is_better(found, value, self.phases.params.improve_gain):
                return found
        return self.result.best.evaluation

    @property
    def _plan_is_due(self) -> bool:
        return self.result.best.plan is None or self.phases.plan_is_due()

    def _settle(self, gain: float, phase: str) -> None:
        for value, found in self.result.kinds.ranked():
            if not self.result.best.is_better(found, value, gain):
                return
            self._submit(found, value, phase)

    def _submit(self, found: Evaluation, value: float, phase: str) -> None:
        """Have the evaluation judged, unless there is a plan and writing another one out would take too long."""
        clock, best = self.phases.hooks.clock, self.result.best
        began_s = clock()
        if best.plan is not None and not self.phases.plan_fits():
            return
        operations = sum(problem.num_operations for problem in set(found.problems))
        charge(clock, WORK_PER_PLAN_S + WORK_PER_WRITTEN_OPERATION_S * operations)
        verdict = best.submit(found, value, self.result.proof(found, value))
        self.phases.judged(began_s)
        if not verdict.accepted:
            self.result.kinds.drop(found)
            self.result.promising.drop(found)
            first = verdict.violations[0]
            self.result.tell(phase, f"judge objects: {first.rule} at {first.where}: {first.detail}"[:300])
            return
        self.result.update_bound()
        self.result.show(phase)
