"""The best judged plan so far, and the proof that goes with it.

Owns what an evaluation is worth and whether the judge takes it. Never looks for an evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models.plan import Plan, Proof
from models.verdict import Verdict
from solver.context import Context
from solver.evaluation.evaluate import Evaluation
from solver.evaluation.report import evaluation_cross_building_bytes, exceeds_traffic_limit, extra_usd, plan_of
from solver.objective import Goal
from solver.verify.judge import judge


@dataclass
class Incumbent:
    """The best evaluation with its value, and the judged plan made of it."""

    context: Context
    goal: Goal
    evaluation: Evaluation | None = None
    value: float = float("inf")
    plan: Plan | None = None
    num_rejected: int = 0
    over_limit: Evaluation | None = None
    _rejected: set[Evaluation] = field(default_factory=set)

    def _keep_over_limit(self, found: Evaluation) -> None:
        """The fastest evaluation that sends more between buildings than the request allows."""
        if self.over_limit is None or found.iteration_s < self.over_limit.iteration_s:
            self.over_limit = found

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
            self._keep_over_limit(found)
            return float("inf")
        num_gpus = found.candidate.configuration.degrees.num_gpus
        if self.goal.counts_bytes:
            return float(self.goal.value(found.iteration_s, evaluation_cross_building_bytes(self.context, found)))
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

    def gap(self, bound: float) -> float:
        """(value - bound) / value against the least open bound."""
        return max(self.value - bound, 0.0) / self.value if self.value > 0 else 0.0
