"""Who can run a plan: what every known framework makes of it, and the best that the search has for each of them.

For a framework the plan and the best few of what was kept are timed with the framework's own schedules,
backward and sends. Whether it runs a configuration at all says its profile, `models/framework.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

from models.framework import FrameworkProfile
from models.plan import FrameworkPlan, Plan, RunnableBy
from models.request import PlanRequest
from solver.clock import WORK_PER_EVALUATION_S, Clock, charge
from solver.context import Context
from solver.evaluation.candidate import Candidate
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.scheduling import Schedulers
from solver.evaluation.where import placement_of
from solver.verify.frameworks import frameworks_of, unsupported_schedules

MOST_TRIED = 3  # of what was kept; the best of a framework is mostly among the best of all
NOT_TIMED = "not timed as it would run it: no time was left"
TOO_MANY_ACTIVATIONS = "its schedules hold more activations than memory has room for"


@dataclass
class FrameworkTrials:
    """Candidates timed as frameworks run them, each once per kind of framework, until `ends_s`; one more is only begun
    where the longest so far would end by then.
    """

    context: Context
    clock: Clock
    cancelled: Callable[[], bool]
    ends_s: float
    longest_s: float = 0.0
    late: bool = False
    _known: dict[tuple[FrameworkProfile, Candidate], Evaluation | None] = field(default_factory=dict)

    def timed(self, profile: FrameworkProfile, candidate: Candidate) -> Evaluation | None:
        """None where its schedules do not fit into memory, or where no time is left; then `late` is set."""
        kind = profile.model_copy(update={"name": "any", "source": ""})
        if (kind, candidate) in self._known:
            return self._known[kind, candidate]
        began_s = self.clock()
        if self.late or self.cancelled() or began_s + self.longest_s >= self.ends_s:
            self.late = True
            return None
        own = self.context.for_framework(kind)
        charge(self.clock, WORK_PER_EVALUATION_S)
        found = evaluate(own, candidate, Schedulers(own, self.clock, self.cancelled, self.ends_s).quick)
        self.longest_s = max(self.longest_s, self.clock() - began_s)
        self._known[kind, candidate] = found
        return found


def runnable_by(
    trials: FrameworkTrials, plan: Plan, found: Evaluation, retained: Iterable[Evaluation]
) -> tuple[RunnableBy, ...]:
    """What every known framework makes of the plan; `retained` are other evaluations of the search, best first."""
    others, request = list(retained), trials.context.request
    return tuple(_made_by(trials, profile, plan, found, others) for profile in frameworks_of(request))


def _made_by(
    trials: FrameworkTrials, profile: FrameworkProfile, plan: Plan, found: Evaluation, retained: list[Evaluation]
) -> RunnableBy:
    reasons = [detail for _, detail in profile.lacks(plan.configuration, trials.context.request.workload)]
    otherwise = list(
        dict.fromkeys(one.detail for one in unsupported_schedules(profile, plan.configuration, plan.timelines))
    )
    own: Evaluation | None = None
    if not reasons:
        own = trials.timed(profile, found.candidate) if otherwise else found
        reasons = otherwise if own is not None else [NOT_TIMED if trials.late else TOO_MANY_ACTIVATIONS]
    runs = own is not None or reasons == [NOT_TIMED]
    best = _best(trials, profile, own, [*([] if runs else [found]), *retained])
    return RunnableBy(
        framework=profile.name,
        runs=runs,
        as_planned=runs and not otherwise,
        reasons=tuple(reason[:400] for reason in reasons[:20]),
        iteration_s=None if own is None else own.iteration_s,
        best=None if best is None else _stated(trials.context, best),
    )


def _best(
    trials: FrameworkTrials, profile: FrameworkProfile, own: Evaluation | None, retained: Iterable[Evaluation]
) -> Evaluation | None:
    """The fastest of the plan and the best few that the framework runs, as it runs them; adapted where it has to be."""
    found = (adapted(profile, trials.context.request, one.candidate) for one in retained)
    able = dict.fromkeys(one for one in found if one is not None)
    timed = [own, *(trials.timed(profile, one) for one in islice(able, MOST_TRIED))]
    return min((one for one in timed if one is not None), key=lambda one: one.iteration_s, default=None)


def adapted(profile: FrameworkProfile, request: PlanRequest, candidate: Candidate) -> Candidate | None:
    """The candidate with the framework's own sharding and fold where its others are not there; None where that is
    not enough, or where the request does not allow it. Replicas, ranks and places stay.
    """
    used, allowed = candidate.configuration, request.constraints.allowed
    copies = used.num_state_copies > 1
    instead = {"zero1": "hsdp" if copies else "fsdp", "fsdp": "zero1", "hsdp": "zero1"}
    if used.sharding not in profile.sharding and used.sharding in instead:
        used = used.model_copy(update={"sharding": instead[used.sharding]})
    if used.family == "v" and "v" not in profile.families:
        used = used.model_copy(update={"family": "loop"})
    wanted = ((allowed.sharding, used.sharding), (allowed.family, used.family))
    refused = any(values is not None and value not in values for values, value in wanted)
    if refused or any(profile.lacks(used, request.workload)):
        return None
    return candidate if used == candidate.configuration else replace(candidate, configuration=used)


def _stated(context: Context, best: Evaluation) -> FrameworkPlan:
    return FrameworkPlan(
        iteration_s=best.iteration_s,
        configuration=best.candidate.configuration,
        routes=placement_of(context, best.candidate).routes,
    )
