"""What a search can say at any moment: the incumbent with its proof, baselines and alternatives, and progress."""

from dataclasses import dataclass, field

import numpy as np

from models.outcome import Planned, Progress
from models.plan import Plan, Proof
from models.statements import PROVEN
from solver.bounds.work import speed_of_light_s
from solver.context import Context
from solver.evaluation.evaluate import Evaluation
from solver.evaluation.scheduling import Scheduler
from solver.explain.alternatives import Kinds, alternatives
from solver.explain.one_building import one_building
from solver.explain.runnable import FrameworkTrials, runnable_by
from solver.search.comparison import Comparison
from solver.search.frontier import Frontier
from solver.search.history import History
from solver.search.hooks import Hooks
from solver.search.incumbent import Incumbent, relative_gap
from solver.search.phases import Phases
from solver.search.promising import Promising

TOO_FAST = (
    "the plan is faster than the peak of its GPUs allows: measured layer times, constants of the stack profile or the "
    "stated peaks are wrong"
)


@dataclass
class SearchResult:
    """The state of a search in the words of the contract."""

    context: Context
    hooks: Hooks
    frontier: Frontier
    best: Incumbent
    comparison: Comparison
    kinds: Kinds = field(default_factory=Kinds)
    promising: Promising = field(init=False)
    begun_from: str = ""
    _history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.promising = Promising(self.best, self.hooks.clock)

    def update_bound(self) -> None:
        """The least open bound is the incumbent's."""
        self.best.raise_bound(self.frontier.least_bound)

    @property
    def num_explored(self) -> int:
        """Configurations placed and timed."""
        return len(self.frontier.explored) - len(self.frontier.underway)

    @property
    def nothing_open(self) -> bool:
        """Every configuration is priced, and none fits into memory and may reach the target."""
        return self.frontier.exhausted and not np.isfinite(self.frontier.bound).any()

    @property
    def least_s(self) -> float:
        """No plan can take less than this."""
        return self.frontier.least_s

    def account(self) -> str:
        """What was tried, in one sentence."""
        limit = self.best.binding_limit()
        return (
            f"{self.num_explored} of {len(self.frontier.space)} configurations placed and timed, "
            f"{self.best.num_rejected} rejected by the judge{'; ' if limit else ''}{limit}"
        )

    def proof(self, found: Evaluation, value: float) -> Proof:
        """How good an evaluation of this value is known to be."""
        gap = relative_gap(value, self.best.bound)
        return Proof(
            lower_bound_s=found.iteration_s * (1.0 - gap),
            relative_gap=gap,
            status="optimal" if gap <= self.best.asked_gap else "feasible",
            speed_of_light_s=speed_of_light_s(self.context),
            num_configurations=len(self.frontier.space),
            num_pruned=self.frontier.num_ruled_out(self.best.cutoff),
            num_explored=self.num_explored,
            proven=PROVEN[self.context.request.objective.kind],
        )

    def current_plan(self) -> Plan:
        """The incumbent with the proof and the baselines as they stand."""
        assert self.best.evaluation is not None
        assert self.best.plan is not None
        baselines = self.comparison.rows(self.best.evaluation.iteration_s)
        proof = self.proof(self.best.evaluation, self.best.value)
        return self.best.plan.model_copy(update={"proof": proof, "baselines": baselines})

    def finished_plan(self, scheduler: Scheduler, phases: Phases, *, complete: bool) -> Plan | None:
        """The answer, if there is one: what came second and why, how the search went, what distance costs."""
        self.tell("done", "")
        if self.best.evaluation is None:
            return None
        self.publish(complete=complete)
        plan = self.current_plan()
        hooks, found, step_s = self.hooks, self.best.evaluation, phases.params.short_step_s

        def late() -> bool:
            return not phases.step_fits(1.0, step_s)

        near = one_building(self.context, found, scheduler, late=late)
        trials = FrameworkTrials(self.context, hooks.clock, hooks.cancelled, phases.deadline(1.0), step_s)
        others = (evaluation for _, evaluation in self.kinds.ranked())
        assumed = self.best.goal.assumed(self.context)
        too_fast = TOO_FAST if plan.metrics.model_flops_utilisation > 1.0 else ""
        undetermined = "" if near.seconds is not None else f"one_building_s is not determined: {near.reason}"
        notes = (self.begun_from, assumed, self.best.binding_limit(), undetermined, too_fast)
        return plan.model_copy(
            update={
                "alternatives": alternatives(self.context, self.kinds, plan, self.best.evaluation, self.best.value),
                "runnable_by": runnable_by(trials, plan, found, others),
                "convergence": self._history.points(),
                "one_building_s": near.seconds,
                "notes": tuple(note for note in notes if note),
            }
        )

    def publish(self, *, complete: bool = False) -> None:
        """The incumbent with its proof as it stands, so that nothing that ends this process can take it away."""
        self.hooks.incumbent(Planned(plan=self.current_plan(), complete=complete, elapsed_s=self.hooks.elapsed_s))

    def show(self, phase: str) -> None:
        """Publish the incumbent, which is new, and say what it is."""
        self.publish()
        assert self.best.plan is not None
        plan = self.best.plan
        degrees = plan.configuration.degrees
        self.tell(phase, f"{plan.placement.crossing}, tp {degrees.tp} pp {degrees.pp} dp {degrees.dp}")

    def tell(self, phase: str, message: str) -> None:
        """One line of progress, and a point of the history."""
        best_s = None if self.best.evaluation is None else self.best.evaluation.iteration_s
        by_time = self.context.request.objective.kind == "iteration_time"
        known_s = self.best.bound if by_time and np.isfinite(self.best.bound) else None
        bound_s = best_s * (1.0 - self.best.gap) if best_s else known_s
        self._history.add(self.hooks.elapsed_s, best_s, bound_s)
        self.hooks.progress(
            Progress(
                phase=phase,
                elapsed_s=self.hooks.elapsed_s,
                incumbent_s=best_s,
                lower_bound_s=bound_s if by_time else None,
                relative_gap=None if best_s is None else self.best.gap,
                num_configurations=len(self.frontier.space),
                num_explored=self.num_explored,
                num_pruned=self.frontier.num_ruled_out(self.best.cutoff),
                message=message,
            )
        )
