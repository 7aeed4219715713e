"""What follows from a request, as notes: sizes, work, GPUs, and defaults that decide a figure.

A reader compares these with what was meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from models.request import PlanRequest
from models.workload import Optimizer
from solver.cost.job import job_of
from solver.diagnostics.rule import Found, Rule, gbit, gpus_by_building
from solver.network.places import usable_pools

DEFAULT_OPTIMIZER = Optimizer()


def model_size(request: PlanRequest) -> Iterator[Found]:
    """Parameters of the model, and those that a token meets."""
    job = job_of(request.workload)
    active = f", {job.active_parameters / 1e9:,.4g} billion active per token" if job.num_experts > 1 else ""
    extra = job.num_mtp_layers
    more = f", with {extra} layer{'s' * (extra > 1)} of multi-token prediction" if extra else ""
    name = job.architecture.name
    yield "/workload/architecture", f"{name} has {job.total_parameters / 1e9:,.4g} billion parameters{active}{more}"


def step_work(request: PlanRequest) -> Iterator[Found]:
    """Tokens and FLOPs of one optimizer step."""
    job = job_of(request.workload)
    yield "/workload", f"one step is {job.tokens_per_iteration:,} tokens and {job.model_flops:.4g} FLOPs"


def fleet(request: PlanRequest) -> Iterator[Found]:
    """GPUs that a plan may use, by type and building."""
    by_type = Counter[str]()
    for pool in usable_pools(request):
        by_type[pool.gpu.name] += pool.num_free_gpus
    held = gpus_by_building(request)
    if not held:
        return
    types = ", ".join(f"{count:,} {name}" for name, count in by_type.items())
    least, largest = min(held.values()), max(held.values())
    size = f"{least:,} each" if least == largest else f"{least:,} to {largest:,}"
    where = "1 building" if len(held) == 1 else f"{len(held)} buildings of {size}"
    limit = request.constraints.max_gpus
    capped = f"; at most {limit:,} may be used" if limit is not None and limit < sum(held.values()) else ""
    yield "/cluster/pools", f"{sum(held.values()):,} GPUs to use ({types}) in {where}{capped}"


def link_rates(request: PlanRequest) -> Iterator[Found]:
    """Usable rates of the links, in the unit in which they are sold."""
    rates = [link.usable_bytes_per_s(reverse=False) for link in request.cluster.links]
    if rates:
        span = gbit(min(rates)) if min(rates) == max(rates) else f"{gbit(min(rates))} to {gbit(max(rates))}"
        yield "/cluster/links", f"{len(rates):,} link{'s' if len(rates) > 1 else ''} with {span} to use"


def one_fabric(request: PlanRequest) -> Iterator[Found]:
    """Buildings that share one fabric because the request says so."""
    if request.cluster.fabric == "one" and len(gpus_by_building(request)) > 1:
        yield "/cluster/fabric", "buildings without links reach each other at the full rate of their cards"


def defaults_that_matter(request: PlanRequest) -> Iterator[Found]:
    """Defaults that decide time or memory."""
    if request.options.stack_profile == "auto":
        yield "/options/stack_profile", "auto: the newest software, whatever the GPUs"
    if request.workload.optimizer == DEFAULT_OPTIMIZER:
        own = DEFAULT_OPTIMIZER
        yield (
            "/workload/optimizer",
            f"{own.name} with {own.state_bytes_per_parameter:g} B of state and "
            f"{own.gradient_bytes_per_parameter:g} B of gradient per parameter",
        )


RULES = (
    Rule("model-size", "note", (), model_size),
    Rule("step-work", "note", (), step_work),
    Rule("fleet", "note", (), fleet),
    Rule("link-rates", "note", (), link_rates),
    Rule("one-fabric", "note", (), one_fabric),
    Rule("defaults", "note", ("state the value if another one is meant",), defaults_that_matter),
)
