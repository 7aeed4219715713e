"""The best judged plan so far, and the proof that goes with it.

What an evaluation is worth, whether the judge takes it, and the gap.
"""

from dataclasses import dataclass, field

from models.plan import Plan, Proof
from models.verdict import Verdict
from solver.bounds.bounded import ROUNDING
from solver.context import Context
from solver.evaluation.evaluate import Evaluation
from solver.evaluation.report import (
    evaluation_cross_building_bytes,
    exceeds_traffic_limit,
    extra_usd,
    plan_of,
    quantile,
)
from solver.objective import Goal
from solver.verify.judge import judge


@dataclass
class Incumbent:
    """The best evaluation with its value, the judged plan made of it, and `bound`: no plan has a lesser value."""

    context: Context
    goal: Goal
    evaluation: Evaluation | None = None
    value: float = float("inf")
    plan: Plan | None = None
    bound: float = 0.0
    num_rejected: int = 0
    over_limit: Evaluation | None = None
    _rejected: set[Evaluation] = field(default_factory=set)

    def binding_limit(self) -> str:
        """What the limit on traffic between buildings costs, in one sentence; empty where nothing is known of it."""
        limit = self.context.request.constraints.max_cross_building_bytes_per_iteration
        over = self.over_limit
        if over is None or limit is None or (self.evaluation and self.evaluation.iteration_s <= over.iteration_s):
            return ""
        sent = evaluation_cross_building_bytes(self.context, over)
        beyond = f"{100 * (sent / limit - 1):.2g} % more than" if limit else "beyond"
        return (
            f"max_cross_building_bytes_per_iteration binds: a plan that takes {over.iteration_s:.4g} s would send "
            f"{sent:.6g} bytes, {beyond} the {limit:.6g} allowed"
        )

    def value_of(self, found: Evaluation) -> float:
        """The objective of an evaluation; infinite where it misses the target or sends more than the request allows."""
        if exceeds_traffic_limit(self.context, found):
            if self.over_limit is None or found.iteration_s < self.over_limit.iteration_s:
                self.over_limit = found
            return float("inf")
        num_gpus = found.candidate.configuration.degrees.num_gpus
        if self.goal.counts_bytes:
            return float(self.goal.value(found.iteration_s, evaluation_cross_building_bytes(self.context, found)))
        if self.goal.counts_doubt:
            return self.goal.value(found.iteration_s, quantile(self.context, found, self.goal.objective.confidence))
        extra = extra_usd(self.context, found, self.goal.usd_per_gpu_s) if self.goal.counts_usd else 0.0
        return self.goal.value(found.iteration_s, num_gpus, extra)

    def is_better(self, found: Evaluation, value: float, least_gain: float) -> bool:
        """Better by at least this part of the value, or as good and that much faster, and not rejected before."""
        if found in self._rejected:
            return False
        if self.goal.has_target and self.evaluation is not None and value == self.value:
            return found.iteration_s < self.evaluation.iteration_s * (1 - least_gain)
        return value < self.value * (1 - least_gain)

    def submit(self, found: Evaluation, value: float, proof: Proof) -> Verdict:
        """Write the evaluation out and have it judged; it is the incumbent if the judge accepts it."""
        plan = plan_of(self.context, found, proof)
        verdict = judge(self.context.request, plan)
        if verdict.accepted:
            self.evaluation, self.value = found, value
            self.plan = plan.model_copy(update={"verdict": verdict})
        else:
            self.num_rejected += 1
            self._rejected.add(found)
        return verdict

    def raise_bound(self, least_open: float) -> None:
        """Nothing that is still open has a value below this; what was proven once remains proven."""
        self.bound = max(self.bound, min(least_open, self.value))

    @property
    def gap(self) -> float:
        """Relative gap between the best value and the least bound of what is not yet ruled out."""
        return relative_gap(self.value, self.bound)

    @property
    def is_good_enough(self) -> bool:
        """The plan is within the gap that was asked for."""
        return self.plan is not None and self.gap <= self.asked_gap

    @property
    def cutoff(self) -> float:
        """Configurations whose bound is not below this cannot improve the plan by more than the gap."""
        return self.value * (1.0 - self.asked_gap)

    @property
    def asked_gap(self) -> float:
        """The gap that was asked for; bounds give away as much as rounding may lift them, so none is asked to be 0."""
        return max(self.context.request.options.relative_gap, ROUNDING)

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration of the plan; infinite without one."""
        return float("inf") if self.evaluation is None else self.evaluation.iteration_s


def relative_gap(value: float, bound: float) -> float:
    """(value - bound) / value, 0 where the value is not above the bound.

    >>> relative_gap(4.0, 3.0), relative_gap(3.0, 4.0)
    (0.25, 0.0)
    """
    return max(value - bound, 0.0) / value if value > 0 else 0.0
