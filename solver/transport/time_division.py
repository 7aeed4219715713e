"""Whether the replicas of a route send all at once or follow each other on the links that they share.

All at once, each of n messages takes n S / share. In turns one takes S / share, and the replicas run the same schedule
shifted by that much, the last (turns - 1) S / share later; the link carries the same bytes in the same time. Idea:
time-shared WAN transfers in Atlas (arXiv 2411.14458). Owns the delays of both ways and the words about them. Never
schedules: which of the two ends earlier is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from models.plan import Configuration
from models.transport import TransportChoice
from solver.context import Context
from solver.placement.fill import PooledRoute
from solver.transport.choose import message_choice
from solver.transport.hops import HopDelay, Sent, Sharing
from solver.transport.message_paths import MessagePaths
from solver.transport.prices import Traffic

LEAST_GAIN = 1e-3  # of the end of a route, below which turns are not worth a shift
MAX_REASON = 600


@dataclass(frozen=True)
class TimeDivision:
    """Delays of a route whose replicas follow each other by `turn_s`."""

    delays: tuple[HopDelay, ...]
    num_turns: int
    turn_s: float

    @property
    def stagger_s(self) -> float:
        """How much later the last replicas run everything."""
        return (self.num_turns - 1) * self.turn_s


def in_turns(
    context: Context,
    configuration: Configuration,
    route: PooledRoute,
    delays: tuple[HopDelay, ...],
    *,
    message_bytes: float,
    paths: MessagePaths,
) -> TimeDivision | None:
    """The route with as few replicas at a time as fill its share of the links; None where turns shorten no message.

    The slowest hop sets the shift. The others keep its pace where a message arrives earlier for it, and stay as they
    are where not.
    """
    shared = [hop for hop in delays if hop.link is not None]
    if route.num_replicas < 2 or not shared:
        return None
    slowest = max(shared, key=lambda hop: hop.transfer_s)
    at_once, sent = _senders(context, configuration, route, slowest, message_bytes=message_bytes, paths=paths)
    choice = sent.choice
    num_turns = -(-route.num_replicas // at_once)
    turn_s = _turn_s(configuration, route, slowest, choice, at_once=at_once, message_bytes=message_bytes)
    if num_turns < 2 or turn_s >= slowest.transfer_s:
        return None
    paced = tuple(
        replace(hop, transfer_s=turn_s, num_turns=num_turns, choice=choice, turn=sent)
        if hop.link is not None and turn_s < hop.transfer_s and _keeps_pace(route, hop, turn_s, at_once)
        else hop
        for hop in delays
    )
    return TimeDivision(paced, num_turns, turn_s)


def _keeps_pace(route: PooledRoute, hop: HopDelay, turn_s: float, at_once: int) -> bool:
    """Whether the route's share of the hop is enough for so many senders at that pace."""
    return turn_s * route.num_replicas >= hop.transfer_s * at_once * (1.0 - 1e-9)


def _senders(
    context: Context,
    configuration: Configuration,
    route: PooledRoute,
    hop: HopDelay,
    *,
    message_bytes: float,
    paths: MessagePaths,
) -> tuple[int, Sent]:
    """How many replicas send at once, the fewest that fill the route's share, and the transport of their messages."""
    source, target = (route.pools[configuration.rank_of_stage(hop.stage + step)] for step in (0, 1))
    ends = context.pools[source], context.pools[target]
    path = paths.facts(*(pool.place for pool in ends))
    share = route.num_replicas * message_bytes / hop.transfer_s
    others = hop.num_sharers - route.num_replicas
    group, at_once = configuration.degrees.gpus_per_stage_group, 1
    while True:
        choice = message_choice(
            context, configuration, ends, message_bytes=message_bytes, sharers=max(others, 0) + at_once, path=path
        )
        sender = group * choice.effective_bytes_per_s
        if at_once >= route.num_replicas or at_once * sender >= share:
            return at_once, Sent(source, target, choice, (max(others, 0) + at_once) * group)
        at_once = min(max(at_once + 1, int(share // sender)), route.num_replicas)


def _turn_s(
    configuration: Configuration,
    route: PooledRoute,
    hop: HopDelay,
    choice: TransportChoice,
    *,
    at_once: int,
    message_bytes: float,
) -> float:
    """One message while `at_once` replicas split the route's share: S / min(sender, share / at_once)."""
    sender = configuration.degrees.gpus_per_stage_group * choice.effective_bytes_per_s
    share = route.num_replicas * message_bytes / hop.transfer_s
    return message_bytes / min(sender, share / at_once)


def choices_between_places(traffic: Traffic) -> tuple[TransportChoice, ...]:
    """Choices of messages, with the verdict on turns, and of exchanges, each once."""
    exchanges = [choice for cost in traffic.costs for choice in cost.choices]
    return tuple(dict.fromkeys([*_message_choices(traffic), *exchanges]))


def _message_choices(traffic: Traffic) -> Iterator[TransportChoice]:
    for delays, sharing in zip(traffic.hops, traffic.sharing, strict=True):
        for hop in delays:
            if hop.choice is not None:
                verdict = _split(hop) + (_verdict(hop, sharing) if hop.num_sharers > 1 else "")
                reason = hop.choice.reason[: MAX_REASON - len(verdict)] + verdict
                yield hop.choice.model_copy(update={"reason": reason})


def _split(hop: HopDelay) -> str:
    """That its messages are split, and how much of one a link carries at most."""
    most = max((part for _, part in (*hop.there, *hop.back)), default=1.0)
    if all(part > 1.0 - 1e-9 for _, part in (*hop.there, *hop.back)):
        return ""
    return f" Split over several paths, no link carries more than {100 * most:.0f} % of a message."


def _verdict(hop: HopDelay, sharing: Sharing | None) -> str:
    """What the replicas of the route do on the hop, and what the other way would cost."""
    message = f"{hop.transfer_s * 1e3:.3g} ms a message"
    if hop.num_turns > 1:
        verdict = f" Replicas take {hop.num_turns} turns, {message}"
        if sharing is None:
            return f"{verdict}."
        return f"{verdict}: the route ends at {sharing.in_turns_s:.4g} s, all at once at {sharing.at_once_s:.4g} s."
    if sharing is None:
        return f" {hop.num_sharers} queues send at once, {message}; turns would shorten none."
    return (
        f" {hop.num_sharers} queues send at once, {message}: the route ends at {sharing.at_once_s:.4g} s,"
        f" in turns at {sharing.in_turns_s:.4g} s."
    )
