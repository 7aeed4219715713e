"""Evaluations that may be improved, and which of them are worth it: those likely to end up with the least value."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from solver.clock import WORK_PER_OPERATION_S, Clock, charge
from solver.evaluation.candidate import Candidate, pipeline_shape, space_of
from solver.evaluation.evaluate import Evaluation
from solver.evaluation.reordering import may_reorder
from solver.search.incumbent import Incumbent

MOST_RETAINED = 64  # placements; the bounds of all of them take about half a second at most
REMAINING = 0.25  # of what quick schedules are above the bound of their pipelines: about as much on the headline grid
Placement = tuple[object, ...]


@dataclass
class Promising:
    """The best evaluation with its value of each placement of a pipeline, and the placements whose turn has come."""

    best: Incumbent
    clock: Clock
    _best: dict[Placement, tuple[float, Evaluation]] = field(default_factory=dict)
    _begun: set[Placement] = field(default_factory=set)
    _reordered: set[object] = field(default_factory=set)
    _bound_s: dict[Placement, float] = field(default_factory=dict)

    def add(self, found: Evaluation, value: float) -> None:
        """Remember an evaluation if it is the best of its placement."""
        place = placement_of(found.candidate)
        if place not in self._best or value < self._best[place][0]:
            self._best[place] = (value, found)
        if len(self._best) > MOST_RETAINED:
            del self._best[max(self._best, key=lambda one: self._best[one][0])]

    def drop(self, found: Evaluation) -> None:
        """Forget an evaluation that the judge rejected."""
        self._best = {place: pair for place, pair in self._best.items() if pair[1] is not found}

    def take(self, most: int) -> list[Evaluation]:
        """The best evaluation and then the most promising, of those not taken before; `most` at most.

        The most promising have the least likely value: with better schedules a placement comes near to the bound of its
        own pipeline.
        """
        waiting = [place for place in self._best if place not in self._begun]
        best = min(waiting, key=lambda place: self._best[place][0], default=None)
        chosen = sorted(waiting, key=lambda place: (place != best, self._likely_value(place)))[:most]
        self._begun.update(chosen)
        return [self._best[place][1] for place in chosen]

    def take_to_reorder(self, most: int) -> list[Evaluation]:
        """The most promising of each shape of pipelines whose ranks may be reordered and were not."""
        context, of_shape = self.best.context, dict[object, Placement]()
        waiting = [place for place, (_, found) in self._best.items()
                   if place[0] not in self._reordered and may_reorder(context, found.candidate)]  # fmt: skip
        for place in sorted(waiting, key=self._likely_value):
            of_shape.setdefault(place[0], place)
        chosen = dict(islice(of_shape.items(), most))
        self._reordered.update(chosen)
        return [self._best[place][1] for place in chosen.values()]

    def best_of(self, evaluations: Sequence[Evaluation], most: int) -> list[Evaluation]:
        """The best evaluations of the placements of these, so many at most, least value first."""
        found = [self._best[place] for one in evaluations if (place := placement_of(one.candidate)) in self._best]
        return [evaluation for _, evaluation in sorted(found, key=lambda pair: pair[0])[:most]]

    def _likely_value(self, place: Placement) -> float:
        value, found = self._best[place]
        if place not in self._bound_s:
            charge(self.clock, WORK_PER_OPERATION_S * sum(problem.num_operations for problem in set(found.problems)))
            self._bound_s[place] = found.pipeline_bound_s + found.optimizer_s
        size = float(self.best.goal.sizes(self.best.context, space_of(found.candidate.configuration))[0])
        bound = self.best.goal.value(self._bound_s[place], size)
        return bound + REMAINING * (value - bound)


def placement_of(candidate: Candidate) -> Placement:
    """The shape of the pipeline, the layers of its stages, and the pools of its replicas."""
    configuration = candidate.configuration
    pools = tuple((route.num_replicas, route.pools) for route in candidate.routes)
    return (pipeline_shape(configuration), configuration.layers_per_stage, pools)
