"""NCCL settings per communicator for Megatron-LM: the YAML of --nccl-communicator-config-path.

A group of Megatron takes its settings from the widest tier that the plan's choice for that dimension crosses. Channels
keep the window of that choice in flight: NCCL has about one buffer per channel under way. Source: get_nccl_options in
megatron/core/parallel_state.py, August 2026; NCCL 2.30 user guide, NCCL_BUFFSIZE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

import yaml

from app.exporters.losses import transport_losses
from app.exporters.nccl_env import process_buffer_bytes
from app.exporters.target import Target, header
from models.cluster import Tier
from models.plan import Plan
from models.request import PlanRequest
from models.transport import Dimension, TransportChoice

TARGET = Target(
    "Megatron-LM",
    "core 0.13 to 0.20",
    (
        "--nccl-communicator-config-path with this file",
        "NCCL_BUFFSIZE of the nccl-env export: the channels count on it",
    ),
)
GROUPS: Mapping[Dimension, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "ep": ("ep",),
    "pp": ("pp",),
    "dp": ("dp", "dp_cp", "intra_dp_cp", "ep_dp", "intra_dist_opt_instance"),
}
TIERS: tuple[Tier, ...] = ("scale_up", "rack", "zone", "building", "cross_building", "cross_region")
DEFAULT_MAX_CTAS = 32
MAX_CTAS = 64


def megatron_communicators(plan: Plan, request: PlanRequest | None = None) -> str:
    """A mapping from group to settings."""
    buffer_bytes = process_buffer_bytes(plan)
    groups = {
        group: _settings(choice, buffer_bytes) for choice in widest(plan) for group in _groups(plan, choice.dimension)
    }
    body = yaml.safe_dump(groups, sort_keys=True, default_flow_style=False)
    return header(TARGET, losses(plan, request)) + body


def widest(plan: Plan) -> Iterator[TransportChoice]:
    """The choice for the widest tier of every dimension, the largest message first."""
    for dimension in GROUPS:
        choices = [one for one in plan.transport if one.dimension == dimension]
        if choices:
            yield max(choices, key=lambda one: (TIERS.index(one.tier), one.message_bytes))


def _groups(plan: Plan, dimension: Dimension) -> list[str]:
    """The groups of a dimension; some exist only where there are several of something."""
    copies = plan.configuration.num_state_copies
    several = {"intra_dp_cp": copies, "intra_dist_opt_instance": copies, "ep_dp": plan.configuration.degrees.ep}
    return [group for group in GROUPS[dimension] if several.get(group, 2) > 1]


def _settings(choice: TransportChoice, buffer_bytes: int) -> dict[str, bool | int | str]:
    settings: dict[str, bool | int | str] = {"is_high_priority_stream": choice.dimension != "dp"}
    if choice.tier == "scale_up":
        return settings
    channels = min(wanted_channels(choice, buffer_bytes), MAX_CTAS)
    settings |= {"min_ctas": channels, "max_ctas": max(channels, DEFAULT_MAX_CTAS)}
    settings["net_name"] = "Socket" if choice.reliability == "tcp" else "IB"
    return settings


def wanted_channels(choice: TransportChoice, buffer_bytes: int) -> int:
    """Channels whose buffers hold what the choice keeps in flight: ceil(QPs * outstanding * chunk / buffer).

    >>> fields = {"dimension": "dp", "collective": "all_reduce", "tier": "cross_building", "num_ranks": 2, "reason": "",
    ...           "message_bytes": 1e9, "algorithm": "ring", "load_balancing": "ecmp", "reliability": "go_back_n",
    ...           "expected_s": 1.0, "effective_bytes_per_s": 1e9, "chunk_bytes": 1048576, "num_outstanding": 32}
    >>> wanted_channels(TransportChoice(num_queue_pairs=4, **fields), 16 * 1048576)
    8
    """
    window_bytes = choice.num_queue_pairs * choice.num_outstanding * choice.chunk_bytes
    return max(ceil(window_bytes / buffer_bytes), 1)


def losses(plan: Plan, _request: PlanRequest | None = None) -> Iterator[str]:
    """What these settings do not carry."""
    yield "chunk sizes and outstanding chunks: only the number of channels follows from them"
    buffer_bytes = process_buffer_bytes(plan)
    capped = [one.dimension for one in widest(plan) if wanted_channels(one, buffer_bytes) > MAX_CTAS]
    if capped:
        yield f"windows beyond {MAX_CTAS} channels of {buffer_bytes} bytes ({', '.join(capped)})"
    yield "tiers of one communicator: the widest decides for all of it"
    yield from transport_losses(plan)
