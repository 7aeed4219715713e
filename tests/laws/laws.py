"""What is true of every request, one short function per law: each yields what it finds against itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from models.outcome import Infeasible, NotFound, Planned
from models.plan import Plan, Proof
from models.request import Objective
from solver.bounds.relaxation import refined_bound_s
from solver.bounds.screening import screening_bounds
from solver.bounds.work import light_bound_s, lower_bounds, shape_bounds_s, speed_of_light_s
from solver.context import Context
from solver.evaluation.report import evaluation_cross_building_bytes, plan_of
from solver.objective import Goal
from solver.planner import validate
from solver.search.incumbent import Incumbent
from solver.search.result import PROVEN
from solver.verify.judge import judge
from tests.laws import hand
from tests.laws.breach import CLOSE, SLACK, Breach, Law
from tests.laws.evaluations import Drawn
from tests.laws.exported import EXPORTED
from tests.laws.questions import ASKED
from tests.laws.relations import IN_TURN, TIMED
from tests.laws.trial import Trial

Json = dict[str, Any]
JUDGED = 4  # of the random evaluations of a request
TRAFFIC = Goal(Objective(kind="least_cross_building_traffic", target_iteration_s=1.0), 1.0, priced=False)
UNTIL = (1.0, 4.0)  # times an evaluation's own time: how far a bound is refined


def the_judge_takes_every_evaluation_of_the_search(trial: Trial) -> Iterator[Breach]:
    """What the search submits, the judge accepts."""
    for found, verdict in trial.watched[1].verdicts:
        for violation in verdict.violations[:1]:
            where = found.candidate.configuration.degrees
            yield Breach(violation.rule, f"{violation.where}: {violation.detail} [{where}]")


def the_judge_takes_random_evaluations(trial: Trial) -> Iterator[Breach]:
    """An evaluation of any configuration on any placement that obeys the request is a plan."""
    for found, verdict in _judged(trial):
        for violation in verdict.violations[:1]:
            where = found.candidate.configuration.degrees
            yield Breach(violation.rule, f"{violation.where}: {violation.detail} [{where}]")


def _judged(trial: Trial) -> Iterator[tuple[Any, Any]]:
    """Some random evaluations that obey the request, with the verdict of each."""
    if not trial.drawn:
        return
    weigh = Incumbent(trial.context, Goal.of(trial.context)).value_of
    valid = [one.evaluation for one in trial.drawn if weigh(one.evaluation) < float("inf")]
    sample = trial.dice("judged").some(valid)[:JUDGED] if valid else []
    for found in sample:
        trial.counts["plans judged"] += 1
        yield found, judge(trial.request, plan_of(trial.context, found, _modest_proof(trial, found.iteration_s)))


def _modest_proof(trial: Trial, time_s: float) -> Proof:
    """What can be said of an evaluation that nobody searched for: it is no faster than light."""
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


def no_bound_is_above_an_evaluation_of_its_configuration(trial: Trial) -> Iterator[Breach]:
    """However early or late a bound is taken."""
    if not trial.drawn:
        return
    context, rows = trial.context, sorted({one.row for one in trial.drawn})
    space = trial.space.take(np.array(rows))
    ahead_s, bounds = screening_bounds(context, space).bound_s, lower_bounds(context, space)
    shape_s = shape_bounds_s(context, space)
    weigh, dice = Incumbent(context, Goal.of(context)).value_of, trial.dice("bounds")
    least_bytes = TRAFFIC.sizes(context, space)
    for place, row in enumerate(rows):
        some = [one for one in trial.drawn if one.row == row]
        own = some[0].configuration
        known = {"screening_bounds": ahead_s[place], "shape": shape_s[place], "lower": bounds.iteration_s[place]}
        known["speed of light"] = light_bound_s(context)
        known["sharper"] = refined_bound_s(
            context, [own], dice.pick(UNTIL) * min(one.evaluation.iteration_s for one in some)
        )
        if own.layer_split == "even":
            known["relaxed"] = refined_bound_s(context, [own], 0.0)
        if not bounds.fits[place]:
            yield Breach("memory", f"does not fit, yet takes {some[0].evaluation.iteration_s:.9g} s: {own}")
        for one in some:
            yield from _below_a_bound(context, one, known, weigh(one.evaluation))
            sent = evaluation_cross_building_bytes(context, one.evaluation)
            if least_bytes[place] > sent * SLACK:
                yield Breach("traffic", f"{least_bytes[place]:.9g} above {sent:.9g} B: {own}")


def _below_a_bound(context: Context, one: Drawn, known: Mapping[str, float], value: float) -> Iterator[Breach]:
    """An evaluation faster than a bound of its configuration, or cheaper than that time at the least price."""
    goal, time_s = Goal.of(context), one.evaluation.iteration_s
    where = f"{one.configuration} on {one.evaluation.candidate.routes}"
    for name, bound_s in known.items():
        if bound_s > time_s * SLACK:
            yield Breach(name, f"{bound_s:.9g} above {time_s:.9g} s: {where}")
    most_s = min(float(max(known.values())), time_s)
    bound = goal.value(most_s, float(one.configuration.degrees.num_gpus))
    if goal.objective.kind == "cost_per_token" and bound > value * SLACK:
        yield Breach("cost", f"{bound:.9g} above {value:.9g}: {where}")


def the_proof_is_above_no_evaluation(trial: Trial) -> Iterator[Breach]:
    """The last bound, in the unit of the objective, against every evaluation of the search and every random one."""
    outcome, seen = trial.watched
    evaluations = list(seen.evaluations)
    if trial.drawn:
        weigh = Incumbent(trial.context, Goal.of(trial.context)).value_of
        evaluations += [(weigh(one.evaluation), one.evaluation.iteration_s) for one in trial.drawn]
    kind = trial.request.objective.kind
    if isinstance(outcome, Planned) and seen.best is not None:
        bound = seen.best.value * (1.0 - outcome.plan.proof.relative_gap)
        least = min((value for value, _ in evaluations), default=float("inf"))
        if bound > least * (1.0 + CLOSE):
            yield Breach(kind, f"proven {bound:.9g}, an evaluation has {least:.9g}; the plan {seen.best.value:.9g}")
    if isinstance(outcome, NotFound):
        fastest = min((time_s for value, time_s in evaluations if value < float("inf")), default=float("inf"))
        if outcome.lower_bound_s > fastest * SLACK:
            yield Breach(
                "not found", f"no plan below {outcome.lower_bound_s:.9g} s, an evaluation takes {fastest:.9g} s"
            )
    for news in seen.progress:
        too_high = news.lower_bound_s is not None and kind == "iteration_time"
        fastest = min((time_s for value, time_s in evaluations if value < float("inf")), default=float("inf"))
        if too_high and (news.lower_bound_s or 0.0) > fastest * (1.0 + CLOSE):
            yield Breach("progress", f"{news.phase}: {news.lower_bound_s:.9g} s, an evaluation takes {fastest:.9g} s")
            return


def nothing_infeasible_has_an_evaluation(trial: Trial) -> Iterator[Breach]:
    """Where no plan exists, no random evaluation obeys the request and pleases the judge."""
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
    detours = hand.may_leave_and_come_back(request)
    if plan.placement.crossing == "none" and not detours:
        derived["bytes of one building"] = (sent, 0.0)
    elif plan.placement.crossing == "pp_out" and direct and not detours:
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


ON_ALL: tuple[Law, ...] = (
    the_judge_takes_every_evaluation_of_the_search,
    the_judge_takes_random_evaluations,
    no_bound_is_above_an_evaluation_of_its_configuration,
    the_proof_is_above_no_evaluation,
    nothing_infeasible_has_an_evaluation,
    what_cannot_be_planned_is_not_valid_only_where_that_is_proven,
    figures_are_what_a_hand_computes,
    a_plan_survives_its_json,
    no_rival_beats_the_plan,
    *EXPORTED,
)
LAWS: Mapping[str, Law] = {law.__name__: law for law in (*ON_ALL, *IN_TURN, *TIMED, *ASKED)}
