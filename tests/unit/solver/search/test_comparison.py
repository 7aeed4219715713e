"""A baseline beside the incumbent: shown as soon as the incumbent is no worse, however long after it was tried."""

from __future__ import annotations

from solver.baselines.policies import POLICIES
from solver.baselines.run import BaselineResult
from solver.configurations.enumerate import enumerate_space
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import Schedulers
from solver.objective import Goal
from solver.search.comparison import Comparison
from solver.search.frontier import Frontier
from solver.search.incumbent import Incumbent
from tests.build_job import context_of, job


def test_a_baseline_that_was_better_than_the_incumbent_is_shown_once_it_is_no_longer() -> None:
    """Its plan is judged later than it was tried, when plans come too soon after each other."""
    context = context_of(job(allowed={"tp": [4], "cp": [1], "pp": [1], "dp": [2], "sharding": ["zero1"]}))
    space = enumerate_space(context.request)
    schedulers = Schedulers(context, lambda: 0.0, lambda: False)
    candidates = placements(context, configuration_of(context, space, 0), ("ranks_whole",))
    own = next(found for one in candidates if (found := evaluate(context, one, schedulers.quick)) is not None)
    best = Incumbent(context, Goal.of(context))
    comparison = Comparison(Frontier(context, space, best.goal), best)
    comparison.add(BaselineResult(POLICIES[0], own, ""))

    (row,) = comparison.rows(1.0)
    assert (row.iteration_s, row.reason) == (None, "no time was left to judge its best plan")
    best.evaluation, best.value = own, best.value_of(own)
    (row,) = comparison.rows(own.iteration_s)
    assert (row.iteration_s, row.speed_up, row.reason) == (own.iteration_s, 1.0, "")
