"""Messages are split over paths only on ways that wait for links; the others keep the path of least latency."""

from __future__ import annotations

import numpy as np

from models.catalogue import named_entry
from models.request import PlanRequest
from solver.configurations.enumerate import EVEN, FAMILY_CODES, Space
from solver.cost.columns import ZERO1, columns_from
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placement_problem, pooled
from solver.evaluation.scheduling import portfolio_timing
from solver.placement.in_order import fill_in_order
from tests.build_job import context_of


def test_only_the_way_between_regions_is_split() -> None:
    context = context_of(PlanRequest.model_validate(named_entry("examples", "mixtral-five-zones")))
    row = {"tp": 4, "cp": 1, "ep": 2, "pp": 32, "dp": 8, "vpp": 1, "micro_batch": 1, "num_microbatches": 160}
    columns = columns_from([row | {"sharding": ZERO1, "shard_group": 8, "recompute": 0}])
    family = np.array([FAMILY_CODES.index("one_way")])
    configuration = configuration_of(context, Space(columns, family, np.array([EVEN])), 0)
    problem = placement_problem(context, configuration)
    routes = fill_in_order(problem)
    assert routes is not None
    candidate = Candidate(configuration, pooled(context, configuration, routes))
    found = evaluate(context, candidate, lambda one: portfolio_timing(one, ("one_f_one_b",)))
    assert found is not None
    assert found.paths.split
    region_of = {place: context.topology.enclosing(place, "region") for pair in found.paths.split for place in pair}
    assert all(region_of[source] != region_of[target] for source, target in found.paths.split)
