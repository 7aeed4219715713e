"""The baselines of one search: what was found of each, and what is true of those that have no plan."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from models.plan import Baseline
from solver.baselines.policies import POLICIES, BaselinePolicy
from solver.baselines.run import BaselineResult, baseline_of
from solver.evaluation.report import exceeds_traffic_limit
from solver.search.frontier import Frontier
from solver.search.incumbent import Incumbent
from solver.search.pricing import Pricing

TOO_MUCH_TRAFFIC = "its best plan sends more bytes between buildings than the request allows"


@dataclass
class Comparison:
    """One entry per policy as soon as it is known what became of it; `before` are those of an earlier search."""

    frontier: Frontier
    best: Incumbent
    tried: list[BaselineResult] = field(default_factory=list)
    before: tuple[Baseline, ...] = ()

    def rows(self, iteration_s: float) -> tuple[Baseline, ...]:
        """What is known beside a plan that takes so long, in the order of the policies."""
        found = {one.name: one.model_copy(update={"speed_up": (one.iteration_s or 0.0) / iteration_s})
                 for one in self.before}  # fmt: skip
        tried = (self._checked(one) for one in self.tried)
        found |= {one.policy.name: baseline_of(self.frontier.context, one, iteration_s) for one in tried}
        return tuple(found[policy.name] for policy in POLICIES if policy.name in found)

    def is_known(self, policy: BaselinePolicy) -> bool:
        """An earlier search has timed it."""
        return any(one.name == policy.name for one in self.before)

    def add(self, tried: BaselineResult) -> None:
        """What became of one policy."""
        self.tried = sorted([*self.tried, tried], key=lambda one: POLICIES.index(one.policy))

    def _checked(self, tried: BaselineResult) -> BaselineResult:
        """The policy beside the incumbent: its plan, too, may be judged some time after it was found.

        A plan that the request does not allow is none, and a time of a plan that the judge rejects is none.
        """
        own = tried.best
        if own is None:
            return tried
        value, least_gain = self.best.value_of(own), self.frontier.params.improve_gain
        if self.best.is_better(own, value, least_gain):
            return replace(tried, best=None, reason="no time was left to judge its best plan")
        if value < self.best.value * (1.0 - least_gain):
            return replace(tried, best=None, reason="the judge rejects its best plan")
        if exceeds_traffic_limit(self.frontier.context, own):
            return replace(tried, best=None, reason=TOO_MUCH_TRAFFIC)
        return tried

    def add_untried(self) -> None:
        """Policies of which nothing is known at the end, and why."""
        known = [one.policy for one in self.tried]
        for policy in POLICIES:
            if policy not in known and not self.is_known(policy):
                self.add(BaselineResult(policy, None, self.why_untried(policy)))

    def price(self, pricing: Pricing, until_s: float, cancelled: Callable[[], bool]) -> None:
        """A portion of what every policy considers, and more until some of it fits, while there is time."""
        wanted = [policy.allowed(self.frontier.space) for policy in POLICIES if not self.is_known(policy)]
        while wanted and not cancelled():
            wanted = [considered for considered in wanted if pricing.load_for(considered, until_s)]
            wanted = [considered for considered in wanted if not considered[self.frontier.rows].any()]

    def why_untried(self, policy: BaselinePolicy) -> str:
        """What is true of a policy whose turn never came."""
        considered = policy.allowed(self.frontier.space)
        if not considered.any():
            return "the request allows no configuration that it considers"
        if considered[self.frontier.rows].any():
            return "the search ended before its turn"
        if considered[self.frontier.unpriced.rows].any():
            return "the search ended before it knew a configuration for it that fits into memory"
        may_be_late = " and may reach the target" if self.frontier.goal.has_target else ""
        return f"no configuration that it considers fits into memory{may_be_late}"
