"""The baselines of one search: what was found of each, and what is true of those that have no plan.

Owns that account. Never places or times anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from solver.baselines.policies import POLICIES, Policy
from solver.baselines.run import BaselineResult
from solver.evaluation.report import exceeds_traffic_limit
from solver.search.frontier import Frontier
from solver.search.pricing import Pricing

TOO_MUCH_TRAFFIC = "its best plan sends more bytes between buildings than the request allows"


@dataclass
class Comparison:
    """One entry per policy as soon as it is known what became of it."""

    frontier: Frontier
    tried: list[BaselineResult] = field(default_factory=list)

    def add(self, tried: BaselineResult) -> None:
        """What became of one policy. A plan that the request does not allow is none."""
        if tried.best is not None and exceeds_traffic_limit(self.frontier.context, tried.best):
            tried = replace(tried, best=None, reason=TOO_MUCH_TRAFFIC)
        self.tried = sorted([*self.tried, tried], key=lambda one: POLICIES.index(one.policy))

    def missing(self) -> list[Policy]:
        """Policies of which nothing is known yet."""
        known = [one.policy for one in self.tried]
        return [policy for policy in POLICIES if policy not in known]

    def price(self, pricing: Pricing, until_s: float, cancelled: Callable[[], bool]) -> None:
        """A portion of what every policy considers, and more until some of it fits, while there is time."""
        wanted = [policy.considers(self.frontier.space) for policy in POLICIES]
        while wanted and not cancelled():
            wanted = [considered for considered in wanted if pricing.load_for(considered, until_s)]
            wanted = [considered for considered in wanted if not considered[self.frontier.rows].any()]

    def why_untried(self, policy: Policy) -> str:
        """What is true of a policy whose turn never came."""
        considered = policy.considers(self.frontier.space)
        if not considered.any():
            return "the request allows no configuration that it considers"
        if considered[self.frontier.rows].any():
            return "the search ended before its turn"
        if self.frontier.is_pending(considered):
            return "the search ended before it knew a configuration for it that fits into memory"
        may_be_late = " and may reach the target" if self.frontier.goal.has_target else ""
        return f"no configuration that it considers fits into memory{may_be_late}"
