"""What a plan and its request say that a tool has no words for, as lines of a loss report."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from models.plan import Plan
from models.transport import TransportChoice
from models.workload import Workload

FABRIC = ("spray", "dqplb")
RECOVERY = {"selective_repeat": "selective repeat", "selective_repeat_nack": "selective repeat with NACKs",
            "erasure_code": "erasure coding"}  # fmt: skip


def trainer_losses(plan: Plan) -> Iterator[str]:
    """What no trainer is told: routes of their own for some replicas, and decisions about transport."""
    if len({route.places for route in plan.placement.routes}) > 1:
        yield "routes that differ between replicas: the order of hosts realises them, one schedule serves all"
    yield from transport_losses(plan)


def transport_losses(plan: Plan, carried: Collection[str] = ()) -> Iterator[str]:
    """One line per kind of transport decision; `carried` names what the tool does express: algorithm, queue_pairs."""
    groups: dict[str, list[str]] = {}
    for choice in plan.transport:
        for what in _lost(choice, carried):
            groups.setdefault(what, []).append(f"{choice.dimension} over {choice.tier}")
    for what, where in groups.items():
        yield f"{what} ({', '.join(dict.fromkeys(where))})"


def _lost(choice: TransportChoice, carried: Collection[str]) -> Iterator[str]:
    if choice.load_balancing in FABRIC:
        yield f"{choice.load_balancing}: a setting of the switches or the network card"
    if choice.reliability in RECOVERY:
        yield f"{RECOVERY[choice.reliability]}: a setting of the network card"
    if "algorithm" not in carried and choice.algorithm not in ("ring", "direct"):
        yield f"the {choice.algorithm} algorithm: NCCL's choice, see the nccl-env export"
    if "queue_pairs" not in carried and choice.num_queue_pairs > 1:
        yield f"{choice.num_queue_pairs} queue pairs: see the nccl-env export"


def workload_losses(workload: Workload, tool: str) -> Iterator[str]:
    """One line for each kind of attention; what the request takes for granted has none."""
    if not workload.causal_attention:
        yield f"attention to later tokens: {tool}'s model masks them"
    if not workload.flash_attention:
        yield f"attention that stores its scores: {tool} takes a fused kernel where it has one"
