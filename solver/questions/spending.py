"""What a plan costs in money and in energy, per million tokens, and the prices that stand where none are stated."""

from models.plan import Plan
from models.question_parts import Change
from models.request import PlanRequest
from solver.context import SECONDS_PER_HOUR
from solver.questions.wishes import at_prices

MILLION, KILO = 1e6, 1e3  # units


def one_price(request: PlanRequest) -> tuple[Change, ...]:
    """The changes that make every GPU-hour cost 1 and egress nothing, where not all prices are stated; else none."""
    return () if states_prices(request) else at_prices(request.cluster, lambda _: 1.0)


def states_prices(request: PlanRequest) -> bool:
    """Whether all GPUs state what they cost, and some cost anything."""
    prices = [pool.gpu.usd_per_gpu_hour for pool in request.cluster.pools]
    return None not in prices and any(prices)


def usd_per_million_tokens(request: PlanRequest, plan: Plan) -> float | None:
    """GPU-hours at their prices and egress over priced links, per million tokens; None without all prices."""
    prices = {pool.id: pool.gpu.usd_per_gpu_hour for pool in request.cluster.pools}
    hourly = _hourly(plan, prices)
    if hourly is None or not states_prices(request):  # plans without an unpriced GPU stand beside others
        return None
    egress = {link.id: link.usd_per_gb or 0.0 for link in request.cluster.links}
    sent = sum(egress.get(load.link, 0.0) * flow.bytes_per_iteration / 1e9
               for load in plan.link_loads for flow in load.flows)  # fmt: skip
    hours, tokens = plan.metrics.iteration_s / SECONDS_PER_HOUR, request.workload.tokens_per_iteration
    return (hourly * hours + sent) / tokens * MILLION


def kwh_per_million_tokens(request: PlanRequest, plan: Plan, watts: dict[str, float]) -> float | None:
    """Energy of the GPUs, each at its power for the whole iteration, per million tokens; None where one is unknown."""
    kilowatts = {pool.id: None if pool.gpu.name not in watts else watts[pool.gpu.name] / KILO
                 for pool in request.cluster.pools}  # fmt: skip
    hourly = _hourly(plan, kilowatts)
    if hourly is None:
        return None
    return hourly * plan.metrics.iteration_s / SECONDS_PER_HOUR / request.workload.tokens_per_iteration * MILLION


def _hourly(plan: Plan, rate_of_pool: dict[str, float | None]) -> float | None:
    rates = [(count, rate_of_pool[pool]) for pool, count in plan.gpus_of_pool.items()]
    known = [count * rate for count, rate in rates if rate is not None]
    return sum(known) if len(known) == len(rates) else None
