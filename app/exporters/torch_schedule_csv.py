"""The schedule of the route with most replicas, as the CSV that PyTorch's pipeline runtime loads ("compute_only").

One line per pipeline rank, one cell per operation: stage, action, micro-batch. PyTorch writes I for the input gradient,
W for the weight gradient and B for both in one. Source: torch.distributed.pipelining, `_load_csv`; a private interface.
"""

from __future__ import annotations

from models.plan import Plan
from models.request import PlanRequest
from models.schedule import Operation

ACTIONS = {"F": "F", "B": "I", "W": "W", "BW": "B"}


def torch_schedule_csv(plan: Plan, _request: PlanRequest | None = None) -> str:
    """The order of operations; times and transfers are the runtime's own business."""
    replicas = {route.id: route.num_replicas for route in plan.placement.routes}
    timeline = max(plan.timelines, key=lambda one: replicas[one.route])
    lines = (",".join(torch_action(text) for text in rank.operations) for rank in timeline.schedule.ranks)
    return "\n".join(lines) + "\n"


def torch_action(text: str) -> str:
    """An operation in PyTorch's words.

    >>> torch_action("2F0"), torch_action("0B3"), torch_action("1BW2")
    ('2F0', '0I3', '1B2')
    """
    operation = Operation.parse(text)
    return f"{operation.stage}{ACTIONS[operation.kind]}{operation.microbatch}"
