"""The NCCL environment that a plan implies, as shell exports: one file for mainline NCCL, one for its cross-DC branch.

The two must not be mixed: the third field of NCCL_IB_HCA is a rail in mainline from 2.30 on and a fabric id in the
branch, and NCCL_ALLNET_* exists in the branch alone. So the flavour is chosen by the name of the export. Source: NCCL
2.30 user guide, environment variables; branch cross-dc of NCCL (2.26.2).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from app.exporters.hosts import buildings_of_places
from app.exporters.losses import transport_losses
from app.exporters.target import Target, header, one_line
from models.plan import Plan
from models.request import PlanRequest
from models.transport import Algorithm, Collective, TransportChoice

MAINLINE = Target(
    "NCCL (mainline)",
    "2.24 to 2.30",
    ("NCCL_IB_HCA and NCCL_SOCKET_IFNAME of your hosts", "the same file on every rank, sourced before the start"),
)
CROSS_DC = Target(
    "NCCL (branch cross-dc)",
    "2.26.2 of the branch, never mainline",
    (
        "NCCL_IB_HCA as <hca>:<port>:<fabric id>; fabric id = building number * rails per host + rail",
        "a network plug-in with the v11 interface, which tells which building a peer is in",
    ),
)
FUNCTIONS: Mapping[Collective, str] = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
}
ALGORITHMS: Mapping[Algorithm, str] = {"ring": "ring", "tree": "tree", "pat": "pat"}
MAX_QUEUE_PAIRS = 128
LEAST_BUFFER_BYTES, MOST_BUFFER_BYTES = 4 * 1024 * 1024, 64 * 1024 * 1024
LEAST_P2P_BYTES = 128 * 1024


def nccl_env(plan: Plan, request: PlanRequest | None = None) -> str:
    """Mainline NCCL."""
    return header(MAINLINE, losses(plan, request)) + _exports(_common(plan))


def nccl_cross_dc_env(plan: Plan, request: PlanRequest | None = None) -> str:
    """The cross-DC branch: the same, with its hierarchy over buildings and the number of every building."""
    variables = {**_common(plan), "NCCL_ALLNET_ENABLE": "1", "NCCL_SCATTER_XDC": "1"}
    numbers = "".join(
        f"# building {number}: {one_line(name)}\n" for number, name in enumerate(buildings(plan, request))
    )
    return header(CROSS_DC, cross_dc_losses(plan, request)) + numbers + _exports(variables)


def _exports(variables: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def buildings(plan: Plan, request: PlanRequest | None) -> list[str]:
    """Every building of the plan, in the order of first use."""
    building_of = buildings_of_places(request)
    return list(
        dict.fromkeys(building_of.get(place, place) for route in plan.placement.routes for place in route.places)
    )


def _common(plan: Plan) -> dict[str, str]:
    network = [choice for choice in plan.transport if choice.tier != "scale_up"]
    variables: dict[str, str] = {}
    algorithms = algorithm_list(plan)
    if algorithms:
        variables["NCCL_ALGO"] = algorithms
    if any(choice.reliability == "tcp" for choice in network):
        variables["NCCL_NET"] = "Socket"
    elif network:
        pairs = max(choice.num_queue_pairs for choice in network)
        variables["NCCL_IB_QPS_PER_CONNECTION"] = str(min(pairs, MAX_QUEUE_PAIRS))
        variables["NCCL_IB_SPLIT_DATA_ON_QPS"] = "0"
        if any(choice.load_balancing == "spray" for choice in network):
            variables["NCCL_IB_ADAPTIVE_ROUTING"] = "1"
    if network:
        variables["NCCL_BUFFSIZE"] = str(process_buffer_bytes(plan))
    messages = [choice for choice in network if choice.collective == "send_recv"]
    if messages:
        largest = max(choice.chunk_bytes for choice in messages)
        variables["NCCL_P2P_NET_CHUNKSIZE"] = str(max(_power_of_two(largest), LEAST_P2P_BYTES))
    return variables


def algorithm_list(plan: Plan) -> str:
    """NCCL_ALGO by function, where NCCL has all the algorithms that the plan chose for it; ring stays as a way out.

    A function whose communicators need an algorithm that NCCL lacks is left to NCCL.
    """
    parts = []
    for collective, function in FUNCTIONS.items():
        chosen = [choice.algorithm for choice in plan.transport if choice.collective == collective]
        if chosen and all(_has(function, algorithm) for algorithm in chosen):
            names = dict.fromkeys([*(ALGORITHMS[one] for one in sorted(chosen)), "ring"])
            parts.append(f"{function}:{','.join(names)}")
    return ";".join(parts)


def _has(function: str, algorithm: Algorithm) -> bool:
    """All-reduce has no PAT; reduce-scatter and all-gather have no tree."""
    lacks = {"allreduce": "pat"}.get(function, "tree")
    return algorithm in ALGORITHMS and algorithm != lacks


def process_buffer_bytes(plan: Plan) -> int:
    """NCCL_BUFFSIZE: what the communicator with the most outstanding bytes per queue pair needs."""
    return max((buffer_bytes(one) for one in plan.transport if one.tier != "scale_up"), default=LEAST_BUFFER_BYTES)


def buffer_bytes(choice: TransportChoice) -> int:
    """Buffer of one channel that holds the outstanding chunks of one queue pair, a power of two from 4 to 64 MiB."""
    window_bytes = choice.num_outstanding * choice.chunk_bytes
    return min(max(_power_of_two(window_bytes), LEAST_BUFFER_BYTES), MOST_BUFFER_BYTES)


def _power_of_two(size_bytes: float) -> int:
    return 1 << max(int(size_bytes) - 1, 0).bit_length()


def losses(plan: Plan, _request: PlanRequest | None = None) -> Iterator[str]:
    """What mainline NCCL cannot be told."""
    if len({choice.num_queue_pairs for choice in plan.transport if choice.tier != "scale_up"}) > 1:
        yield "queue pairs per communicator: one environment serves the whole process, the largest number is set"
    if len({choice.reliability == "tcp" for choice in plan.transport if choice.tier != "scale_up"}) > 1:
        yield "sockets on some ways only: one environment serves the whole process, all communicators take sockets"
    if any("hierarchical" in choice.algorithm for choice in plan.transport):
        yield "hierarchical collectives: trainers build them from groups (HSDP, optimizer instances), or NCCL chooses"
    if "direct" in {choice.algorithm for choice in plan.transport if choice.collective == "all_to_all"}:
        yield "all-to-all algorithms: NCCL sends and receives pair by pair"
    if plan.placement.crossing != "none":
        yield "buildings: mainline NCCL does not know them, see the nccl-cross-dc-env export for its branch"
    yield from transport_losses(plan, ("algorithm", "queue_pairs"))


def cross_dc_losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What the branch cannot be told."""
    yield "NCCL_IB_HCA: the names of the cards and their rails are not in the plan"
    yield from (line for line in losses(plan, request) if not line.startswith(("buildings:", "hierarchical")))
