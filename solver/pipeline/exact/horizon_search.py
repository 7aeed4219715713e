"""Horizon search over state spaces: a bound by propagation, then questions with ever more work.

It ends when bound and value meet. One prober looks for orders, another refutes; they go on side by side where two
workers are allowed, by steps of fixed work, so that the same answers come in the same order. Orders found are replayed
exactly.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, product

import numpy as np

from solver.clock import charge
from solver.pipeline.exact.columns import StateSpace, state_space_of
from solver.pipeline.exact.decision import OPEN, REACHED, REFUTED, FeasibilitySearch, least_open, num_states, order_of
from solver.pipeline.exact.joint import joint_ranks_of
from solver.pipeline.exact.joint_kernel import LOOKS, JointRanks
from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.generators.list_scheduler_choice import GUIDED, LONGEST_TAIL, Policy
from solver.pipeline.local_search.descent import CHUNK_WORK_S, improvements
from solver.pipeline.local_search.progress import Horizons, PipelineSearch, bound_ticks, value_ticks
from solver.pipeline.problem import Floats, PipelineOrder, PipelineShape
from solver.pipeline.quantise import coarse_tick_s, exact_tick_s, least_tick_s, quantise
from solver.pipeline.simulate import BrokenOrderError, replay_shape

MOST_STATES = 6_000_000  # of all machines: one pass over them takes about 0.4 s
FINEST_TICKS = 1_000_000_000  # per operation
MOST_TICKS = 2**50  # of a whole schedule: sums of floats are exact below 2^53, and all is far below `FAR`
WORK_S = 3e-8  # to look at one state, less than twice what it takes on a core of 2020
STEP = 600_000  # states between two looks at the clock, about 0.04 s
OPERATIONS_PER_PASS = 6  # a question's least work: a pass over all machines for so many F; it grows with both
FIRST_FACTOR, PROOF_FACTOR = 4, 16  # the bound itself and the proof are given so many times as much
NARROWING_RULES = (0.0, 1.0), (1.0, 1.0), (0.3, 1.0), (1.0, 3.0), (0.0, 0.5)  # an open question is asked otherwise
PROVING_RULES = (1.0, 1.0), (0.0, 1.0)  # as above, for the proof
PATIENCE = 12  # chunks of tabu search without a better order
STALE = 3  # an interval so many times narrower is worth a fresh start
BOUND_PARTS = 500  # with ranks of two stages the bound stops at this part of the first gap
LEAST_PASSES = 16  # over the states of all ranks of two stages: `loop` takes about 30 for all horizons
GUIDES, WAITS = (0.0, 0.1, 0.3, 0.6), (0.3, 1.0)  # parts of the gap; the look-ahead of a guided rank
PARTS = 8  # a prober closes in on the end of what its work can answer to this part of the gap


@dataclass
class HorizonSearch(Horizons):
    """`weight`: where the questions so far got stuck."""

    state_space: StateSpace
    weight: Floats
    least_work: int
    until_s: float
    improvements: Iterator[PipelineOrder | None] | None = None
    idle: int = 0

    @property
    def over(self) -> bool:
        """Whether the search has ended, or its time is up."""
        return super().over or self.search.elapsed_s >= self.until_s

    @property
    def near(self) -> int:
        """How close to the end of what it can answer a prober goes."""
        return (self.high - self.low) // PARTS


@dataclass
class Prober:
    """A question, how much work it may take, which horizon comes next, and the order that the last step has found.

    `gap`: how far apart bound and value were when the question was asked; its first decisions suit no other.
    """

    targets: Iterator[tuple[int, int]]
    rules: Iterator[tuple[float, float]]
    goes_on: bool
    question: FeasibilitySearch | None = None
    work: int = 0
    gap: int = 0
    order: PipelineOrder | None = None


def close_by_state_space(search: PipelineSearch, *, until_s: float) -> bool:
    """Raise the bound by propagation, then search until `until_s`; says whether questions have exact answers here."""
    if search.over or search.problem.objective != "makespan":
        return False
    ticks = quantise(search.shape, state_space_tick_s(search.shape))
    state_space = state_space_of(ticks.shape)
    size = num_states(state_space)
    if size > MOST_STATES:
        return False
    low = bound_ticks(search, ticks) if ticks.exact else 0
    weight = np.ones(len(state_space.machines.length))
    high = value_ticks(search, ticks)
    # What a search that never steps back takes, about.
    least_work = size * max(search.shape.num_stages * search.shape.num_microbatches // OPERATIONS_PER_PASS, 1)
    horizons = HorizonSearch(search, ticks, low, high, state_space, weight, least_work, until_s)
    joint = joint_ranks_of(ticks.shape, _most_joint_states(search, until_s))
    apart = 1 if joint is None else (high - low) // BOUND_PARTS + 1
    least, _ = least_open(
        state_space,
        low,
        high,
        lambda: search.over,
        joint=joint,
        apart=apart,
        spent=lambda work: charge(search.clock, work * WORK_S),
    )
    horizons.refute(least - 1, "state space")
    if joint is not None:
        _follow(horizons, joint)
    if state_space.complete and not horizons.over:
        _run_probers(horizons)
    return state_space.complete


def _most_joint_states(search: PipelineSearch, until_s: float) -> int:
    """States of the graph of a rank, so that there is time for some passes over those of all ranks."""
    pass_s = max(until_s - search.elapsed_s, 0.0) / LEAST_PASSES
    return int(pass_s / WORK_S * LOOKS) // search.shape.num_ranks


def _follow(horizons: HorizonSearch, joint: JointRanks) -> None:
    """List schedules by the latest starts of a few horizons: what must start first goes first."""
    search, n = horizons.search, horizons.search.shape.num_operations
    for part, wait in product(GUIDES, WAITS):
        if horizons.over:
            return
        horizon = horizons.low + round(part * (horizons.high - horizons.low))
        question = FeasibilitySearch(horizons.state_space, horizon, joint=joint)
        charge(search.clock, question.work * WORK_S)
        guide = np.asarray(question.latest[:n] * horizons.ticks.tick_s, dtype=np.float64)
        order = greedy_order(search.shape, Policy(GUIDED, 0.0, wait, message_rule=LONGEST_TAIL), guide=guide)
        search.worked()
        _take(horizons, order, "windows of states")


def state_space_tick_s(shape: PipelineShape) -> float:
    """The exact tick where there is one of at least a billionth of an operation, else about that.

    Where messages take far longer than operations, ticks are longer than that.
    """
    floor_s = max(coarse_tick_s(shape, FINEST_TICKS), least_tick_s(shape, MOST_TICKS))
    exact_s = exact_tick_s(shape)
    return floor_s if exact_s is None or exact_s < floor_s else exact_s


def _run_probers(horizons: HorizonSearch) -> None:
    """Both probers in steps, side by side where two workers are allowed, until bound and value meet."""
    search = horizons.search
    abreast = search.problem.options.workers > 1
    narrowing = Prober(_narrowing(horizons), cycle(NARROWING_RULES), goes_on=False)
    proving = Prober(_proving(horizons), cycle(PROVING_RULES), goes_on=True)
    with ThreadPoolExecutor(1) as pool:
        while not horizons.over:
            questions = [_question_of(horizons, prober) for prober in (narrowing, proving)]
            before = [question.work for question in questions]
            aside = pool.submit(_step, horizons, proving)
            if not abreast:
                aside.result()
            _step(horizons, narrowing)
            _improve_by_tabu(horizons)
            aside.result()
            done = [question.work - work for question, work in zip(questions, before, strict=True)]
            charge(search.clock, WORK_S * (max(done) if abreast else sum(done)))
            for prober in (narrowing, proving):
                _learn(horizons, prober)


def _step(horizons: HorizonSearch, prober: Prober) -> None:
    """Some work on the prober's question."""
    question, shape = prober.question, horizons.ticks.shape
    assert question is not None, "every prober has had its turn"
    if prober.goes_on:
        queues = question.improve(STEP)
        prober.order = None if queues is None else order_of(shape, queues)
    else:
        prober.order = question.order(shape) if question.go_on(STEP) == REACHED else None


def _question_of(horizons: HorizonSearch, prober: Prober) -> FeasibilitySearch:
    """The prober's question; the next one where the last is answered by now or has had its work."""
    question = prober.question
    if question is not None and horizons.low <= horizons.high - 1 < question.horizon:
        question.lower(horizons.high - 1)
    stale = horizons.high - horizons.low < prober.gap // STALE
    if (
        question is None
        or question.status != OPEN
        or question.work >= prober.work
        or question.horizon < horizons.low
        or stale
    ):
        target, prober.work = next(prober.targets)
        prober.gap = horizons.high - horizons.low
        question = prober.question = FeasibilitySearch(
            horizons.state_space, target, weight=horizons.weight, rule=next(prober.rules)
        )
    return question


def _narrowing(horizons: HorizonSearch) -> Iterator[tuple[int, int]]:
    """The bound itself, which is often the best value; then what little work can refute or reach, then more work.

    A horizon that is neither refuted nor reached when the next is drawn stayed open.
    """
    yield horizons.low, FIRST_FACTOR * horizons.least_work
    work = horizons.least_work
    while True:
        below, target = horizons.low, horizons.low + horizons.near
        while horizons.low < horizons.high:
            yield target, work
            below = max(below, horizons.low, target + 1 if target < horizons.high else 0)
            if horizons.high - below <= horizons.near:
                break
            target = (below + horizons.high) // 2
        work *= 2


def _proving(horizons: HorizonSearch) -> Iterator[tuple[int, int]]:
    """A tick below the best value: the refutation is the whole proof, what is reached is better. Restarts know more."""
    work = PROOF_FACTOR * horizons.least_work
    while True:
        yield horizons.high - 1, work
        work *= 3


def _improve_by_tabu(horizons: HorizonSearch) -> None:
    """One chunk of tabu search from the last order that the state space has given, until some chunks bring nothing."""
    if horizons.improvements is None or horizons.over:
        return
    order = next(horizons.improvements, None)
    charge(horizons.search.clock, CHUNK_WORK_S)
    horizons.idle = horizons.idle + 1 if order is None else 0
    if order is not None:
        _take(horizons, order, "tabu")
    elif horizons.idle >= PATIENCE:
        horizons.improvements = None


def _learn(horizons: HorizonSearch, prober: Prober) -> None:
    """An answer moves the interval and the search; where machines got stuck is kept, the older the less."""
    question = prober.question
    if prober.order is not None:
        _reached(horizons, prober.order)
    if question is None or (question.status == OPEN and question.work < prober.work):
        return
    horizons.weight = 1 + (horizons.weight - 1) / 2 + (question.weight - question.first_weight) / 2
    if question.status == REFUTED:
        horizons.refute(question.horizon, "state space")


def _reached(horizons: HorizonSearch, order: PipelineOrder) -> None:
    """Offer an order of the state space, and let tabu search improve it."""
    if _take(horizons, order, "state space"):
        horizons.improvements, horizons.idle = improvements(horizons.search, lambda: horizons.over), 0


def _take(horizons: HorizonSearch, order: PipelineOrder, generator: str) -> bool:
    """Whether it was better; an order that operations of no time have tied into a circle is none."""
    try:
        better = horizons.search.offer(order, generator)
        value = round(replay_shape(horizons.ticks.shape, order).makespan_s)
    except BrokenOrderError:
        return False
    horizons.high = min(horizons.high, value)
    return better
