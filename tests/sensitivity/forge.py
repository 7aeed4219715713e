"""Tools to corrupt a valid plan: replace a value deep inside it, and make the rest of the plan agree with the lie.

Values are replaced without validation, as a forger would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from models.plan import Plan
from models.request import PlanRequest
from models.schedule import PipelineSchedule
from models.transport import LinkLoad
from tests.build_costs import MIXED, Costs, Forgery, Routes
from tests.build_loads import valued
from tests.build_plan import TRUTH, build_plan, headline, light_s
from tests.build_request import build_request

Value = TypeVar("Value")


def put(value: Value, path: str, new: Any) -> Value:
    """A copy with the value at a dotted path replaced; a function gets the old value. Nothing is validated.

    >>> put((1, (2, 3)), "1.0", 9), put((1, 2), "0", lambda old: old + 1)
    ((1, (9, 3)), (2, 2))
    """
    step, _, rest = path.partition(".")
    old = value[int(step)] if isinstance(value, tuple) else getattr(value, step)
    changed = put(old, rest, new) if rest else new(old) if callable(new) else new
    if isinstance(value, tuple):
        index = int(step) % len(value)
        return type(value)((*value[:index], changed, *value[index + 1 :]))
    assert isinstance(value, BaseModel)
    return value.model_copy(update={step: changed})


def puts(value: Value, **changes: Any) -> Value:
    """Several replacements; double underscores stand for the dots of a path."""
    for path, new in changes.items():
        value = put(value, path.replace("__", "."), new)
    return value


def settled(request: PlanRequest, plan: Plan, *, num_gpus: int | None = None) -> Plan:
    """The plan with every figure forged that follows from its schedules, exchanges and loads, on so many GPUs."""
    ends = [one.end_s for one in plan.timelines]
    iteration_s = max(*ends, *(one.end_s for one in plan.exchanges)) + plan.time.step_end_s
    stated = plan.metrics.num_gpus
    metrics = headline(request, plan.link_loads, iteration_s=iteration_s, num_gpus=num_gpus or stated)
    own = {"num_gpus": stated, "tokens_per_s_per_gpu": metrics.tokens_per_s / stated}
    return puts(
        plan,
        link_loads=valued(
            Costs(request, plan.configuration, _routes(plan), TRUTH),
            tuple(_settled_load(load, iteration_s) for load in plan.link_loads),
            plan.timelines,
            plan.exchanges,
        ),
        metrics=metrics.model_copy(update=own),
        time__bubble_s=lambda old: old + iteration_s - plan.time.total_s,
        time__total_s=iteration_s,
        proof__lower_bound_s=0.9 * iteration_s,
        proof__speed_of_light_s=light_s(request, num_gpus or stated),
    )


def _routes(plan: Plan) -> Routes:
    return tuple((one.id, one.places, one.num_replicas) for one in plan.placement.routes)


def _settled_load(load: LinkLoad, iteration_s: float) -> LinkLoad:
    size = sum(flow.bytes_per_iteration for flow in load.flows)
    return put(load, "mean_utilisation", size / (load.usable_bytes_per_s * iteration_s))


def exchanged(plan: Plan, stage: int, **changes: Any) -> Plan:
    """The plan with the exchange of a stage changed and its end forged to match."""
    one = puts(plan.exchanges[stage], **changes)
    both = max(one.private_s, one.shared_s) + min(one.private_s, one.shared_s) / 8
    end_s = max(one.last_weight_grad_end_s, one.start_s + both)
    return put(plan, f"exchanges.{stage}", put(one, "end_s", end_s))


def retext(schedule: PipelineSchedule) -> PipelineSchedule:
    """The schedule with its text form as its operations say."""
    return put(schedule, "text", "\n".join(",".join(rank.operations) for rank in schedule.ranks))


@cache
def usual_plan(routes: Routes, forgery: Forgery) -> Plan:
    """A plan of the default request; plans are frozen, so one does for all tests."""
    return build_plan(build_request(), routes=routes, forgery=forgery)


@dataclass(frozen=True)
class Corruption:
    """A way to break a valid plan, and every rule that has to object.

    `corrupt` makes the broken pair of the valid one. Where a lie can only be told through a whole plan built on it,
    `corrupt` builds that plan anew.
    """

    name: str
    rules: frozenset[str]
    corrupt: Callable[[PlanRequest, Plan], tuple[PlanRequest, Plan]]
    routes: Routes = MIXED
    forgery: Forgery = TRUTH

    def valid(self) -> tuple[PlanRequest, Plan]:
        """The pair before the corruption."""
        return build_request(), usual_plan(self.routes, self.forgery)

    def broken(self) -> tuple[PlanRequest, Plan]:
        """The pair after it."""
        return self.corrupt(*self.valid())


def edit(name: str, rule: str, *more: str, settle: bool = False, **changes: Any) -> Corruption:
    """A corruption of the plan by replacements; with `settle` the figures that follow are forged as well."""

    def corrupt(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
        broken = puts(plan, **changes)
        return request, settled(request, broken) if settle else broken

    return Corruption(name, frozenset((rule, *more)), corrupt)


def demand(name: str, rule: str, **changes: Any) -> Corruption:
    """A corruption by a request that the plan does not answer: replacements in the request."""

    def corrupt(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
        return puts(request, **changes), plan

    return Corruption(name, frozenset((rule,)), corrupt)


def lie(name: str, rule: str, *more: str, request: PlanRequest | None = None, **built: Any) -> Corruption:
    """A plan built on a lie from the start, so that nothing else contradicts it."""
    asked = request or build_request()

    def corrupt(_: PlanRequest, __: Plan) -> tuple[PlanRequest, Plan]:
        return asked, build_plan(asked, **built)

    return Corruption(name, frozenset((rule, *more)), corrupt)
