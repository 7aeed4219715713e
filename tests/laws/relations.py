"""What is true between a request and another one: restricted, enlarged, in other words, doubled, or asked again."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Any

from models.cluster import Pool
from models.outcome import Infeasible, NotFound, Outcome, Planned
from models.plan import Plan
from models.request import PlanRequest
from models.workload import Precision
from solver.cost.compute import peak_flops_per_s
from tests.laws import changes
from tests.laws.breach import CLOSE, SLACK, Breach, Law
from tests.laws.trial import Trial

Json = dict[str, Any]
SHORT_S, OVERRUN_S = 2.0, 1.0
WITHOUT_RECOMPUTATION = 0.75  # of the time with it: three passes of four


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
    other = changes.joined(change(dice, base))
    if trial.plan is None or other is None:
        return
    yield from _outdone(trial.outcome_of(other), trial.outcome, change.__name__, other)


def a_pool_adds_at_most_its_share(trial: Trial) -> Iterator[Breach]:
    """A pool beside another saves at most its share of the FLOP/s of both, and what was recomputed for want of memory.

    The share is of the two pools and not of the cluster: where links are slow the best plan may use one pool alone. And
    it is asked of plans in one place: where no place holds the model, a pool more may save what the links cost.
    """
    kind = trial.request.objective.kind
    if trial.plan is None or kind != "iteration_time":
        return
    if len({place for route in trial.plan.placement.routes for place in route.places}) > 1:
        return
    other, beside = changes.older_pool(trial.dice("share"), trial.document)
    outcome = trial.outcome_of(other)
    if not isinstance(outcome, Planned):
        return
    pools = {pool.id: pool for pool in PlanRequest.model_validate(other).cluster.pools}
    precision, most_gpus = trial.request.workload.precision, trial.request.constraints.max_gpus
    one_s = usable_flops_per_s([pools[beside]], precision, most_gpus)
    both_s = usable_flops_per_s([pools[beside], pools[changes.FREE]], precision, most_gpus)
    if one_s == 0.0:
        return  # no GPU of it is free
    least_s = trial.plan.proof.lower_bound_s * one_s / both_s * WITHOUT_RECOMPUTATION
    if outcome.plan.metrics.iteration_s < least_s * (1.0 - CLOSE):
        yield Breach(
            "more than its share", f"{outcome.plan.metrics.iteration_s:.9g} s, its share allows {least_s:.9g} s", other
        )


def usable_flops_per_s(pools: Sequence[Pool], precision: Precision, most_gpus: int | None) -> float:
    """Dense peak of the strongest GPUs of some pools, as many as a request may use."""
    left, total = float("inf") if most_gpus is None else most_gpus, 0.0
    for pool in sorted(pools, key=lambda one: -peak_flops_per_s(one.gpu, precision)):
        used = min(left, pool.num_free_gpus)
        total, left = total + used * peak_flops_per_s(pool.gpu, precision), left - used
    return total


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


def the_same_request_has_the_same_plan(trial: Trial) -> Iterator[Breach]:
    """In counted work nothing depends on the machine."""
    if not trial.request.options.reproducible:
        return
    again = trial.outcome_of(trial.document)
    if again.model_dump_json() != trial.outcome.model_dump_json():
        yield Breach("differs", f"first {trial.outcome.status}, then {again.status}, with other content")


def the_order_of_lists_changes_no_plan(trial: Trial) -> Iterator[Breach]:
    """In counted work the plan is the same in every figure; warnings alone follow the lists that they point into."""
    other = changes.another_order(trial.dice("order"), trial.document)
    if not trial.request.options.reproducible or other is None or trial.plan is None:
        return
    outcome = trial.outcome_of(other)
    if not isinstance(outcome, Planned):
        yield Breach("no plan", f"{outcome.status} in another order", other)
        return
    plans = [one.model_copy(update={"warnings": ()}) for one in (trial.plan, outcome.plan)]
    differing = [name for name in type(plans[0]).model_fields if getattr(plans[0], name) != getattr(plans[1], name)]
    if differing:
        yield Breach("differs", f"{', '.join(differing)} in another order", other)


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
    elif request.objective.kind == "time_at_confidence":
        assert plan.prediction is not None, "the judge asks for it"
        time_s = plan.prediction.iteration_s  # log-normal: the quantile is as far from the median as its normal one
        share = NormalDist().inv_cdf(request.objective.confidence) / NormalDist().inv_cdf(0.9)
        value = time_s.p50 * (time_s.p90 / time_s.p50) ** share
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


IN_TURN: tuple[Law, ...] = (
    a_plan_survives_its_own_degrees,
    a_part_of_the_infeasible_has_no_plan,
    a_target_that_was_reached_is_within_reach,
    more_never_hurts,
    a_pool_adds_at_most_its_share,
    names_order_and_what_is_unused_do_not_matter,
    a_split_pool_is_no_better_and_hardly_worse,
    twice_the_batch_takes_at_most_twice_as_long,
    the_same_request_has_the_same_plan,
    the_order_of_lists_changes_no_plan,
)
TIMED: tuple[Law, ...] = (limits_of_time_are_kept,)  # what no test asserts: only campaigns have them
