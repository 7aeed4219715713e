"""How the time of an improvement is shared out among the schedules of a placement's routes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from models.schedule import PipelineProblem
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.improve import improved_schedules
from solver.evaluation.places import placements
from solver.evaluation.scheduling import MANY_PROBLEMS, Schedulers, Timing
from tests.build_job import context_of, job

UNTIL_S = 12.0


class Recording(Schedulers):
    """Schedulers that only say for how long they would have searched."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, lambda: 0.0, lambda: False)
        self.seconds: list[float] = []

    def thorough(self, problem: PipelineProblem, time_limit_s: float, known: Sequence[Timing] = ()) -> Timing | None:
        """The quick schedule."""
        assert known
        self.seconds.append(time_limit_s)
        return self.quick(problem)


def evaluations(context: Context, schedulers: Schedulers) -> list[Evaluation]:
    """The placements of a pipeline whose ranks do not fit a building whole, with quick schedules."""
    configuration = configuration_of(context, enumerate_space(context.request), 0)
    candidates = placements(context, configuration, ("ranks_spread", "in_order", "replicas_whole"))
    return [one for candidate in candidates if (one := evaluate(context, candidate, schedulers.quick)) is not None]


@pytest.fixture(scope="module")
def context() -> Context:
    """Eight buildings of different sizes in a row, each a little farther from the next one."""
    allowed = {"tp": [8], "cp": [1], "pp": [4], "dp": [9], "vpp": [1], "micro_batch_sequences": [1]}
    request = job(hosts=(3, 5, 4, 6, 3, 5, 7, 3), batch=36, allowed={**allowed, "recompute": ["none"]})
    document = request.model_dump(mode="json")
    for link, latency_s in zip(document["cluster"]["links"], np.linspace(1e-3, 5e-3, 7).tolist(), strict=True):
        link["latency_s"] = latency_s
    return context_of(type(request).model_validate(document))


def test_the_route_that_sets_the_pace_has_half_of_the_time_of_many(context: Context) -> None:
    schedulers = Recording(context)
    many = [one for one in evaluations(context, schedulers) if len(set(one.problems)) > MANY_PROBLEMS]
    assert many
    for found in many:
        schedulers.seconds.clear()
        (better,) = improved_schedules(context, found, schedulers, UNTIL_S)
        assert better.iteration_s <= found.iteration_s
        assert schedulers.seconds[0] == UNTIL_S / 2
        assert len(schedulers.seconds) < len(set(found.problems))


def test_few_routes_share_it_equally() -> None:
    context = context_of(job(allowed={"tp": [2], "cp": [1], "pp": [4], "dp": [8], "vpp": [1], "recompute": ["none"]}))
    schedulers = Recording(context)
    few = [one for one in evaluations(context, schedulers) if len(set(one.problems)) <= MANY_PROBLEMS]
    assert few
    for found in few:
        schedulers.seconds.clear()
        list(improved_schedules(context, found, schedulers, UNTIL_S))
        number = len(set(found.problems))
        assert schedulers.seconds[:number] == [UNTIL_S / left for left in range(number, 0, -1)]
