"""Whether replicas that share a link send all at once or take turns at full rate.

Owns that one decision and its reason. Never schedules a message: the schedule takes the delay and the offset it gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class LinkShare:
    """How the replicas use a shared link, what it costs per iteration, and why.

    `message_s` is the time of one message, `offset_s` by how much the last replica starts later than the first.
    """

    take_turns: bool
    message_s: float
    offset_s: float
    exposed_s: float
    reason: str


def all_at_once_s(message_bytes: float, num_replicas: int, link_rate: float, sender_rate: float) -> float:
    """Every message at its fair share: S / min(sender, link / n).

    >>> all_at_once_s(1e9, 4, 1e9, 1e9)
    4.0
    """
    return message_bytes / min(sender_rate, link_rate / num_replicas)


def turn_s(message_bytes: float, link_rate: float, sender_rate: float) -> float:
    """One message while few enough send that none is slowed: S / min(sender, link).

    >>> turn_s(1e9, 1e9, 5e8)
    2.0
    """
    return message_bytes / min(sender_rate, link_rate)


def num_turns(num_replicas: int, link_rate: float, sender_rate: float) -> int:
    """Groups that follow each other when as many send together as the link serves at full rate.

    >>> num_turns(8, 1e9, 5e8)
    4
    """
    at_once = max(1, int(link_rate // sender_rate))
    return ceil(num_replicas / at_once)


def share_link(
    message_bytes: float,
    num_replicas: int,
    *,
    link_rate: float,
    sender_rate: float,
    num_exposed: float,
) -> LinkShare:
    """The better of the two for a message that delays the pipeline `num_exposed` times per iteration.

    All at once, every exposed message takes n S / link. In turns it takes S / link, but the replicas run shifted
    against each other, and the last starts (turns - 1) S / link later, once. The link carries the same bytes.
    Idea: time-shared WAN transfers in Atlas (arXiv 2411.14458).
    """
    together_s = all_at_once_s(message_bytes, num_replicas, link_rate, sender_rate)
    single_s = turn_s(message_bytes, link_rate, sender_rate)
    turns = num_turns(num_replicas, link_rate, sender_rate)
    offset_s = (turns - 1) * single_s
    cost_together, cost_turns = num_exposed * together_s, num_exposed * single_s + offset_s
    numbers = (
        f"{num_replicas} replicas: {cost_turns * 1e3:.3g} ms in {turns} turns of {single_s * 1e3:.3g} ms, "
        f"{cost_together * 1e3:.3g} ms all at once ({together_s * 1e3:.3g} ms a message, {num_exposed:g} exposed)."
    )
    if cost_turns < cost_together:
        return LinkShare(True, single_s, offset_s, cost_turns, f"Take turns; {numbers}")
    return LinkShare(False, together_s, 0.0, cost_together, f"All at once; {numbers}")
