"""What came second: the best evaluation of every kind, those that really differ, and where they lose their time."""

from __future__ import annotations

from dataclasses import dataclass, field

from models.figures import TimeBreakdown
from models.plan import Alternative, Configuration, Plan
from solver.context import Context
from solver.cost.uncertainty import probability_faster
from solver.evaluation.candidate import pipeline_shape
from solver.evaluation.evaluate import Evaluation
from solver.evaluation.report import errors_of, time_of
from solver.evaluation.where import crossing_of, placement_of

MAX_ALTERNATIVES = 5  # of a plan, as many as a reader compares; set by hand
MAX_RETAINED = 40  # evaluations of different kinds
WORTH_NAMING = 0.005  # of the difference; smaller causes are left out
SHARED_FIELDS = ("degrees", "sharding", "recompute", "family", "layer_split")  # with the whole configuration
Shape = tuple[object, ...]


@dataclass
class Kinds:
    """The best evaluation of each kind (pipeline shape, sharding, crossing) with its value: the best `MAX_RETAINED`."""

    _best: dict[Shape, tuple[float, Evaluation]] = field(default_factory=dict)

    def add(self, context: Context, found: Evaluation, value: float) -> None:
        """Remember an evaluation if it is the best of its kind."""
        configuration = found.candidate.configuration
        kind = (*pipeline_shape(configuration), configuration.sharding, crossing_of(context, found.candidate))
        if kind not in self._best or _rank((value, found)) < _rank(self._best[kind]):
            self._best[kind] = (value, found)
        if len(self._best) > MAX_RETAINED:
            del self._best[max(self._best, key=lambda one: _rank(self._best[one]))]

    def drop(self, found: Evaluation) -> None:
        """Forget an evaluation that the judge rejected."""
        self._best = {kind: pair for kind, pair in self._best.items() if pair[1] is not found}

    def ranked(self) -> list[tuple[float, Evaluation]]:
        """All kinds, best first."""
        return sorted(self._best.values(), key=_rank)


def _rank(pair: tuple[float, Evaluation]) -> tuple[float, float]:
    """By value; the faster first of those that are equally good."""
    value, found = pair
    return value, found.iteration_s


def alternatives(context: Context, kinds: Kinds, plan: Plan, best: Evaluation, value: float) -> tuple[Alternative, ...]:
    """Up to five evaluations that differ from the plan and from each other in what crosses, how the pipeline folds, how
    the state is sharded, how layers are shared out, or in two degrees; best first. An evaluation that is better than
    the plan was not judged, for lack of time: it is no plan and is left out.
    """
    taken = [_traits(best.candidate.configuration, plan.placement.crossing)]
    chosen = []
    judged = (pair for pair in kinds.ranked() if _rank(pair) >= _rank((value, best)))
    for other_value, found in judged:
        crossing = crossing_of(context, found.candidate)
        traits = _traits(found.candidate.configuration, crossing)
        if found is not best and all(_differ(traits, one) for one in taken):
            taken.append(traits)
            ratio = other_value / value if value else 1.0
            chosen.append(_alternative(context, found, crossing, plan, ratio))
        if len(chosen) == MAX_ALTERNATIVES:
            break
    return tuple(chosen)


def _traits(configuration: Configuration, crossing: str) -> tuple[Shape, Shape]:
    """What sets plans apart by itself, and the degrees, of which two have to differ."""
    degrees = configuration.degrees
    return (crossing, configuration.family, configuration.sharding, configuration.layer_split), (
        degrees.tp,
        degrees.cp,
        degrees.ep,
        degrees.pp,
        degrees.dp,
    )


def _differ(one: tuple[Shape, Shape], other: tuple[Shape, Shape]) -> bool:
    return one[0] != other[0] or sum(a != b for a, b in zip(one[1], other[1], strict=True)) >= 2


def _alternative(context: Context, found: Evaluation, crossing: str, plan: Plan, ratio: float) -> Alternative:
    configuration = found.candidate.configuration
    return Alternative.model_validate(
        {
            **{name: getattr(configuration, name) for name in SHARED_FIELDS},
            "crossing": crossing,
            "iteration_s": found.iteration_s,
            "slower_by": ratio - 1.0,
            "slower_probability": plan.prediction
            and probability_faster(plan.prediction, found.iteration_s, errors_of(context, found)),
            "why_second": why_second(plan.time, time_of(context, found)),
            "configuration": configuration,
            "routes": placement_of(context, found.candidate).routes,
        }
    )


def why_second(best: TimeBreakdown, other: TimeBreakdown) -> str:
    """Causes that cost the other more, largest first, then what it saves.

    >>> nothing = dict.fromkeys(TimeBreakdown.model_fields, 0.0)
    >>> one = TimeBreakdown(**nothing | {"compute_s": 5.0, "bubble_s": 0.2, "total_s": 5.2})
    >>> two = TimeBreakdown(**nothing | {"compute_s": 4.9, "bubble_s": 0.5, "data_parallel_s": 0.1, "total_s": 5.5})
    >>> why_second(one, two)
    'bubble +0.3 s, gradient exchange +0.1 s, compute -0.1 s'
    """
    usual_s = best.by_cause
    differences = [(seconds - usual_s[name], name) for name, seconds in other.by_cause.items()]
    least = WORTH_NAMING * max(abs(one) for one, _ in differences)
    named = sorted((pair for pair in differences if abs(pair[0]) > least), key=lambda pair: -pair[0])
    return ", ".join(f"{text} {seconds:+.3g} s" for seconds, text in named) or "nothing: it is as good"
