"""What replicas that share a link would gain by taking turns, said in the reason of the choice for their messages.

Owns the words and the numbers in them. Never changes a timing: plans are timed with equal shares for all.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.transport import TransportChoice
from solver.context import Context
from solver.transport.hops import HopDelay, room_bytes_per_s
from solver.transport.prices import Traffic
from solver.transport.sharing import share_link

NUM_EXPOSED = (
    2  # messages per hop that nothing hides: the first activations while the pipeline fills, the last gradients
)
MAX_REASON = 600


def choices_between_places(context: Context, traffic: Traffic) -> tuple[TransportChoice, ...]:
    """Choices of messages, with the verdict on turns, and of exchanges, each once."""
    exchanges = [choice for cost in traffic.costs for choice in cost.choices]
    return tuple(dict.fromkeys([*_message_choices(context, traffic), *exchanges]))


def _message_choices(context: Context, traffic: Traffic) -> Iterator[TransportChoice]:
    seen: set[tuple[object, ...]] = set()
    for own, delays in zip(traffic.routes, traffic.hops, strict=True):
        for hop in delays:
            known = (hop.link, hop.there, hop.back, hop.transfer_s)
            if hop.choice is not None and known not in seen:
                seen.add(known)
                ranks = (traffic.configuration.rank_of_stage(stage) for stage in (hop.stage, hop.stage + 1))
                yield _with_verdict(context, traffic, hop, tuple(own.pools[rank] for rank in ranks))


def _with_verdict(context: Context, traffic: Traffic, hop: HopDelay, ends: tuple[int, ...]) -> TransportChoice:
    """The choice of a hop; where several replicas share its links, its reason ends with what turns would cost."""
    assert hop.choice is not None
    if hop.num_sharers < 2:
        return hop.choice
    card = min(context.pools[pool].nic_bytes_per_s_per_gpu for pool in ends)
    sender = card * context.stack.point_to_point_efficiency.value * traffic.configuration.degrees.gpus_per_stage_group
    room = min(room_bytes_per_s(context, edge, traffic.exchanging) for edge in (*hop.there, *hop.back))
    share = share_link(
        traffic.message_bytes,
        hop.num_sharers,
        link_rate=room,
        sender_rate=min(sender, room),
        num_exposed=NUM_EXPOSED,
    )
    verdict = " Timed with equal shares; "
    verdict += "turns would be faster: " if share.take_turns else "turns would not be faster: "
    text = (hop.choice.reason + verdict + share.reason.partition("; ")[2])[:MAX_REASON]
    return hop.choice.model_copy(update={"reason": text})
