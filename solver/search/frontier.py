"""The open configurations of a search: priced when their turn comes, ordered by priority, bounded from below."""

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field

import numpy as np

from models.plan import Configuration
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.least_cost import least_work_usd
from solver.bounds.work import lower_bounds, shape_bounds_s
from solver.configurations.enumerate import BY_GPU_TYPE, Space
from solver.context import Context
from solver.evaluation.candidate import configuration_of
from solver.objective import Goal
from solver.search.params import DEFAULTS, SearchParams
from solver.search.unpriced import Unpriced, least_places

ALIKE = ("tp", "cp", "pp", "vpp", "dp", "micro_batch", "num_microbatches", "recompute")  # of bounds taken together
WITH_SAME_EXPERTS = (*ALIKE, "ep")  # of bounds taken together the second time


@dataclass
class Frontier:
    """Rows of the space that fit into memory: bounds as values of the objective, guesses as what to go by, and times.

    An index is a place in these columns. `seconds` are the bounds as times. Of the `explored` those `underway` are
    still being evaluated; `num_timed` is how many placements of one were timed before it was put back. Bounds of the
    `refined` are their own, those of the `refined_together` hold for all that are alike, too: those in
    `refined_twice` for all with the same degree of expert parallelism. All three have those `refining`, whose bounds
    are just being worked out. Those `refined_longer` were refined once more, with more effort.
    `least_need` is the least memory that any priced one needs (bytes), and its row.
    """

    context: Context
    space: Space
    goal: Goal
    late: InitVar[Callable[[], bool]] = lambda: False  # no time is left to look at all of the space before a plan
    params: SearchParams = DEFAULTS
    rows: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    bound: FloatArray = field(default_factory=lambda: np.zeros(0))
    seconds: FloatArray = field(default_factory=lambda: np.zeros(0))
    guess: FloatArray = field(default_factory=lambda: np.zeros(0))
    pace_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    explored: set[int] = field(default_factory=set)
    underway: set[int] = field(default_factory=set)
    num_timed: dict[int, int] = field(default_factory=dict)
    refined: set[int] = field(default_factory=set)
    refined_together: set[int] = field(default_factory=set)
    refined_twice: set[int] = field(default_factory=set)
    refined_longer: set[int] = field(default_factory=set)
    refining: set[int] = field(default_factory=set)
    fastest_s: float = float("inf")
    any_fits: bool = False
    least_need: tuple[float, int] = (float("inf"), -1)
    unpriced: Unpriced = field(init=False)

    def __post_init__(self, late: Callable[[], bool]) -> None:
        self.unpriced = Unpriced(self.context, self.space, self.goal, self.params, late)
        self.missed_s = self.unpriced.missed_s

    @property
    def exhausted(self) -> bool:
        """Every configuration has been priced."""
        return not len(self.unpriced)

    @property
    def least_bound(self) -> float:
        """Least value that any configuration may have."""
        return min(float(self.bound.min(initial=float("inf"))), self.unpriced.least_value)

    @property
    def waits_for_prices(self) -> bool:
        """Something that is not priced has the least bound."""
        return self.unpriced.least_value < float(self.bound.min(initial=float("inf")))

    @property
    def least_s(self) -> float:
        """No plan takes less than this, whether it reaches the target or not; infinite where nothing fits."""
        missed_s = min(self.missed_s, self.unpriced.missed_s)
        return min(missed_s, float(self.seconds.min(initial=float("inf"))), self.unpriced.least_s)

    def load(self, cutoff: float, *, planned: bool, most: int | None = None) -> float:
        """Price a portion of configurations (`most` at most) if it may hold the least bound or nothing else is left, or
        bound as many shapes first; returns as how many configurations it took, 0 if none.

        Before there is a plan these are the most promising of a part of the space, so that it does not wait for the
        rest.
        """
        if planned:
            self.unpriced.look()
        if self.exhausted:
            return 0
        matters = self.unpriced.least_value < cutoff
        if len(self.rows) and not (matters and ((planned and self.waits_for_prices) or self.next(cutoff) is None)):
            return 0
        most = most or self.params.portion
        if planned and (num_shapes := _bound_shapes(self, cutoff, most)):
            return self.params.shape_work * num_shapes
        return self._price(self.unpriced.next_portion(most, planned=planned))

    def load_for(self, considered: BoolArray, *, most: int | None = None) -> int:
        """Price the most promising of these configurations, at most so many; how many that were."""
        self.unpriced.look()
        return self._price(self.unpriced.portion_of(considered, most or self.params.sample))

    def _price(self, rows: IntArray) -> int:
        if not len(rows):
            return 0
        bounds = lower_bounds(self.context, self.space.take(rows))
        if self.goal.counts_doubt and len(fitting := rows[bounds.fits]):  # sizes of their own, where they may be more
            self.unpriced.size[fitting] = self.goal.sizes(self.context, self.space.take(fitting))
        size = self.unpriced.size[rows]
        seconds = np.maximum(bounds.iteration_s, self.unpriced.bound_s[rows])
        value = self.goal.least_values(seconds, size)
        if self.goal.counts_usd:
            value = np.maximum(value, least_work_usd(self.context, self.space.take(rows)))
        keep = bounds.fits & np.isfinite(value)
        self.any_fits = self.any_fits or bool(bounds.fits.any())
        self.fastest_s = min(self.fastest_s, float(seconds[bounds.fits].min(initial=float("inf"))))
        self.missed_s = min(self.missed_s, float(seconds[bounds.fits & ~keep].min(initial=float("inf"))))
        tightest = int(np.argmin(bounds.least_memory_bytes))
        self.least_need = min(self.least_need, (float(bounds.least_memory_bytes[tightest]), int(rows[tightest])))
        pace_s = np.maximum(bounds.guess_s, seconds)[keep]
        guess = self.goal.priority(pace_s, size[keep], self.unpriced.largest)
        repeats = _repeats(self.space.take(rows[keep]), guess)
        self.rows = np.concatenate([self.rows, rows[keep]])
        self.bound = np.concatenate([self.bound, value[keep]])
        self.seconds = np.concatenate([self.seconds, seconds[keep]])
        self.pace_s = np.concatenate([self.pace_s, pace_s])
        self.guess = np.concatenate([self.guess, guess * (1.0 + self.params.repeat_penalty * repeats)])
        return len(rows)

    def next(self, cutoff: float, *, planned: bool = True) -> int | None:
        """The most promising configuration that is neither explored nor ruled out.

        Until something reaches the target, every other one is the one that is likeliest to.
        """
        open_rows = np.flatnonzero(self.bound < cutoff)
        likeliest = self.goal.has_target and not planned and len(self.explored) % 2
        order = self.pace_s if likeliest else self.guess
        promising = open_rows[np.argsort(order[open_rows], kind="stable")][: len(self.explored) + 1]
        return next((int(index) for index in promising if int(index) not in self.explored), None)

    def unrefined(self, cutoff: float, most: int) -> list[tuple[int, ...]]:
        """The least bounds below the cutoff that are not refined yet, at most so many, with all that are alike.

        None beyond the least refined one, which is the bound of the search then whatever the others may be: it is
        refined once more, for longer, where GPU types are mixed. Those that are just being refined are taken to be
        above it soon.
        """
        waiting = self.bound < cutoff
        refined = np.array(sorted(self.refined - self.refining), dtype=np.int64)
        limit = float(self.bound[refined].min(initial=cutoff))
        waiting[[*self.refined, *self.refining]] = False
        open_ones = np.flatnonzero(waiting)
        least = open_ones[least_places(self.bound[open_ones], most)]
        found: list[tuple[int, ...]] = []
        for index in least[np.argsort(self.bound[least], kind="stable")].tolist():
            if self.bound[index] <= limit and not any(index in others for others in found):
                found.append(_refined_next(self, index, open_ones))
        return found or ([] if limit >= cutoff else _refined_longer_next(self, refined, limit))

    def set_refined(self, indices: tuple[int, ...]) -> None:
        """The bound at a place is its own, or of several places that of all."""
        same_experts = len(np.unique(self.space.columns.ep[self.rows[list(indices)]])) == 1
        if same_experts and not is_first_bound(self, indices):
            self.refined_twice.update(indices)
        if self.refined.issuperset(indices):
            self.refined_longer.update(indices)
        (self.refined if len(indices) == 1 else self.refined_together).update(indices)

    def num_ruled_out(self, cutoff: float) -> int:
        """Configurations that do not fit or cannot improve on the cutoff, but for those that were explored."""
        retained = self.bound < cutoff
        retained[list(self.explored)] = True
        open_ones = len(self.unpriced) - self.unpriced.num_at_least(cutoff)
        return len(self.space) - open_ones - int(np.count_nonzero(retained))

    def configuration(self, index: int) -> Configuration:
        """The configuration behind an index."""
        return configuration_of(self.context, self.space, int(self.rows[index]))

    def raise_bound(self, index: int, seconds: float) -> None:
        """Some iteration time that the configuration cannot be below, nor its guess."""
        size, least_s = self.unpriced.size[self.rows[index : index + 1]], np.array([seconds])
        value = float(self.goal.least_values(least_s, size)[0])
        self.bound[index] = max(self.bound[index], value)
        self.seconds[index] = max(self.seconds[index], seconds)
        self.pace_s[index] = max(self.pace_s[index], seconds)
        self.guess[index] = max(self.guess[index], float(self.goal.priority(least_s, size, self.unpriced.largest)[0]))

    def put_back(self, index: int, num_timed: int = 0) -> None:
        """An explored configuration is open again; so many of its placements need not be timed again."""
        self.explored.discard(index)
        self.underway.discard(index)
        if index in self.refining:
            give_up_refining(self, (index,))
        self.num_timed[index] = max(num_timed, self.num_timed.get(index, 0))


def is_first_bound(frontier: Frontier, indices: tuple[int, ...]) -> bool:
    """Whether these share out layers by GPU type and are bounded together for the first time."""
    first = indices[0]
    by_type = frontier.space.layer_split[frontier.rows[first]] == BY_GPU_TYPE
    return bool(by_type) and len(indices) > 1 and first not in frontier.refined_together


def begin_refining(frontier: Frontier, indices: tuple[int, ...]) -> None:
    """The bound at a place is soon its own, or of several places that of all, unless it is given up."""
    frontier.refining.update(indices)
    frontier.set_refined(indices)


def give_up_refining(frontier: Frontier, indices: tuple[int, ...]) -> None:
    """Nobody refines these bounds any more, so that is to be done again."""
    frontier.refining.difference_update(indices)
    frontier.refined_longer.difference_update(indices)
    together = frontier.refined_twice if frontier.refined_twice.issuperset(indices) else frontier.refined_together
    (frontier.refined if len(indices) == 1 else together).difference_update(indices)


def _bound_shapes(frontier: Frontier, cutoff: float, most: int) -> int:
    """Bound shapes that may hold the least bound, so that few of their configurations are priced; how many."""
    rows = frontier.unpriced.shapes(cutoff, most)
    if len(rows):
        frontier.unpriced.raise_shapes(rows, shape_bounds_s(frontier.context, frontier.space.take(rows)))
        frontier.missed_s = min(frontier.missed_s, frontier.unpriced.missed_s)
    return len(rows)


def _refined_next(frontier: Frontier, index: int, among: IntArray) -> tuple[int, ...]:
    """Whose bounds to refine with that of a configuration: of all alike, then of those with the same experts, then its
    own alone. Where layers are shared out by GPU type those with the same experts are the first, too: memory and
    exchanges at their least over several degrees leave next to nothing.
    """
    if index not in frontier.refined_together:
        by_type = frontier.space.layer_split[frontier.rows[index]] == BY_GPU_TYPE
        return _alike(frontier, index, among, WITH_SAME_EXPERTS if by_type else ALIKE, frontier.refined_together)
    if index not in frontier.refined_twice:
        some = among[np.isin(among, list(frontier.refined_together))]
        return _alike(frontier, index, some, WITH_SAME_EXPERTS, frontier.refined_twice)
    return (index,)


def _refined_longer_next(frontier: Frontier, refined: IntArray, limit: float) -> list[tuple[int, ...]]:
    """The refined configuration that holds the bound of the search, unless that had more effort before.

    With one GPU type a bound is worked out whole the first time.
    """
    if len({one.gpu.name for one in frontier.context.gpu_classes.values()}) == 1:
        return []
    held = refined[frontier.bound[refined] <= limit][:1].tolist()
    return [(index,) for index in held if index not in frontier.refined_longer]


def _alike(frontier: Frontier, index: int, among: IntArray, names: tuple[str, ...], done: set[int]) -> tuple[int, ...]:
    """The configuration and those that agree with it in these columns and were not done yet."""
    space, rows = frontier.space, frontier.rows
    for column in (*(getattr(space.columns, name) for name in names), space.family, space.layer_split):
        among = among[column[rows[among]] == column[rows[index]]]
    others = [other for other in among.tolist() if other != index and other not in done]
    return index, *others[: frontier.params.refined_together - 1]


def _repeats(space: Space, guess: FloatArray) -> FloatArray:
    """How many more promising configurations have the same pipeline shape, so that shapes are tried in turn."""
    order = np.argsort(guess, kind="stable")
    _, inverse = np.unique(space.take(order).pipeline_shapes(), axis=0, return_inverse=True)
    seen = np.zeros(int(inverse.max(initial=0)) + 1, dtype=np.int64)
    repeats = np.zeros(len(guess))
    for place, shape in zip(order, inverse.ravel(), strict=True):
        repeats[place] = seen[shape]
        seen[shape] += 1
    return repeats
