"""Degrees that a search leaves out where a request leaves them open, and requests that name all of them.

The usual ones find good plans. That none exists is known only of all of them, and what bounds the usual ones says
nothing of a plan that has others.
"""

from __future__ import annotations

from models.plan import Configuration
from models.request import PlanRequest
from solver.configurations.enumerate import (
    BY_GPU_TYPE,
    EVEN,
    context_degrees,
    divisors_of,
    expert_degrees,
    micro_batches,
    pipeline_degrees,
    tensor_degrees,
)
from solver.network.places import usable_pools


def with_every_degree(request: PlanRequest) -> PlanRequest | None:
    """The request with every value of the degrees that it leaves open, the unusual ones too; None if it leaves none."""
    allowed, pools = request.constraints.allowed, usable_pools(request)
    domain = max((pool.gpu.scale_up_domain_gpus for pool in pools), default=1)
    architecture = request.workload.architecture
    every = {
        "tp": range(1, domain + 1),
        "cp": divisors_of(request.workload.sequence_length),
        "ep": divisors_of(1 if architecture.moe is None else architecture.moe.num_experts),
        "pp": range(1, architecture.num_layers + 1),
        "micro_batch_sequences": divisors_of(request.workload.global_batch_sequences)[:64],
    }
    opened = {name: tuple(values) for name, values in every.items() if getattr(allowed, name) is None}
    if not opened:
        return None
    return request.with_constraints(allowed=allowed.model_copy(update=opened))


def covering(request: PlanRequest, configuration: Configuration) -> PlanRequest:
    """The request whose configurations include those with the degrees of a plan of it: itself where they are usual
    ones, or not allowed; with every degree where one of them is not.
    """
    allowed, degrees = request.constraints.allowed, configuration.degrees
    if not usable_pools(request):
        return request
    layer_split = BY_GPU_TYPE if configuration.layer_split == "by_gpu_type" else EVEN
    usual = {
        "tp": (degrees.tp, tensor_degrees(request, usable_pools(request))),
        "cp": (degrees.cp, context_degrees(request)),
        "ep": (degrees.ep, expert_degrees(request)),
        "pp": (degrees.pp, pipeline_degrees(request, layer_split)),
        "micro_batch_sequences": (configuration.micro_batch_sequences, micro_batches(request)),
    }
    is_usual = all(value in values for name, (value, values) in usual.items() if getattr(allowed, name) is None)
    return request if is_usual else with_every_degree(request) or request
