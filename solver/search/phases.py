"""When the phases of a search end, and whether another step still ends in time."""

from collections import deque
from dataclasses import dataclass, field

from solver.search.hooks import Hooks
from solver.search.params import DEFAULTS, SearchParams

PLAN_MARGIN = 1.25  # times what the last plan took: other routes take longer


@dataclass
class Phases:
    """The time limit of one search, and how long its last steps and its last judged plan took, in seconds.

    `judged_s` is when that plan was judged, on the clock of the search.
    """

    hooks: Hooks
    limit_s: float
    params: SearchParams = DEFAULTS
    plan_s: float = 0.0
    judged_s: float = 0.0
    _steps_s: deque[float] = field(default_factory=lambda: deque([0.0]))

    def deadline(self, share: float) -> float:
        """On the clock of the search."""
        return self.hooks.started_s + share * self.limit_s

    @property
    def ends_s(self) -> float:
        """Nothing new begins after this."""
        return self.deadline(self.params.last_share)

    @property
    def last_plan_s(self) -> float:
        """When writing out and judging another plan has to begin, if it takes a little longer than the last."""
        return self.deadline(1.0) - PLAN_MARGIN * self.plan_s

    @property
    def longest_step_s(self) -> float:
        """The longest of the last steps, which the next one may take."""
        return max(self._steps_s)

    def took(self, seconds: float) -> None:
        """Another step is over."""
        self._steps_s.append(seconds)
        if len(self._steps_s) > self.params.steps_remembered:
            self._steps_s.popleft()

    def step_fits(self, share: float, step_s: float | None = None) -> bool:
        """Another step would end by this share of the time limit, if it takes so long, or else as long as the last."""
        return self.hooks.clock() + (self.longest_step_s if step_s is None else step_s) < self.deadline(share)

    def judged(self, began_s: float) -> None:
        """Another plan is written out and judged, which was begun then."""
        self.judged_s = self.hooks.clock()
        self.plan_s = self.judged_s - began_s

    def plan_is_due(self) -> bool:
        """Judging another plan takes no more than its part of the time since the last one, or soon it is too late."""
        wait_s, now_s = self.plan_s / self.params.judge_share, self.hooks.clock()
        return now_s >= self.judged_s + wait_s or now_s + self.plan_s >= self.last_plan_s

    def plan_fits(self) -> bool:
        """Writing out and judging another plan would probably end within the time limit."""
        return self.hooks.clock() + self.plan_s < self.deadline(1.0)
