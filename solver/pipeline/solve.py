"""Solve a pipeline: portfolio, then proof and search, then exact replay, then the judge.

No schedule leaves unjudged.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.schedule import PipelineProblem, PipelineSchedule, ScheduleProgress
from solver.pipeline.assemble import assemble
from solver.pipeline.bounds import lower_bound
from solver.pipeline.exact.horizon_search import close_by_state_space
from solver.pipeline.exact.neighbourhoods import improve_by_windows
from solver.pipeline.exact.shaving import shave_windows
from solver.pipeline.judge import check_schedule
from solver.pipeline.local_search.annealing import anneal
from solver.pipeline.local_search.descent import descend
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.local_search.steady_states import repeat
from solver.pipeline.portfolio import candidates
from solver.pipeline.problem import PipelineOrder
from solver.pipeline.quantise import fine_tick_s, quantise

QUICK_OPERATIONS, STATE_SPACE_OPERATIONS = 400, 2_000  # beyond: longer questions; time kept for other searches
HORIZON_OPERATIONS = 1_000  # beyond, CP-SAT's questions stay open for the whole time: tabu search has it instead
DESCENT_SHARE = 0.15  # of what is left goes to tabu search before CP-SAT is asked
PUBLISH_SHARE = 0.05  # of the time may go into writing out schedules that are not the last
FIRST_PROOF_SHARE, STEADY_SHARE, ANNEALING_SHARE, STATE_SPACE_SHARE = 0.2, 0.1, 0.4, 0.8  # of what is left of the time
# Of what is left, chosen by `pipeline_cases`: where questions have exact answers windows, shaving and proofs in turn;
WINDOWS_SHARE, SHAVING_SHARE, PROOF_SHARES = 0.7, 0.5, (0.4,)
CHAINS_SHARE, CHAINS_SHAVING_SHARE = 0.4, 0.65  # where they have none windows, before shaving and after it
LAST_WINDOWS_SHARE = 0.9  # windows after shaving where no question of CP-SAT follows: tabu search finds less
ANNEALING_ALONE_SHARE = 0.7  # the same where nothing is proven; tabu search alone takes the rest


def solve_pipeline(
    problem: PipelineProblem,
    *,
    progress: Callable[[ScheduleProgress], None] | None = None,
    incumbent: Callable[[PipelineSchedule], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> PipelineSchedule:
    """The best schedule found within the limits, with its bound, gap and status; always judged.

    `incumbent` gets the first schedule as soon as there is one, and better ones while writing them out costs little.

    Exact and tabu search do not know blocking sends: with them annealing has all of the time, and the bound is that of
    asynchronous sends, since waiting for messages only ever makes an order slower.

    The search stops when value and bound meet, when the gap is at most `relative_gap`, when the time is up, or when
    `cancelled` says so.
    """
    found = None if incumbent is None else IncumbentPublisher(incumbent)
    return finish(search_pipeline(problem, progress=progress, cancelled=cancelled, clock=clock, found=found))


def search_pipeline(
    problem: PipelineProblem,
    *,
    progress: Callable[[ScheduleProgress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    clock: Callable[[], float] = time.monotonic,
    found: Callable[[PipelineSearch], None] | None = None,
    known: Sequence[PipelineOrder] = (),
    prove: bool = True,
) -> PipelineSearch:
    """What `solve_pipeline` searches, as it stands at the end: the order, its value and the proven bound.

    `known` orders are candidates beside those of the generators. Without `prove` all time goes to local search.
    """
    search = PipelineSearch(problem, clock, progress, cancelled)
    if found is not None:
        search.found = found
    search.bound_s = lower_bound(problem)
    start(search)
    for order in known:
        search.offer(order, "known")
    if search.shape.blocking:
        anneal(search, search.left_s)
    elif prove:
        _search_and_prove(search)
    else:
        repeat(search, STEADY_SHARE * search.left_s)
        anneal(search, ANNEALING_ALONE_SHARE * search.left_s)
        descend(search, search.left_s)
    return search


def _search_and_prove(search: PipelineSearch) -> None:
    """Exact search and local search one after the other, each for its share of the time that is left."""
    exact = close_by_state_space(search, until_s=search.elapsed_s + FIRST_PROOF_SHARE * search.left_s)
    repeat(search, STEADY_SHARE * search.left_s)
    if exact:
        _improve_and_prove(search)
        descend(search, search.left_s)
        return
    anneal(search, ANNEALING_SHARE * search.left_s)
    improve_by_windows(search, CHAINS_SHARE * search.left_s)
    shave_windows(search, CHAINS_SHAVING_SHARE * search.left_s)
    if search.problem.num_operations <= HORIZON_OPERATIONS:
        improve_by_windows(search, CHAINS_SHARE * search.left_s)
        descend(search, DESCENT_SHARE * search.left_s)
        prove_and_search(search)
    else:
        improve_by_windows(search, LAST_WINDOWS_SHARE * search.left_s)
        descend(search, search.left_s)


def _improve_and_prove(search: PipelineSearch) -> None:
    """Windows of the best order until nothing better comes, then proofs, one after the other."""
    last_share = 1.0 if search.problem.num_operations <= STATE_SPACE_OPERATIONS else STATE_SPACE_SHARE
    for share in (*PROOF_SHARES, last_share):
        improve_by_windows(search, WINDOWS_SHARE * search.left_s)
        shave_windows(search, SHAVING_SHARE * search.left_s)
        close_by_state_space(search, until_s=search.elapsed_s + share * search.left_s)


@dataclass
class IncumbentPublisher:
    """Publishes schedules as they are found, written out and judged, for a small part of the time."""

    incumbent: Callable[[PipelineSchedule], None]
    spent_s: float = 0.0
    _last: tuple[float, float] | None = None

    def __call__(self, search: PipelineSearch) -> None:
        """The order and the bound as they stand, if they are new and there is time to write them out."""
        began_s, stands = search.elapsed_s, (search.value_s, search.bound_s)
        late = self._last is not None and self.spent_s > PUBLISH_SHARE * began_s and not search.proven
        if late or stands == self._last:
            return
        self._last = stands
        self.incumbent(finish(search))
        self.spent_s += search.elapsed_s - began_s


def prove_and_search(search: PipelineSearch) -> None:
    """Horizon search on the finest useful grid, for all the time that is left."""
    if search.over:
        return
    from solver.pipeline.cpsat.horizon_search import close  # OR-Tools takes longer to import than small problems

    probe_s = 0.3 * max(1.0, search.problem.num_operations / QUICK_OPERATIONS)
    fine = quantise(search.shape, fine_tick_s(search.shape))
    close(search, fine, probe_s=probe_s)


def start(search: PipelineSearch) -> None:
    """Every generator and policy while there is time; the best is the first answer."""
    for candidate in candidates(search.shape, search.problem.objective):
        search.take(candidate.order, candidate.value_s, candidate.name)
        search.worked()
        if search.order is not None and search.left_s <= 0:
            return


def finish(search: PipelineSearch) -> PipelineSchedule:
    """The answer, replayed and judged; an objection here is a bug of ours."""
    schedule = assemble(
        search.problem,
        search.best_order,
        generator=search.generator,
        lower_bound_s=search.bound_s,
        seconds=search.elapsed_s,
    )
    objections = check_schedule(search.problem, schedule)
    assert not objections, f"our own schedule breaks a rule: {objections[0]}"
    return schedule
