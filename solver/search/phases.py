"""When the phases of a search end, and whether another step still ends in time.

Owns the shares of the time limit. Never decides what a phase does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from solver.search.hooks import Hooks

# When the phases end, as shares of the time limit, in their order.
LOOK_SHARE = 0.2  # the whole space is looked over before anything is priced
EXPLORE_SHARE = 0.25  # the most promising configurations are placed and timed
FIRST_SHARE = 0.85  # the same, while there is no plan at all
TIES_SHARE = 0.35  # configurations as good as the plan, the fastest of which is wanted
COMPARE_SHARE = 0.45  # baselines, whose evaluations are candidates too
IMPROVE_SHARE = 0.8  # thorough schedules and priced placements of the best evaluations
LAST_SHARE = 0.96  # exploring again, which above all raises the bound; what is left is for writing out the answer

STEPS_REMEMBERED = 4  # the longest of which the next one may take


@dataclass
class Phases:
    """The time limit of one search, and how long its last steps and its last judged plan took."""

    hooks: Hooks
    limit_s: float
    plan_s: float = 0.0
    _steps_s: deque[float] = field(default_factory=lambda: deque([0.0], maxlen=STEPS_REMEMBERED))

    def deadline(self, share: float) -> float:
        """On the clock of the search."""
        return self.hooks.started_s + share * self.limit_s

    @property
    def ends_s(self) -> float:
        """Nothing new begins after this."""
        return self.deadline(LAST_SHARE)

    @property
    def last_step_s(self) -> float:
        """Seconds that the last step took."""
        return self._steps_s[-1]

    @property
    def longest_step_s(self) -> float:
        """Seconds of the longest of the last steps."""
        return max(self._steps_s)

    def took(self, seconds: float) -> None:
        """Another step is over."""
        self._steps_s.append(seconds)

    def only_short_steps(self, seconds: float) -> None:
        """From here on steps take no longer than this."""
        self._steps_s = deque([seconds], maxlen=STEPS_REMEMBERED)

    def has_room(self, share: float = LAST_SHARE) -> bool:
        """Another step would probably end by this share of the time limit."""
        return self.hooks.clock() + self.longest_step_s < self.deadline(share)

    def has_room_for_plan(self) -> bool:
        """Writing out and judging another plan would probably end within the time limit."""
        return self.hooks.clock() + self.plan_s < self.deadline(1.0)
