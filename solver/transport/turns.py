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
from solver.transport.hops import HopDelay, Sharing
from solver.transport.message_paths import MessagePaths
from solver.transport.prices import Traffic

LEAST_GAIN = 1e-3  # of the end of a route, below which turns are not worth a shift
SAME_TIME = 1e-9  # relative: two ways of adding up one time
MAX_REASON = 600


@dataclass(frozen=True)
class Turns:
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
) -> Turns | None:
    """The route with as few replicas at a time as fill its share of the links; None where turns shorten no message.

    The slowest hop sets the shift. The others keep its pace where a message arrives earlier for it, and stay as they
    are where not.
    """
    shared = [hop for hop in delays if hop.link is not None]
    if route.num_replicas < 2 or not shared:
        return None
    slowest = max(shared, key=lambda hop: hop.transfer_s)
    senders = _Senders(context, configuration, route, message_bytes, paths)
    at_once = senders.fewest(slowest)
    num_turns = -(-route.num_replicas // at_once)
    turn_s = senders.message_s(slowest, at_once)
    if num_turns < 2 or turn_s >= slowest.transfer_s:
        return None
    paced = tuple(
        replace(hop, transfer_s=turn_s, num_turns=num_turns, choices=senders.choices(hop, at_once))
        if hop.link is not None
        and turn_s < hop.transfer_s
        and senders.message_s(hop, at_once) <= turn_s * (1.0 + SAME_TIME)
        else hop
        for hop in delays
    )
    return Turns(paced, num_turns, turn_s)


@dataclass(frozen=True)
class _Senders:
    """The replicas of a route that send messages of `message_bytes` at the same time."""

    context: Context
    configuration: Configuration
    route: PooledRoute
    message_bytes: float
    paths: MessagePaths

    def choices(self, hop: HopDelay, at_once: int) -> tuple[TransportChoice, ...]:
        """Transport of a hop there and back while so many replicas of the route send."""
        pools = self.context.pools
        ranks = (self.configuration.rank_of_stage(stage) for stage in (hop.stage, hop.stage + 1))
        there = tuple(pools[self.route.pools[rank]] for rank in ranks)
        others = max(hop.num_sharers - self.route.num_replicas, 0)
        return tuple(
            message_choice(
                self.context,
                self.configuration,
                ends,
                message_bytes=self.message_bytes,
                sharers=others + at_once,
                path=self.paths.facts(ends[0].place, ends[1].place),
            )
            for ends in ((there[0], there[1]), (there[1], there[0]))
        )

    def sender_bytes_per_s(self, hop: HopDelay, at_once: int) -> float:
        """Rate of the cards of one replica's stage group with that transport."""
        slower = min(choice.effective_bytes_per_s for choice in self.choices(hop, at_once))
        return self.configuration.degrees.gpus_per_stage_group * slower

    def share_bytes_per_s(self, hop: HopDelay) -> float:
        """What the route keeps of the links of a hop."""
        return self.route.num_replicas * self.message_bytes / hop.transfer_s

    def fewest(self, hop: HopDelay) -> int:
        """Fewest replicas at once that fill the route's share of a hop, all of them where no number does."""
        share, at_once = self.share_bytes_per_s(hop), 1
        while at_once < self.route.num_replicas:
            sender = self.sender_bytes_per_s(hop, at_once)
            if at_once * sender >= share:
                return at_once
            at_once = min(max(at_once + 1, int(share // sender)), self.route.num_replicas)
        return at_once

    def message_s(self, hop: HopDelay, at_once: int) -> float:
        """One message while so many replicas split the route's share: S / min(sender, share / at_once)."""
        share = self.share_bytes_per_s(hop) / at_once
        return self.message_bytes / min(self.sender_bytes_per_s(hop, at_once), share)


def choices_between_places(traffic: Traffic) -> tuple[TransportChoice, ...]:
    """Choices of messages, with the verdict on turns, and of exchanges, each once."""
    exchanges = [choice for cost in traffic.costs for choice in cost.choices]
    return tuple(dict.fromkeys([*_message_choices(traffic), *exchanges]))


def _message_choices(traffic: Traffic) -> Iterator[TransportChoice]:
    for delays, sharing in zip(traffic.hops, traffic.sharing, strict=True):
        for hop in delays:
            verdict = _split(hop) + (_verdict(hop, sharing) if hop.num_sharers > 1 else "")
            for choice in hop.choices:
                yield choice.model_copy(update={"reason": choice.reason[: MAX_REASON - len(verdict)] + verdict})


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
