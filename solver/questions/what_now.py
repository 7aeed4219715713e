"""What now? Plans to go on with after a loss or a change, from the fewest moves to the fastest, each with its proof.

Each step has a share of the time: plans that keep the degrees first, which are there in a moment; then better schedules
for them; then any plan; then the bounds on what other plans could do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from models.errors import InvalidRequest
from models.outcome import Infeasible, Planned
from models.plan import Plan
from models.question_parts import Change, QuestionBase
from models.request import PlanRequest
from models.what_now import PreparedLoss, ReplanPoint, WhatIfLost, WhatIfLostAnswer, WhatNow, WhatNowAnswer
from solver.configurations.unusual import covering
from solver.context import Context, stack_for
from solver.network.places import ancestors_of
from solver.network.topology import build_topology
from solver.questions.losses import KIND_OF, Kind, changes_of, links_gone, possible_losses
from solver.questions.more import direction
from solver.questions.move_bounds import MoveBounds
from solver.questions.own_rows import own_bound_s
from solver.questions.replanning import ReplanCase, ReplanSearch, ReplanSolution, timed_only
from solver.questions.searches import RunHooks, SearchRuns, changed, with_profile, witness_of

BASE_SHARE = 0.3  # of the question's time, for the plan before where none is given
KEEP_SHARE, DEGREES_SHARE, SEARCH_SHARE = 0.2, 0.3, 0.7  # of what is then left, one after another; the rest proves
QUICK_SHARE = 0.5  # of a short time
SEARCHED_FROM_S = 8.0  # with less, a search finds nothing that keeping the degrees does not; bounds take the time
SEARCHED_PLANS, CARRIED_PLANS = 3, 2  # plans that a search, or a configuration carried over, makes at least
FIRST_SHARE = 0.1  # of the time goes to the first of all losses at least: what it finds is tried for the others


@dataclass
class _Learned:
    """What earlier losses have shown: the fastest plan, if it has other degrees, and what bounds took in seconds.

    `bounds_s` are those of all configurations, `own_s` of those that a loss leaves.
    """

    fastest: Plan | None = None
    bounds_s: float = 0.0
    own_s: float = 0.0


@dataclass
class _Asked:
    """One question under way; its first plan may take until `over`, where the time it has is a share of more.

    `kind`: what the names of what is lost are names of, where that is known; `lost`: their loss as changes.
    """

    question: WhatNow
    hooks: RunHooks
    before: ReplanCase | None
    over: Callable[[], bool]
    kind: Kind | None = None
    lost: tuple[Change, ...] = ()
    replanning: ReplanSearch | None = None
    complete: bool = False

    def answer(self) -> WhatNowAnswer:
        """The answer as far as it is known."""
        found, plan = self.replanning, self.before.plan if self.before else None
        points = found.frontier.points if found else []
        chosen = _chosen(found, self.question.time_tolerance) if found else None
        infeasible = found.best if found and isinstance(found.best, Infeasible) else None
        return WhatNowAnswer(
            outcome="planned" if points else "infeasible" if infeasible else "not_found",
            lost=self.question.lost,
            lost_changes=self.lost,
            stack_profile=stack_for(self.question.asked).name,
            before_s=plan.metrics.iteration_s if plan else None,
            num_groups_before=found.standing.num_groups if found else 0,
            num_groups_lost=found.standing.num_lost if found else 0,
            time_tolerance=self.question.time_tolerance,
            points=tuple(_point(found, one) for one in points) if found else (),
            chosen=points.index(chosen) if chosen else None,
            lower_bound_s=found.least_s(10**9, found.fastest_s) if found and points else 0.0,
            reasons=infeasible.reasons if infeasible and not points else (),
            complete=self.complete,
            elapsed_s=self.hooks.elapsed_s,
            plan=chosen.plan if chosen and self.complete else None,
        )

    @property
    def fastest(self) -> Plan | None:
        """The fastest plan known, if it has other degrees than the plan before."""
        points = self.replanning.frontier.points if self.replanning else []
        plan = min(points, key=lambda one: one.iteration_s).plan if points else None
        return None if plan is None or self.before is None or _same_degrees(plan, self.before.plan) else plan

    def ways_on(self, before: PlanRequest, learned: _Learned) -> Iterator[None]:
        """Each step, and after it a moment to publish what is known.

        Raises InvalidRequest for changes that do not fit.
        """
        question, hooks = self.question, self.hooks
        after = changed(before, question.changes)
        self.lost = changes_of(after, question.lost, self.kind)
        after = timed_only(changed(after, self.lost, "/lost"))
        if self.before is not None:
            self.replanning = ReplanSearch(self.before, SearchRuns(after, hooks), self.over)
            yield
            yield from _searched(self.replanning, hooks, learned.fastest)
            yield from _proven(self.replanning, hooks, question.time_tolerance, learned)
            settled = bool(self.replanning.frontier.points) or isinstance(self.replanning.best, Infeasible)
            self.complete = settled and not hooks.cancelled()


def what_now(question: WhatNow, found: Callable[[WhatNowAnswer], None], hooks: RunHooks) -> WhatNowAnswer:
    """Plans to go on with after a loss or a change.

    Raises InvalidRequest for changes that do not fit, and for a plan of another cluster.
    """
    before = with_profile(timed_only(question.asked))
    asked = _Asked(question, hooks, None, hooks.stopped)
    asked.before = _plan_before(question, before, hooks, lambda: found(asked.answer()))
    for _ in asked.ways_on(before, _Learned()):
        found(asked.answer())
    return asked.answer()


def _plan_before(
    question: QuestionBase, before: PlanRequest, hooks: RunHooks, publish: Callable[[], None]
) -> ReplanCase | None:
    """The plan that is given, or what a search finds. Raises InvalidRequest for a plan of another cluster.

    The bound of a given plan counts where the plan is one of this request, and where time was its objective.
    """
    context, given = Context.of(before), question.plan
    if given is None:
        publish()  # that there is no answer yet
        limit_s = min(before.options.time_limit_s, BASE_SHARE * hooks.left_s)
        outcome = SearchRuns(before, hooks).base_outcome(limit_s)
        found = outcome.plan if isinstance(outcome, Planned) else None
        return None if found is None else ReplanCase(found, context, found.proof.lower_bound_s)
    pools = {pool.id for pool in context.pools}
    strange = sorted({pool for route in given.placement.routes for pool in route.pools} - pools)
    if strange:
        raise InvalidRequest(
            f"the plan is not one of this request, which has no pool {strange[0]!r} to use",
            pointer="/plan",
            remedy="give the request that the plan was made for",
        )
    known = SearchRuns.of(question, hooks).known if question.asked.objective.kind == "iteration_time" else None
    return ReplanCase(given, context, given.proof.lower_bound_s if known else 0.0)


def _searched(replanning: ReplanSearch, hooks: RunHooks, other: Plan | None) -> Iterator[None]:
    """Each step that looks for plans, and after it a moment to publish what is known."""
    limit_s, began_s = hooks.left_s, hooks.clock()
    quick_s = 0.0

    def until(share: float) -> Callable[[], bool]:
        return lambda: hooks.stopped() or hooks.clock() >= began_s + share * limit_s

    def left_s(share: float, num_plans: int) -> float:
        """Seconds until a share of the time, if so many plans can be made in them."""
        seconds = began_s + share * limit_s - hooks.clock()
        return seconds if not hooks.stopped() and seconds >= num_plans * quick_s else 0.0

    searched = limit_s >= SEARCHED_FROM_S
    retained = replanning.keep_degrees(until(KEEP_SHARE if searched else QUICK_SHARE))
    for _ in islice(retained, 1):
        quick_s = hooks.clock() - began_s
        yield
    if other is not None and left_s(SEARCH_SHARE, CARRIED_PLANS):
        replanning.carry_over(other, until(SEARCH_SHARE))
        yield
    for _ in retained:
        yield
    if searched and (seconds := left_s(DEGREES_SHARE, SEARCHED_PLANS)):
        for _ in replanning.search_degrees(seconds):
            yield
    seconds = left_s(SEARCH_SHARE, SEARCHED_PLANS if replanning.frontier.points else 0)
    if seconds and (searched or not replanning.frontier.points):
        replanning.search(seconds, first=not searched)
        yield


def _proven(replanning: ReplanSearch, hooks: RunHooks, tolerance: float, learned: _Learned) -> Iterator[None]:
    """What else could move so few, or be so fast: first for the plan that is recommended."""
    began_s = hooks.clock()
    if hooks.left_s >= learned.own_s:
        _inherit(replanning, hooks)
        learned.own_s = hooks.clock() - began_s
        yield
    if hooks.stopped() or hooks.left_s < learned.bounds_s or not replanning.frontier.points:
        return
    began_s = hooks.clock()
    bounds = replanning.bounds = MoveBounds(replanning.covering(), replanning.standing, hooks.clock)
    learned.bounds_s = hooks.clock() - began_s
    chosen = _chosen(replanning, tolerance)
    if chosen is not None and chosen.num_moved:
        bounds.raise_bounds(chosen.num_moved, chosen.iteration_s, hooks.stopped)
        yield
    for one in replanning.frontier.points:
        bounds.raise_bounds(one.num_moved + 1, one.iteration_s, hooks.stopped)
        yield


def _inherit(replanning: ReplanSearch, hooks: RunHooks) -> None:
    """What bounds the world before, bounds one with nothing but less, but for configurations of its own.

    Of degrees that the search of the world before left out its bound says nothing.
    """
    bound_s, own = replanning.before.bound_s, replanning.before.plan.configuration
    before = covering(replanning.before.context.request, own)
    if any(covering(before, one.plan.configuration) is not before for one in replanning.frontier.points):
        return
    after = replanning.request.with_cluster(fabric=before.cluster.fabric)  # which says nothing of any plan
    if direction(before, after) == "less":
        own_s = own_bound_s(replanning.covering(), before, bound_s, hooks.stopped, hooks.clock)
        replanning.inherited_s = max(replanning.inherited_s, min(bound_s, own_s))


def _same_degrees(one: Plan, other: Plan) -> bool:
    """Whether two plans differ in replicas at most."""
    dp = other.configuration.degrees.dp
    return one.configuration.degrees.model_copy(update={"dp": dp}) == other.configuration.degrees


def _chosen(replanning: ReplanSearch, tolerance: float) -> ReplanSolution | None:
    """The fewest moves of plans that take no longer than the fastest times 1 + tolerance."""
    within_s = (1.0 + tolerance) * replanning.fastest_s
    return next((one for one in replanning.frontier.points if one.iteration_s <= within_s), None)


def _point(replanning: ReplanSearch, one: ReplanSolution) -> ReplanPoint:
    plan, state = one.plan, one.state
    return ReplanPoint(
        num_groups=plan.configuration.degrees.pp * plan.configuration.degrees.dp,
        num_moved=one.num_moved,
        least_moved=replanning.least_moved(one.iteration_s, one.num_moved),
        num_untouched_replicas=one.settled.num_untouched,
        iteration_s=one.iteration_s,
        lower_bound_s=replanning.least_s(one.num_moved, one.iteration_s),
        state_bytes=state.num_bytes,
        checkpoint_bytes=state.checkpoint_bytes,
        transfer_s=state.seconds,
        fetches=state.fetches,
        plan=witness_of(plan),
    )


def what_if_lost(question: WhatIfLost, found: Callable[[WhatIfLostAnswer], None], hooks: RunHooks) -> WhatIfLostAnswer:
    """Prepared answers for each loss, each with an equal part of what is left of the time.

    The first has more, for a search whose plan is then tried for the others as well. A loss that has no plan yet at the
    end of its part goes on until it has one.
    """
    before = with_profile(timed_only(changed(question.asked, question.changes)))
    name = stack_for(before).name
    answer = WhatIfLostAnswer(stack_profile=name, before_s=None, losses=(), complete=False, elapsed_s=0.0)
    plan = _plan_before(question, before, hooks, lambda: found(answer))
    losses = list(possible_losses(before, plan.plan, question.kinds)) if plan else []
    answer = answer.model_copy(update={
        "before_s": plan.plan.metrics.iteration_s if plan else None,
        "losses": tuple(PreparedLoss(kind=kind, name=name, answer=None) for kind, name in losses),
    })  # fmt: skip
    found(answer)
    known: dict[tuple[tuple[str, ...], tuple[str, ...]], WhatNowAnswer] = {}
    learned = _Learned()
    alike = [what_is_gone(before, KIND_OF[kind], name) for kind, name in losses]
    for number, (kind, name) in enumerate(losses):
        if alike[number] in known:
            lost = {"lost": (name,), "lost_changes": changes_of(before, (name,), KIND_OF[kind])}
            answer = _with(answer, number, known[alike[number]].model_copy(update=lost), hooks.elapsed_s)
            continue
        if hooks.stopped():
            break
        share = 1.0 / len(set(alike[number:]) - set(known))
        limit_s = hooks.left_s * (share if known else max(share, FIRST_SHARE))
        one = WhatNow(request=before, lost=(name,), time_tolerance=question.time_tolerance)
        one = one.model_copy(update={"options": question.options.model_copy(update={"time_limit_s": limit_s})})
        asked = _Asked(one, RunHooks.of(one, hooks.cancelled, hooks.clock), plan, hooks.stopped, KIND_OF[kind])
        for _ in asked.ways_on(before, learned):
            continue
        learned.fastest = asked.fastest or learned.fastest
        known[alike[number]] = asked.answer().model_copy(update={"plan": None})
        answer = _with(answer, number, known[alike[number]], hooks.elapsed_s)
        found(answer)
    settled = all(one.answer is not None and one.answer.complete for one in answer.losses)
    return answer.model_copy(update={"complete": plan is not None and settled, "elapsed_s": hooks.elapsed_s})


def _with(answer: WhatIfLostAnswer, number: int, prepared: WhatNowAnswer, elapsed_s: float) -> WhatIfLostAnswer:
    losses = list(answer.losses)
    losses[number] = losses[number].model_copy(update={"answer": prepared})
    return answer.model_copy(update={"losses": tuple(losses), "elapsed_s": elapsed_s})


def what_is_gone(request: PlanRequest, kind: Kind, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pools and links that go with a place, pool or link: what losses have in common has the same answer.

    A place with a single way out, link or uplink, is on no way between others: its link led to nothing but it.
    """
    around = ancestors_of(request.cluster)
    links = links_gone(request, [name] if kind == "place" else (), [name] if kind == "link" else ())
    named = {pool.id: {"pool": (pool.id,), "place": around[pool.place]}.get(kind, ()) for pool in request.cluster.pools}
    pools = tuple(pool for pool, names in named.items() if name in names)
    return pools, () if pools and _num_ways_out(request, name) < 2 else links


def _num_ways_out(request: PlanRequest, place: str) -> int:
    """Links and uplinks that join a place, or one inside it, with what lies around."""
    around = ancestors_of(request.cluster)
    return sum(
        (place in around[edge.from_place]) != (place in around[edge.to_place])
        for edge in build_topology(request.cluster).edges
        if not edge.reverse
    )
