"""What is the least that reaches a target: GPUs, cost, fibre between buildings, memory of every GPU?

GPUs and cost are objectives of a request within a target. Fibre and memory are narrowed by one factor for all links or
GPUs until nothing reaches the target: between the last factor that is proven not to be enough and the first that a plan
was found for lies the least, since more of them never hurts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from models.least import LeastAnswer, Sizing, SizingAnswer
from models.outcome import Infeasible, NotFound, Outcome, Planned
from models.plan import Plan
from models.question_parts import Change
from models.request import PlanRequest
from models.statements import SPACE_LIMITS
from solver.configurations.framework import within_framework
from solver.configurations.unusual import with_every_degree
from solver.context import stack_for
from solver.network.places import buildings_of
from solver.questions.carried_over import carried_over
from solver.questions.curves import changes_over
from solver.questions.row_bounds import least_bound_s
from solver.questions.searches import ANY_PLAN_SHARE, RunHooks, SearchRuns, changed, witness_of
from solver.questions.side_by_side import SharedGoal
from solver.questions.spending import one_price, usd_per_million_tokens
from solver.questions.targets import target_seconds
from solver.questions.wishes import GBIT, GIB, put

FIRST_SHARE = 0.25  # of the time, to see whether what there is reaches the target at all
PROBES = 8  # of a bisection by which time is shared out
STEP = 4.0  # at first, each factor is that part of the last one
LEAST_FACTOR = 1e-6  # a factor so small counts as nothing
PRECISION = 0.02  # relative width at which a bisection ends
BOUND_SHARE = 0.4  # of the time of a factor goes to the proof that it is not enough, when no plan is carried over
ALONE = (
    put("/constraints/pipeline_may_cross_buildings", False),
    put("/constraints/data_parallel_may_cross_buildings", False),
)


@dataclass
class _Asked:
    """One question under way."""

    question: Sizing
    searches: SearchRuns
    target_s: float
    first: Outcome | None = None
    least: dict[str, LeastAnswer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in self.question.of:
            self.least[one] = LeastAnswer(
                of=one,
                unit=_unit(one, self.searches.base),
                status="not_tried",
                value=None,
                lower_bound=None,
                there=_there(one, self.searches.base),
            )

    def answer(self) -> SizingAnswer:
        """The answer as far as it is known."""
        first = self.first
        return SizingAnswer(
            outcome=first.status if first else "not_found",
            target_iteration_s=self.target_s,
            stack_profile=stack_for(self.searches.base).name,
            fastest=witness_of(first.plan) if isinstance(first, Planned) else None,
            fastest_lower_bound_s=_bound_s(first),
            reasons=first.reasons if isinstance(first, Infeasible) else (),
            least=tuple(self.least[one] for one in self.question.of),
            complete=isinstance(first, Infeasible)
            or all(self.least[one].status != "not_tried" for one in self.question.of),
            elapsed_s=self.searches.hooks.elapsed_s,
        )

    def begin(self, limit_s: float) -> None:
        """Whether what there is reaches the target: a plan that does, or a proof that none can."""
        base, hooks = self.searches.base, self.searches.hooks
        known = self.searches.known
        if known is not None and known.plan.metrics.iteration_s <= self.target_s:
            self.first = known
            return
        self.first = self.reached(base, hooks.clock() + limit_s)
        if isinstance(self.first, NotFound):  # nothing else can be asked without a plan
            self.first = self.reached(base, hooks.clock() + ANY_PLAN_SHARE * hooks.left_s)
        if not isinstance(self.first, Planned):
            for name, one_of in self.least.items():
                self.least[name] = one_of.model_copy(
                    update={"status": self.first.status, "detail": "with all there is"}
                )

    def reached(self, request: PlanRequest, until_s: float, begin: Plan | None = None) -> Outcome:
        """Any plan of a request within the target; infeasible where none can be, whatever its degrees.

        A search for the fastest plan goes through the usual degrees alone. Where these do not reach the target, one
        with the target as its limit, for which there is as long again, says whether any others do.
        """
        began_s = self.searches.hooks.clock()
        found = self._fastest(request, until_s, begin)
        if not isinstance(found, NotFound) or found.lower_bound_s <= self.target_s:
            return found
        until_s += self.searches.hooks.clock() - began_s
        objective = {"kind": "fewest_gpus", "target_iteration_s": self.target_s}
        within, limit_s = changed(request, (put("/objective", objective),)), request.options.time_limit_s
        other = self.searches.searched(within, limit_s, first=True, until_s=until_s, begin=begin)
        return self._fastest(request, until_s, other.plan) if isinstance(other, Planned) else other

    def _fastest(self, request: PlanRequest, until_s: float, begin: Plan | None) -> Outcome:
        """What a search for the fastest plan ends with, which is over with the first within the target."""
        whole_s = max(request.options.time_limit_s, until_s - self.searches.hooks.clock())
        request = request.with_options(relative_gap=0.0)
        found = self.searches.searched(request, whole_s, until_s=until_s, enough=self.is_enough, begin=begin)
        if isinstance(found, Planned) and not self.is_enough(found):
            bound_s = _bound_s(found) or 0.0
            return NotFound(lower_bound_s=bound_s, detail="no plan within the target was found", elapsed_s=0.0)
        return found

    def is_enough(self, found: Planned) -> bool:
        """Whether a plan is within the target."""
        return found.plan.metrics.iteration_s <= self.target_s

    def by_objective(self, of: str, limit_s: float) -> None:
        """The fewest GPUs, or the least cost, as the objective of a request within the target."""
        kind = "fewest_gpus" if of == "gpus" else "cost_per_token"
        prices = one_price(self.searches.base) if of == "cost" else ()
        changes = (put("/objective", {"kind": kind, "target_iteration_s": self.target_s}), *prices)
        request = changed(self.searches.base, changes)
        measure = SharedGoal.of([request])
        whole_s = max(request.options.time_limit_s, limit_s)
        until_s = self.searches.hooks.clock() + limit_s
        begin = self.first.plan if isinstance(self.first, Planned) else None
        found = self.searches.searched(request, whole_s, until_s=until_s, begin=begin)
        bound = measure.bound(request, found)
        if isinstance(found, NotFound) and isinstance(self.first, Planned):
            found = self.first
        update: dict[str, object] = {"status": found.status, "changes": changes}
        if isinstance(found, Planned):
            num_gpus, cost = float(found.plan.metrics.num_gpus), usd_per_million_tokens(request, found.plan)
            update |= {"value": num_gpus if of == "gpus" else cost, "lower_bound": bound} | _shown(found.plan)
        price = "Not all GPUs state a price: a GPU-hour costs 1, whatever the type. " if prices else ""
        update["detail"] = price + SPACE_LIMITS.statement()
        self.least[of] = self.least[of].model_copy(update=update)

    def by_factor(self, of: str, limit_s: float, publish: Callable[[], None]) -> None:
        """The least fibre or memory: factors by halves of their logarithm, until what is not enough is near."""
        assert isinstance(self.first, Planned)
        narrowed = _Narrowed(self, of, self.first, self.searches.hooks.clock() + limit_s)
        for found in narrowed.run(self.searches.base, limit_s / PROBES):
            self.least[of] = found
            publish()


@dataclass
class _Narrowed:
    """A quantity under bisection: `enough` is a factor with a plan, `proven` one that is proven not to be enough."""

    asked: _Asked
    of: str
    best: Planned
    ends_s: float
    enough: float = 1.0
    low: float = 0.0
    proven: float = 0.0
    alone: bool = False

    def run(self, base: PlanRequest, probe_s: float) -> Iterator[LeastAnswer]:
        """What is known after each factor."""
        hooks = self.asked.searches.hooks
        yield self._answer(base)
        if self.of == "fibre" and not base.cluster.links:
            return
        between = self.of == "fibre" and _join_buildings(base)  # all links: those inside a building are narrowed, too
        if between and self._fits_one_building(base, hooks.clock() + probe_s):
            yield self._answer(base)
            return
        while not hooks.stopped() and hooks.clock() < self.ends_s and not self._is_close():
            factor = self.enough / STEP if self.low == 0.0 else (self.low * self.enough) ** 0.5
            self._try(base, factor, min(hooks.clock() + probe_s, self.ends_s))
            yield self._answer(base)

    def _is_close(self) -> bool:
        return self.enough <= LEAST_FACTOR or (self.low > 0.0 and self.enough / self.low <= 1.0 + PRECISION)

    def _fits_one_building(self, base: PlanRequest, until_s: float) -> bool:
        """Whether a plan inside one building reaches the target: then no fibre is needed."""
        found = self.asked.reached(changed(base, ALONE), until_s)
        if isinstance(found, Planned):
            self.best, self.enough, self.alone = found, 0.0, True
        return self.alone

    def _try(self, base: PlanRequest, factor: float, until_s: float) -> None:
        """Settle a factor if it can be: by the plan so far, by a bound, or by a search."""
        asked, hooks = self.asked, self.asked.searches.hooks
        try:
            request = changed(base, self.changes(base, factor))
        except ValueError:  # of pydantic: so little there may not be, as beside the traffic of others
            self.low = factor
            return
        found: Outcome | None = carried_over(request, self.best.plan, hooks.clock, partial(hooks.is_late, until_s))
        if not isinstance(found, Planned) or not asked.is_enough(found):
            bound_until_s = hooks.clock() + BOUND_SHARE * max(until_s - hooks.clock(), 0.0)
            if self._is_proven(request, partial(hooks.is_late, bound_until_s)):
                self.low = self.proven = factor
                return
            found = asked.reached(request, until_s, self.best.plan)
        if isinstance(found, Planned):
            self.best, self.enough = found, factor
        else:
            self.low = factor
            self.proven = factor if isinstance(found, Infeasible) else self.proven

    def _is_proven(self, request: PlanRequest, stopped: Callable[[], bool]) -> bool:
        """Whether bounds show that no plan reaches the target, with the usual degrees or any others."""
        every, target_s = with_every_degree(within_framework(request)), self.asked.target_s
        spaces, clock = [request] if every is None else [request, every], self.asked.searches.hooks.clock
        return all(least_bound_s(one, target_s * (1.0 + PRECISION), stopped, clock) > target_s for one in spaces)

    def changes(self, base: PlanRequest, factor: float) -> tuple[Change, ...]:
        """What leaves this part of what there is."""
        return changes_over(base, "bandwidth" if self.of == "fibre" else "memory", factor)

    def _answer(self, base: PlanRequest) -> LeastAnswer:
        known, there = self.asked.least[self.of], _there(self.of, base)
        return known.model_copy(update={
            "status": "planned",
            "value": None if there is None else self.enough * there,
            "lower_bound": None if there is None else self.proven * there,
            "changes": ALONE if self.alone else () if self.enough == 1.0 else self.changes(base, self.enough),
            **_shown(self.best.plan),
            "detail": _detail(self.of, base, self.enough),
        })  # fmt: skip


def least(question: Sizing, found: Callable[[SizingAnswer], None], hooks: RunHooks) -> SizingAnswer:
    """The least of everything asked for within the target."""
    limit_s = question.options.time_limit_s
    searches = SearchRuns.of(question, hooks)
    searches.for_time()
    asked = _Asked(question, searches, target_seconds(question.target, searches.base))

    def publish() -> None:
        found(asked.answer())

    publish()
    asked.begin(FIRST_SHARE * limit_s)
    publish()
    for of, share_s in hooks.shares(question.of if isinstance(asked.first, Planned) else ()):
        if of in ("gpus", "cost"):
            asked.by_objective(of, share_s)
        else:
            asked.by_factor(of, share_s, publish)
        publish()
    return asked.answer()


def _join_buildings(request: PlanRequest) -> bool:
    """Whether every link leads from one building to another, so that a plan inside one needs none."""
    building = buildings_of(request.cluster)
    return all(building[link.from_place] != building[link.to_place] for link in request.cluster.links)


def _shown(plan: Plan) -> dict[str, object]:
    """Fields of an answer that show a plan."""
    return {"plan": witness_of(plan), "gpus_of_pool": dict(sorted(plan.gpus_of_pool.items()))}


def _bound_s(outcome: Outcome | None) -> float | None:
    if isinstance(outcome, Planned):
        return outcome.plan.proof.lower_bound_s
    return outcome.lower_bound_s if isinstance(outcome, NotFound) else None


def _unit(of: str, request: PlanRequest) -> str:
    if of == "cost":
        return "GPU hours/million tokens" if one_price(request) else "USD/million tokens"
    return {"gpus": "GPUs", "fibre": "Gb/s", "memory": "GiB per GPU"}[of]


def _there(of: str, request: PlanRequest) -> float | None:
    """How much a request has: GPUs, capacity of all links one way, memory of the GPU that has most."""
    cluster = request.cluster
    if of == "gpus":
        return float(min(cluster.num_free_gpus, request.constraints.max_gpus or cluster.num_free_gpus))
    if of == "fibre":
        return sum(link.capacity_bytes_per_s for link in cluster.links) / GBIT
    if of == "memory":
        return max(pool.gpu.memory_bytes for pool in cluster.pools) / GIB
    return None


def _detail(of: str, request: PlanRequest, factor: float) -> str:
    if of == "fibre" and not request.cluster.links:
        return "the cluster states no links"
    if factor == 0.0:
        return "a plan inside one building reaches the target"
    what = "every link" if of == "fibre" else "the memory of every GPU"
    return f"{what} times {factor:.4g}"
