"""What is true of the answer to every question: it is in time, it is consistent, and plan and question agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from models.errors import InvalidRequest
from models.outcome import Infeasible
from models.questions import AnyQuestion, Reply
from solver.questions.ask import ask
from solver.questions.searches import changed
from tests.laws.breach import CLOSE, Breach, Law
from tests.laws.changes import other_names
from tests.laws.dice import Dice
from tests.laws.trial import Raised, Trial

Json = dict[str, Any]
LIMITS_S = (1.0, 3.0, 6.0)
OVERRUN_S = 6.0  # of CPU, over the limit: compiling models and one last step of the longest kind
FACTORS = (0.5, 2.0, 10.0)
ORDERED = (  # in every part of an answer, the first of two fields is no more than the second
    ("lower_bound", "value"),
    ("lower_bound_s", "iteration_s"),
    ("lower_bound_s", "value_s"),
    ("lower_bound_s", "best_s"),
    ("least", "most"),
    ("least_moved", "num_moved"),
    ("least_price_s", "most_price_s"),
)


def answers_are_consistent(trial: Trial) -> Iterator[Breach]:
    """A random question has an answer in time, which survives its JSON, and whose bounds are below its plans."""
    dice = trial.dice("question")
    if dice.chance(0.3):
        trial = Trial(other_names(dice, trial.document), trial.seed, trial.counts)
    kind = dice.pick(tuple(PARTS))
    document = {"ask": kind, "request": trial.document, **PARTS[kind](dice, trial)}
    document["options"] = {"time_limit_s": dice.pick(LIMITS_S)}
    if trial.plan is not None and dice.chance(0.4):
        document["plan"] = trial.plan.model_dump(mode="json")
    began_s = time.process_time()
    answer = _answer_of(trial, document)
    if answer is None:
        return
    over_s = time.process_time() - began_s - document["options"]["time_limit_s"]
    if over_s > OVERRUN_S:
        yield Breach(f"{kind}: late", f"{over_s:.1f} s over the limit")
    if type(answer).model_validate_json(answer.model_dump_json()) != answer:
        yield Breach(f"{kind}: differs", "the answer read back is another one")
    for one in _disagreeing(trial, answer):
        yield Breach(f"{kind}: {one}", f"{answer.model_dump_json()[:300]}")
    for what, detail in (
        *_disordered(answer),
        *_above_its_point(answer),
        *_refuted(trial, answer),
        *_on_lost(trial, answer),
    ):
        yield Breach(f"{kind}: {what}", detail)


def _answer_of(trial: Trial, document: Json) -> Reply | None:
    """The answer; None to what no request may be changed to."""
    trial.counts[f"asked {document['ask']}"] += 1
    try:
        return ask(AnyQuestion.model_validate(document).root, clock=time.process_time)
    except (InvalidRequest, ValidationError):
        trial.counts["refused"] += 1
        return None
    except TimeoutError:
        raise
    except Exception as error:
        raise Raised(trial.document, error) from error


def _disagreeing(trial: Trial, answer: Any) -> Iterator[str]:
    """What planner and question say of the same request. Those that change the objective or the world are left out."""
    if trial.request.objective.kind != "iteration_time" or answer.ask in ("what_now", "what_if_lost", "least"):
        return
    status = answer.figures[0].status if answer.ask == "robust" else answer.outcome
    if {status, trial.outcome.status} == {"planned", "infeasible"}:
        yield f"{status}, the planner says {trial.outcome.status}"


def _disordered(part: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Wherever two numbers of an answer have an order, those that do not keep it."""
    if isinstance(part, BaseModel):
        if where.endswith("configuration") or where.endswith("plan"):
            return  # whole plans are judged, and their parts have other meanings
        for less, more in ORDERED:
            low, high = getattr(part, less, None), getattr(part, more, None)
            if _is_number(low) and _is_number(high) and low > high + CLOSE * max(abs(low), abs(high)):
                yield f"{where}.{less} above {more}", f"{low:.9g} and {high:.9g} of {str(part)[:200]}"
        for name in type(part).model_fields:
            yield from _disordered(getattr(part, name), f"{where}.{name}".strip("."))
    elif isinstance(part, tuple | list):
        for one in part:
            yield from _disordered(one, where)


def _above_its_point(answer: Any) -> Iterator[tuple[str, str]]:
    """Points of a frontier whose bound is above what was minimised there."""
    for one in answer.frontiers if answer.ask == "frontier" else ():
        minimised = {"money": "usd_per_million_tokens", "energy": "kwh_per_million_tokens"}.get(
            one.against, "iteration_s"
        )
        for point in one.points:
            value = getattr(point, minimised)
            if value is not None and (point.lower_bound or 0.0) > value * (1.0 + CLOSE):
                yield "frontiers.points: bound", f"{one.against}: {point.lower_bound:.9g} above {value:.9g}"


def _refuted(trial: Trial, answer: Any) -> Iterator[tuple[str, str]]:
    """A way out after which the planner proves that there is no plan."""
    for one in answer.relaxations[:1] if answer.ask == "why_not" else ():
        outcome = trial.outcome_of(changed(trial.request, one.changes).model_dump(mode="json"))
        if isinstance(outcome, Infeasible):
            yield "relaxation", f"{one.text}: {outcome.reasons[0].code}: {outcome.reasons[0].detail}"


def _on_lost(trial: Trial, answer: Any) -> Iterator[tuple[str, str]]:
    """Ways on that use what is lost."""
    if answer.ask != "what_now":
        return
    parent = {one.id: one.parent for one in trial.request.cluster.places}
    for pool in trial.request.cluster.pools:
        above: str | None = pool.place
        names = {pool.id}
        while above is not None:
            names.add(above)
            above = parent[above]
        for point in answer.points if names & set(answer.lost) else ():
            if any(pool.id in route.pools for route in point.plan.routes):
                yield "lost", f"pool {pool.id} is used, {answer.lost} is lost"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _worlds(dice: Dice, trial: Trial) -> list[Json]:
    """Other worlds than the one of the request."""
    factor = dice.pick(FACTORS)
    pointers = ["/cluster/pools/*/nic_bytes_per_s", "/cluster/pools/*/num_hosts", "/workload/global_batch_sequences"]
    if trial.document["cluster"].get("links"):
        pointers += ["/cluster/links/*/capacity_bytes_per_s", "/cluster/links/*/loss_probability"]
    return [
        {"name": f"{number}", "changes": [{"op": "multiply", "pointer": pointer, "value": factor}]}
        for number, pointer in enumerate(dice.some(pointers))
    ]


def _lost(dice: Dice, trial: Trial) -> Json:
    cluster = trial.document["cluster"]
    return {"lost": [dice.pick([one["id"] for part in ("places", "pools", "links") for one in cluster.get(part, [])])]}


def _target(dice: Dice, trial: Trial) -> Json:
    own_s = trial.plan.metrics.iteration_s if trial.plan is not None else dice.log(0.01, 100.0)
    return {
        "target": {"iteration_s": own_s * dice.pick((0.5, 1.0, 1.5, 4.0))},
        "of": dice.some(("gpus", "cost", "fibre", "memory")),
    }


PARTS: dict[str, Callable[[Dice, Trial], Json]] = {
    "why_not": lambda _dice, _trial: {},
    "what_if": lambda dice, trial: {"variants": _worlds(dice, trial)},
    "worth": lambda dice, _trial: {"of": dice.some(("links", "pools", "limits", "distance"))},
    "curves": lambda dice, _trial: {"over": dice.some(("bandwidth", "latency", "memory")), "factors": FACTORS},
    "least": _target,
    "frontier": lambda dice, _trial: {"against": dice.some(("gpus", "money", "bytes", "energy")), "max_points": 3},
    "what_now": _lost,
    "what_if_lost": lambda _dice, _trial: {},
    "robust": lambda dice, trial: {"scenarios": _worlds(dice, trial)},
}
"""What a question of each kind asks beside its request."""

ASKED: tuple[Law, ...] = (answers_are_consistent,)
