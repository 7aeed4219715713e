"""What is true of every request, one short function per law: each yields what it finds against itself."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from models.outcome import Infeasible, NotFound, Outcome, Planned
from models.plan import Plan, Proof
from models.request import Objective, PlanRequest
from solver.context import Context
from solver.evaluation.relaxation import relaxed_bound_s, sharper_bound_s
from solver.evaluation.report import draft_cross_building_bytes, plan_of
from solver.objective import Goal
from solver.planner import validate
from solver.search.answer import PROVEN
from solver.search.incumbent import Incumbent
from solver.space.bounds import lower_bounds, speed_of_light_s
from solver.space.outlook import outlook
from solver.verify.judge import judge
from tests.laws import changes, hand
from tests.laws.drafts import Drawn
from tests.laws.trial import Trial

Json = dict[str, Any]
SLACK = 1.0 + 1e-9
CLOSE = 1e-6
SHORT_S, OVERRUN_S = 2.0, 1.0
JUDGED = 4  # of the random drafts of a request
TRAFFIC = Goal(Objective(kind="least_cross_building_traffic", target_iteration_s=1.0), 1.0, priced=False)
UNTIL = (1.0, 4.0)  # times a draft's own time: how far a bound is sharpened


class Breach(NamedTuple):
    """What breaks a law: in a word that groups breaches alike, in figures, and another request where it takes two."""

    what: str
    detail: str
    other: Json | None = None


Law = Callable[[Trial], Iterator[Breach]]


def the_judge_takes_every_draft_of_the_search(trial: Trial) -> Iterator[Breach]:
    """What the search submits, the judge accepts."""
    for found, verdict in trial.watched[1].verdicts:
        for violation in verdict.violations[:1]:
            where = found.candidate.configuration.degrees
            yield Breach(violation.rule, f"{violation.where}: {violation.detail} [{where}]")


def the_judge_takes_random_drafts(trial: Trial) -> Iterator[Breach]:
    """A draft of any configuration on any placement that obeys the request is a plan."""
    for found, verdict in _judged(trial):
        for violation in verdict.violations[:1]:
            where = found.candidate.configuration.degrees
            yield Breach(violation.rule, f"{violation.where}: {violation.detail} [{where}]")


def _judged(trial: Trial) -> Iterator[tuple[Any, Any]]:
    """Some random drafts that obey the request, with the verdict of each."""
    if not trial.drawn:
        return
    weigh = Incumbent(trial.context, Goal.of(trial.context)).value_of
    valid = [one.draft for one in trial.drawn if weigh(one.draft) < float("inf")]
    sample = trial.dice("judged").some(valid)[:JUDGED] if valid else []
    for found in sample:
        trial.counts["plans judged"] += 1
        yield found, judge(trial.request, plan_of(trial.context, found, _modest_proof(trial, found.iteration_s)))


def _modest_proof(trial: Trial, time_s: float) -> Proof:
    """What can be said of a draft that nobody searched for: it is no faster than light."""
    light_s = speed_of_light_s(trial.context)
    gap = max(0.0, 1.0 - light_s / time_s)
    return Proof(
        lower_bound_s=time_s * (1.0 - gap),
        relative_gap=gap,
        status="optimal" if gap <= trial.request.options.relative_gap else "feasible",
        speed_of_light_s=light_s,
        num_configurations=len(trial.space),
        num_pruned=0,
        num_explored=0,
        proven=PROVEN[trial.request.objective.kind],
    )


def no_bound_is_above_a_draft_of_its_configuration(trial: Trial) -> Iterator[Breach]:
    """However early or late a bound is taken."""
    if not trial.drawn:
        return
    context, rows = trial.context, sorted({one.row for one in trial.drawn})
    space = trial.space.take(np.array(rows))
    ahead_s, bounds = outlook(context, space).bound_s, lower_bounds(context, space)
    weigh, dice = Incumbent(context, Goal.of(context)).value_of, trial.dice("bounds")
    least_bytes = TRAFFIC.sizes(context, space)
    for place, row in enumerate(rows):
        some = [one for one in trial.drawn if one.row == row]
        own = some[0].configuration
        known = {"outlook": ahead_s[place], "lower": bounds.iteration_s[place]}
        known["speed of light"] = speed_of_light_s(context)
        known["sharper"] = sharper_bound_s(context, own, dice.pick(UNTIL) * min(one.draft.iteration_s for one in some))
        if own.layer_split == "even":
            known["relaxed"] = relaxed_bound_s(context, own)
        if not bounds.fits[place]:
            yield Breach("memory", f"does not fit, yet takes {some[0].draft.iteration_s:.9g} s: {own}")
        for one in some:
            yield from _below_a_bound(context, one, known, weigh(one.draft))
            sent = draft_cross_building_bytes(context, one.draft)
            if least_bytes[place] > sent * SLACK:
                yield Breach("traffic", f"{least_bytes[place]:.9g} above {sent:.9g} B: {own}")


def _below_a_bound(context: Context, one: Drawn, known: Mapping[str, float], value: float) -> Iterator[Breach]:
    """A draft faster than a bound of its configuration, or cheaper than that time at the least price."""
    goal, time_s = Goal.of(context), one.draft.iteration_s
    where = f"{one.configuration} on {one.draft.candidate.routes}"
    for name, bound_s in known.items():
        if bound_s > time_s * SLACK:
            yield Breach(name, f"{bound_s:.9g} above {time_s:.9g} s: {where}")
    most_s = min(float(max(known.values())), time_s)
    bound = goal.value(most_s, float(one.configuration.degrees.num_gpus))
    if goal.objective.kind == "cost_per_token" and bound > value * SLACK:
        yield Breach("cost", f"{bound:.9g} above {value:.9g}: {where}")


def the_proof_is_above_no_draft(trial: Trial) -> Iterator[Breach]:
    """The last bound, in the unit of the objective, against every draft of the search and every random one."""
    outcome, seen = trial.watched
    drafts = list(seen.drafts)
    if trial.drawn:
        weigh = Incumbent(trial.context, Goal.of(trial.context)).value_of
        drafts += [(weigh(one.draft), one.draft.iteration_s) for one in trial.drawn]
    kind = trial.request.objective.kind
    if isinstance(outcome, Planned) and seen.best is not None:
        bound = seen.best.value * (1.0 - outcome.plan.proof.relative_gap)
        least = min((value for value, _ in drafts), default=float("inf"))
        if bound > least * (1.0 + CLOSE):
            yield Breach(kind, f"proven {bound:.9g}, a draft has {least:.9g}; the plan {seen.best.value:.9g}")
    if isinstance(outcome, NotFound):
        fastest = min((time_s for value, time_s in drafts if value < float("inf")), default=float("inf"))
        if outcome.lower_bound_s > fastest * SLACK:
            yield Breach("not found", f"no plan below {outcome.lower_bound_s:.9g} s, a draft takes {fastest:.9g} s")
    for news in seen.progress:
        too_high = news.lower_bound_s is not None and kind == "iteration_time"
        fastest = min((time_s for value, time_s in drafts if value < float("inf")), default=float("inf"))
        if too_high and (news.lower_bound_s or 0.0) > fastest * (1.0 + CLOSE):
            yield Breach("progress", f"{news.phase}: {news.lower_bound_s:.9g} s, a draft takes {fastest:.9g} s")
            return


def nothing_infeasible_has_a_draft(trial: Trial) -> Iterator[Breach]:
    """Where no plan exists, no random draft obeys the request and pleases the judge."""
    if not isinstance(trial.outcome, Infeasible):
        return
    for found, verdict in _judged(trial):
        if verdict.accepted:
            code = trial.outcome.reasons[0].code
            yield Breach(code, f"{found.iteration_s:.6g} s with {found.candidate.configuration}")


def what_cannot_be_planned_is_not_valid_only_where_that_is_proven(trial: Trial) -> Iterator[Breach]:
    """The quick check finds a reason only where the search says infeasible."""
    reasons = validate(trial.request)
    if reasons and not isinstance(trial.outcome, Infeasible):
        yield Breach(reasons[0].code, f"{reasons[0].detail}, yet {trial.outcome.status}")


def a_plan_survives_its_own_degrees(trial: Trial) -> Iterator[Breach]:
    """Restricted to a plan's own degrees, the request still has a plan, no better than the bound."""
    if trial.plan is None:
        return
    other = changes.restricted_to(changes.with_fixed_stack(trial.document), trial.plan.configuration)
    outcome = trial.outcome_of(other)
    if isinstance(outcome, Infeasible):
        yield Breach(outcome.reasons[0].code, outcome.reasons[0].detail, other)
    elif isinstance(outcome, NotFound):
        yield Breach("not found", outcome.detail, other)
    else:
        yield from _outdone(trial.outcome, outcome, "restricted", other)


def a_part_of_the_infeasible_has_no_plan(trial: Trial) -> Iterator[Breach]:
    """What nobody can plan, nobody can plan under more constraints."""
    if not isinstance(trial.outcome, Infeasible):
        return
    dice = trial.dice("restrictions")
    for _ in range(3):
        other = changes.restriction(dice, changes.with_fixed_stack(trial.document))
        outcome = trial.outcome_of(other)
        if isinstance(outcome, Planned):
            allowed = other["constraints"]["allowed"]
            yield Breach(trial.outcome.reasons[0].code, f"{trial.outcome.reasons[0].detail}; planned: {allowed}", other)


def a_target_that_was_reached_is_within_reach(trial: Trial) -> Iterator[Breach]:
    """A plan of a second: as a target, a second is not out of reach, and no bound is above what the plan spends."""
    if trial.plan is None:
        return
    kind = trial.dice("target").pick(("fewest_gpus", "least_cross_building_traffic"))
    other = copy.deepcopy(changes.with_fixed_stack(trial.document))
    other["objective"] = {"kind": kind, "target_iteration_s": trial.plan.metrics.iteration_s * (1.0 + CLOSE)}
    outcome, metrics = trial.outcome_of(other), trial.plan.metrics
    spent = float(metrics.num_gpus) if kind == "fewest_gpus" else metrics.cross_building_bytes
    if isinstance(outcome, Infeasible):
        yield Breach(f"{kind} {outcome.reasons[0].code}", outcome.reasons[0].detail, other)
    elif isinstance(outcome, Planned):
        bound = worth(PlanRequest.model_validate(other), outcome.plan)[1]
        if bound > spent * (1.0 + CLOSE):
            yield Breach(f"{kind} bound", f"{bound:.9g} above {spent:.9g} of a plan in time", other)


def more_never_hurts(trial: Trial) -> Iterator[Breach]:
    """With more GPUs, links, memory or freedom no bound is above what was planned with less."""
    dice = trial.dice("additions")
    base = changes.with_fixed_stack(trial.document)
    change = dice.pick(changes.ADDITIONS)
    other = change(dice, base)
    if trial.plan is None or other is None:
        return
    yield from _outdone(trial.outcome_of(other), trial.outcome, change.__name__, other)


def names_order_and_what_is_unused_do_not_matter(trial: Trial) -> Iterator[Breach]:
    """The same cluster in other words: neither bound is above the other's plan."""
    dice = trial.dice("same")
    base = changes.with_fixed_stack(trial.document)
    change = dice.pick(changes.SAME)
    other = change(dice, base)
    if other is None:
        return
    outcome = trial.outcome_of(other)
    yield from _outdone(outcome, trial.outcome, change.__name__, other)
    yield from _outdone(trial.outcome, outcome, change.__name__, other)


def a_split_pool_is_no_better_and_hardly_worse(trial: Trial) -> Iterator[Breach]:
    """Two pools in the place of one, on whole hosts: as good wherever stage groups fill both."""
    dice = trial.dice("split")
    base = changes.with_fixed_stack(trial.document)
    other = changes.split_pool(dice, base)
    if other is None:
        return
    outcome = trial.outcome_of(other)
    yield from _outdone(trial.outcome, outcome, "whole", other)
    if trial.plan is not None:
        one = trial.plan.configuration.degrees
        bundle = one.gpus_per_stage_group * max(1, one.ep // one.cp)
        pools = PlanRequest.model_validate(other).cluster.pools
        if all(pool.num_free_gpus % bundle == 0 for pool in pools):
            yield from _outdone(outcome, trial.outcome, "split", other)


def twice_the_batch_takes_at_most_twice_as_long(trial: Trial) -> Iterator[Breach]:
    """Twice as many micro-batches are two iterations, of which one exchange and one update are saved."""
    kind, limit = trial.request.objective.kind, "max_cross_building_bytes_per_iteration"
    base = changes.with_fixed_stack(trial.document)
    if trial.plan is None or kind != "iteration_time" or limit in base.get("constraints", {}):
        return
    base["workload"]["global_batch_sequences"] *= 2
    outcome = trial.outcome_of(base)
    if isinstance(outcome, Infeasible):
        yield Breach(f"infeasible {outcome.reasons[0].code}", outcome.reasons[0].detail, base)
        return
    once_s = trial.plan.metrics.iteration_s
    twice_s = outcome.plan.proof.lower_bound_s if isinstance(outcome, Planned) else outcome.lower_bound_s
    if twice_s > 2.0 * once_s * (1.0 + CLOSE):
        yield Breach("above twice", f"bound {twice_s:.9g} s, half of the batch takes {once_s:.9g} s", base)
    if isinstance(outcome, Planned) and outcome.plan.configuration.num_microbatches % 2 == 0:
        least_s, time_s = trial.plan.proof.lower_bound_s, outcome.plan.metrics.iteration_s
        if least_s > time_s * (1.0 + CLOSE):
            yield Breach("half is slower", f"bound {least_s:.9g} s, twice the batch takes {time_s:.9g} s", base)


def figures_are_what_a_hand_computes(trial: Trial) -> Iterator[Breach]:
    """Throughput, utilisation, GPUs and bytes between buildings."""
    if trial.plan is None:
        return
    plan, request = trial.plan, trial.request
    metrics, one = plan.metrics, plan.configuration.degrees
    tokens = request.workload.global_batch_sequences * request.workload.sequence_length
    gpus = one.tp * one.cp * one.pp * one.dp
    batch = one.dp * plan.configuration.micro_batch_sequences * plan.configuration.num_microbatches
    derived = {
        "num_gpus": (float(metrics.num_gpus), float(gpus)),
        "batch": (float(batch), float(request.workload.global_batch_sequences)),
        "layers": (float(sum(plan.configuration.layers_per_stage)), float(request.workload.architecture.num_layers)),
        "tokens_per_s": (metrics.tokens_per_s, tokens / metrics.iteration_s),
        "tokens_per_s_per_gpu": (metrics.tokens_per_s_per_gpu, tokens / metrics.iteration_s / gpus),
        "model_flops_utilisation": (
            metrics.model_flops_utilisation,
            hand.training_flops(request) / hand.peak_flops_per_s(request, plan) / metrics.iteration_s,
        ),
    }
    sent, messages = metrics.cross_building_bytes, hand.stage_message_bytes(request, plan)
    direct = len({place.id for place in request.cluster.places if place.level == "building"}) == 2
    if plan.placement.crossing == "none":
        derived["bytes of one building"] = (sent, 0.0)
    elif plan.placement.crossing == "pp_out" and direct:
        derived["bytes of stage messages"] = (sent, messages)
    elif sent < messages * (1.0 - CLOSE):
        yield Breach("bytes below messages", f"{sent:.9g} B between buildings, messages alone are {messages:.9g} B")
    for name, (stated, by_hand) in derived.items():
        if abs(stated - by_hand) > CLOSE * max(abs(by_hand), 1e-12):
            yield Breach(name, f"stated {stated:.9g}, by hand {by_hand:.9g}")


def a_plan_survives_its_json(trial: Trial) -> Iterator[Breach]:
    """Written, read and judged again, it is the same plan, and it is accepted with all that the search added last."""
    if trial.plan is None:
        return
    read = Plan.model_validate_json(trial.plan.model_dump_json())
    if read != trial.plan:
        yield Breach("differs", "the plan read back is another one")
    trial.counts["plans judged"] += 1
    for violation in judge(trial.request, read).violations[:1]:
        yield Breach(violation.rule, f"{violation.where}: {violation.detail}")


def no_rival_beats_the_plan(trial: Trial) -> Iterator[Breach]:
    """Neither a baseline nor an alternative that the plan itself names is better."""
    if trial.plan is None or trial.request.objective.kind != "iteration_time":
        return
    own_s = trial.plan.metrics.iteration_s
    rivals = [(one.name, one.iteration_s) for one in trial.plan.baselines if one.iteration_s is not None]
    rivals += [("alternative", one.iteration_s) for one in trial.plan.alternatives]
    for name, time_s in rivals:
        if time_s < own_s * (1.0 - CLOSE):
            what = "alternative" if name == "alternative" else "baseline"
            yield Breach(what, f"{name} {time_s:.9g} s, the plan {own_s:.9g} s")


def the_same_request_has_the_same_plan(trial: Trial) -> Iterator[Breach]:
    """In counted work nothing depends on the machine."""
    if not trial.request.options.reproducible:
        return
    again = trial.outcome_of(trial.document)
    if again.model_dump_json() != trial.outcome.model_dump_json():
        yield Breach("differs", f"first {trial.outcome.status}, then {again.status}, with other content")


def limits_of_time_are_kept(trial: Trial) -> Iterator[Breach]:
    """Two seconds are at most three, in CPU time."""
    if trial.is_refused:
        return
    other = copy.deepcopy(trial.document)
    other["options"] = {**other.get("options", {}), "reproducible": False, "time_limit_s": SHORT_S}
    began_s = time.process_time()
    outcome = trial.outcome_of(other)
    spent_s = time.process_time() - began_s
    if spent_s > SHORT_S + OVERRUN_S:
        yield Breach(f"{outcome.status}", f"{spent_s:.2f} s of CPU for a limit of {SHORT_S:g} s", other)


def worth(request: PlanRequest, plan: Plan) -> tuple[float, float]:
    """Value of a plan in the unit of the objective, and the bound on it that its gap claims."""
    metrics = plan.metrics
    value = metrics.iteration_s
    if request.objective.kind == "fewest_gpus":
        value = float(metrics.num_gpus)
    elif request.objective.kind == "least_cross_building_traffic":
        value = metrics.cross_building_bytes
    elif request.objective.kind == "cost_per_token":
        usd = metrics.usd_per_million_tokens
        value = usd if usd else metrics.iteration_s * metrics.num_gpus
    return value, value * (1.0 - plan.proof.relative_gap)


def _outdone(better: Outcome, worse: Outcome, what: str, other: Json) -> Iterator[Breach]:
    """A bound of the request that can do no worse, above the plan of the other."""
    if not isinstance(worse, Planned):
        return
    request = PlanRequest.model_validate(other)
    time_s = worse.plan.metrics.iteration_s
    if isinstance(better, Infeasible):
        yield Breach(f"{what}: {better.reasons[0].code}", f"{better.reasons[0].detail}; {time_s:.9g} s exists", other)
    elif isinstance(better, NotFound):
        if request.objective.kind == "iteration_time" and better.lower_bound_s > time_s * SLACK:
            yield Breach(f"{what}: not found", f"bound {better.lower_bound_s:.9g} s, {time_s:.9g} s exists", other)
    else:
        value, bound = worth(request, worse.plan)[0], worth(request, better.plan)[1]
        same_unit = (better.plan.metrics.usd_per_million_tokens is None) == (
            worse.plan.metrics.usd_per_million_tokens is None
        )
        if same_unit and bound > value * (1.0 + CLOSE):
            yield Breach(f"{what}: bound", f"bound {bound:.9g} ({request.objective.kind}), {value:.9g} exists", other)


ON_ALL: tuple[Law, ...] = (
    the_judge_takes_every_draft_of_the_search,
    the_judge_takes_random_drafts,
    no_bound_is_above_a_draft_of_its_configuration,
    the_proof_is_above_no_draft,
    nothing_infeasible_has_a_draft,
    what_cannot_be_planned_is_not_valid_only_where_that_is_proven,
    figures_are_what_a_hand_computes,
    a_plan_survives_its_json,
    no_rival_beats_the_plan,
)
IN_TURN: tuple[Law, ...] = (
    a_plan_survives_its_own_degrees,
    a_part_of_the_infeasible_has_no_plan,
    a_target_that_was_reached_is_within_reach,
    more_never_hurts,
    names_order_and_what_is_unused_do_not_matter,
    a_split_pool_is_no_better_and_hardly_worse,
    twice_the_batch_takes_at_most_twice_as_long,
    the_same_request_has_the_same_plan,
)
TIMED: tuple[Law, ...] = (limits_of_time_are_kept,)  # what no test asserts: only campaigns have them
LAWS: Mapping[str, Law] = {law.__name__: law for law in (*ON_ALL, *IN_TURN, *TIMED)}
