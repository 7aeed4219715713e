"""Why is there no plan? Every minimal conflict among the wishes of a request, and the least that has to give.

In this order: the request itself, its conflicts, what of the hardware they clash with, and the relaxations.
Each subset of wishes is settled by a plan or by a proof that none exists, or it is stated as undecided.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from models.outcome import Infeasible, NotFound, Outcome, Planned, Reason
from models.question_parts import Status
from models.questions import Conflict, Relaxation, WhyNot, WhyNotAnswer, Wish
from models.request import PlanRequest
from solver.questions.conflicts import Conflicts, FoundConflict, Names, enumerate_conflicts
from solver.questions.missing_links import ways_out
from solver.questions.relaxations import Relaxations
from solver.questions.searches import RunHooks, SearchRuns, changed, is_plan_of, witness_of
from solver.questions.wishes import hardware_of, wishes_of

SEARCH_SHARE = 0.15  # of what is left of the time goes to one search at most; most are over at once
CONFLICTS_SHARE = 0.6  # of the time; the rest is for the ways out
UNKNOWN = Conflicts((), (), (), complete=False)
NOTHING_YET = NotFound(lower_bound_s=0.0, detail="the search has begun", elapsed_s=0.0)


@dataclass
class _Asked:
    """One question under way."""

    searches: SearchRuns
    outcome: Outcome
    reasons: dict[Names, tuple[Reason, ...]] = field(default_factory=dict)
    plans: dict[Names, Planned] = field(default_factory=dict)
    conflicts: Conflicts = UNKNOWN
    physics: dict[Names, tuple[str, ...]] = field(default_factory=dict)
    relaxations: list[Relaxation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wishes = {group.name: group for group in wishes_of(self.searches.base)}

    def without(self, names: Names) -> PlanRequest:
        """The request without these wishes."""
        groups = [group for name, group in self.wishes.items() if name in names]
        return changed(self.searches.base, [change for group in groups for change in group.changes])

    def decide(self, retained: Names) -> Status:
        """Whether the request with these wishes alone has a plan."""
        lifted = frozenset(self.wishes) - retained
        outcome = self.search(self.without(lifted))
        if isinstance(outcome, Planned):
            self.plans[lifted] = outcome
        if isinstance(outcome, Infeasible):
            self.reasons[retained] = outcome.reasons
        return outcome.status

    def search(self, request: PlanRequest) -> Outcome:
        """Any plan of a request, or a proof that it has none."""
        limit_s = SEARCH_SHARE * max(self.searches.hooks.left_s, 0.0)
        return self.searches.searched(request, max(limit_s, 1.0), first=True)

    def answer(self) -> WhyNotAnswer:
        """The answer as far as it is known."""
        outcome = self.outcome
        return WhyNotAnswer(
            outcome=outcome.status,
            wishes=tuple(Wish(name=one.name, pointer=one.pointer, stated=one.stated) for one in self.wishes.values()),
            conflicts=tuple(self._conflict(core) for core in self.conflicts.cores),
            relaxations=tuple(self.relaxations),
            undecided=tuple(tuple(sorted(one)) for one in self.conflicts.undecided),
            complete=self.conflicts.complete or outcome.status == "planned",
            num_searches=self.searches.num_searches,
            elapsed_s=self.searches.hooks.elapsed_s,
            plan=witness_of(outcome.plan) if isinstance(outcome, Planned) else None,
        )

    def _conflict(self, core: FoundConflict) -> Conflict:
        known = [retained for retained in self.reasons if retained <= core.names]
        return Conflict(
            wishes=tuple(sorted(core.names)),
            physics=self.physics.get(core.names, ()),
            minimal=not core.unsure,
            unsure=tuple(sorted(core.unsure)),
            reasons=self.reasons[max(known, key=len)] if known else (),
        )


def why_not(question: WhyNot, found: Callable[[WhyNotAnswer], None], hooks: RunHooks) -> WhyNotAnswer:
    """Why a request has no plan. A request that has one is answered with it."""
    limit_s = question.options.time_limit_s
    searches = SearchRuns.of(question, hooks)
    asked = _Asked(searches, NOTHING_YET)

    def publish() -> None:
        found(asked.answer())

    publish()
    outcome = asked.outcome = searches.base_outcome(CONFLICTS_SHARE / 2 * limit_s, first=True)
    publish()
    if isinstance(outcome, Infeasible):
        asked.reasons[frozenset(asked.wishes)] = outcome.reasons
        _explain(asked, publish, hooks.started_s + CONFLICTS_SHARE * limit_s)
    if not isinstance(outcome, Planned):
        _relax(asked, publish)
    return asked.answer()


def _explain(asked: _Asked, publish: Callable[[], None], until_s: float) -> None:
    """The conflicts, and what of the hardware each clashes with."""
    hooks = asked.searches.hooks

    def keep(conflicts: Conflicts) -> None:
        asked.conflicts = conflicts
        publish()

    keep(enumerate_conflicts(list(asked.wishes), asked.decide, stopped=partial(hooks.is_late, until_s), found=keep))
    for core in asked.conflicts.cores:
        alone = asked.without(frozenset(asked.wishes) - core.names)
        named = []
        for group in hardware_of(alone):
            if hooks.stopped():
                return
            if asked.search(changed(alone, group.changes)).status == "planned":
                named.append(group.name)
        asked.physics[core.names] = tuple(named)
        publish()


def _relax(asked: _Asked, publish: Callable[[], None]) -> None:
    """The ways out: each minimal correction, as small as it can be, then what could be bought.

    Where nothing was proven, the plan of a correction may be one of the request as it is: then that is the answer.
    """
    relaxations = Relaxations(asked.searches.base, asked.search, asked.searches.hooks.stopped)
    proven = isinstance(asked.outcome, Infeasible)  # where nothing is, each wish alone may be a correction
    for names in asked.conflicts.corrections if proven else [frozenset({name}) for name in asked.wishes]:
        if asked.searches.hooks.stopped():
            return
        outcome = asked.plans.get(names) or asked.search(asked.without(names))
        if isinstance(outcome, Planned):
            if is_plan_of(asked.searches.base, outcome.plan):
                asked.outcome, asked.relaxations = outcome, []
                publish()
                return
            asked.relaxations.append(relaxations.of_wishes([asked.wishes[one] for one in sorted(names)], outcome.plan))
            publish()
    _join(asked, publish)
    for bought in relaxations.of_hardware():
        asked.relaxations.append(bought)
        publish()


def _join(asked: _Asked, publish: Callable[[], None]) -> None:
    """Where nothing joins the buildings, what does, or how a plan does without."""
    base = asked.searches.base
    for kind, text, changes in ways_out(base):
        outcome = asked.search(changed(base, changes))
        if isinstance(outcome, Planned):
            witness = witness_of(outcome.plan)
            asked.relaxations.append(Relaxation(kind=kind, text=text[:600], changes=changes, plan=witness))
            publish()
