"""The bound of one machine against the rule itself, second by second."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.pipeline.one_machine_kernel import one_machine

Job = tuple[int, int, int]  # head, duration and tail in whole seconds
TIMES = st.integers(0, 12)


def preemptive_s(jobs: list[Job]) -> int:
    """In every second run, of what is available, a job with the longest tail."""
    left, now, best = [duration for _, duration, _ in jobs], 0, 0
    while any(left):
        ready = [number for number, (head, _, _) in enumerate(jobs) if head <= now and left[number]]
        now += 1
        if ready:
            longest = max(ready, key=lambda number: jobs[number][2])
            left[longest] -= 1
            if not left[longest]:
                best = max(best, now + jobs[longest][2])
    return best


@given(st.lists(st.tuples(TIMES, st.integers(1, 5), TIMES), min_size=1, max_size=24))
def test_the_bound_is_what_the_rule_gives(jobs: list[Job]) -> None:
    head, duration, tail = np.array(jobs, dtype=np.float64).T.copy()
    assert one_machine(head, duration, tail) == preemptive_s(jobs)
