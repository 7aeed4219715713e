"""Time division: whether the replicas of a route send all at once or follow each other on the links that they share.

All at once, each of n messages takes n S / share. In time slots one takes S / share, and the replicas run the same
schedule shifted by that much, the last (slots - 1) S / share later; the link carries the same bytes in the same time.
Idea: time-shared WAN transfers in Atlas (arXiv 2411.14458). Which of the two ends earlier is an argument.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from models.transport import TransportChoice
from solver.placement.fill import PooledRoute
from solver.transport.hops import HopDelay, Sent, Sharing, StageMessages
from solver.transport.prices import Traffic

LEAST_GAIN = 1e-3  # of the end of a route, below which time slots are not worth a shift
MAX_REASON = 600  # characters that the plan document allows
SAME_PACE = 1e-9  # relative: rounding of two ways to the same time
FILLED = 0.95  # of a share: on paths with loss or many planes any number of senders leaves a hundredth unused


def time_divided(
    messages: StageMessages, route: PooledRoute, delays: tuple[HopDelay, ...]
) -> tuple[tuple[HopDelay, ...], float] | None:
    """Delays with as few replicas at a time as fill the route's share of the links, and by how many seconds the last of
    them run everything later; None where that shortens no message.

    The slowest hop sets the shift. Each other hop keeps its pace, by a transport of its own, where a message arrives
    earlier for it, and remains as it is where not.
    """
    shared = [hop for hop in delays if hop.link is not None]
    if route.num_replicas < 2 or not shared:
        return None
    slowest = max(shared, key=lambda hop: hop.transfer_s)
    senders = _Senders(messages, route)
    at_once = senders.fewest(slowest)
    num_time_slots = -(-route.num_replicas // at_once)
    time_slot_s = senders.seconds(slowest, at_once)
    if num_time_slots < 2 or time_slot_s >= slowest.transfer_s:
        return None
    paced = tuple(senders.paced(hop, at_once, num_time_slots=num_time_slots, time_slot_s=time_slot_s) for hop in delays)
    return paced, (num_time_slots - 1) * time_slot_s


@dataclass(frozen=True)
class _Senders:
    """A few replicas of a route that send at once, each hop by a transport of its own, there and back."""

    messages: StageMessages
    route: PooledRoute
    _known: dict[tuple[int, int, int], tuple[Sent, Sent]] = field(default_factory=dict)

    def sent(self, hop: HopDelay, at_once: int) -> tuple[Sent, Sent]:
        """How messages travel on the hop, with the gradients the other way, while `at_once` replicas send."""
        rank_of_stage = self.messages.configuration.rank_of_stage
        source, target = (self.route.pools[rank_of_stage(hop.stage + step)] for step in (0, 1))
        key = source, target, at_once
        if key not in self._known:
            numbers = [
                max(number - self.route.num_replicas, 0) + at_once for number in (hop.num_sharers, hop.num_senders)
            ]
            there, back = (self.messages.sent(*ends, *numbers) for ends in ((source, target), (target, source)))
            self._known[key] = there, back
        return self._known[key]

    def rate_bytes_per_s(self, hop: HopDelay, at_once: int) -> float:
        """Rate of the messages of one replica, whatever its share of the link."""
        group = self.messages.configuration.degrees.gpus_per_stage_group
        return group * min(one.choice.effective_bytes_per_s for one in self.sent(hop, at_once))

    def share_bytes_per_s(self, hop: HopDelay) -> float:
        """What all replicas of the route together get of the hop's links."""
        return self.route.num_replicas * self.messages.num_bytes / hop.transfer_s

    def seconds(self, hop: HopDelay, at_once: int) -> float:
        """One message while `at_once` replicas split the route's share: S / min(sender, share / at_once)."""
        rate = min(self.rate_bytes_per_s(hop, at_once), self.share_bytes_per_s(hop) / at_once)
        return self.messages.num_bytes / rate

    def fewest(self, hop: HopDelay) -> int:
        """How many replicas fill the route's share of a hop."""
        share, at_once = self.share_bytes_per_s(hop), 1
        while at_once < self.route.num_replicas:
            sender = self.rate_bytes_per_s(hop, at_once)
            if at_once * sender >= FILLED * share:
                break
            at_once = min(max(at_once + 1, int(share // sender)), self.route.num_replicas)
        return at_once

    def paced(self, hop: HopDelay, at_once: int, *, num_time_slots: int, time_slot_s: float) -> HopDelay:
        """The hop at the pace of the time slots where a message arrives earlier for it, or as it is."""
        if (
            hop.link is None
            or time_slot_s >= hop.transfer_s
            or self.seconds(hop, at_once) > time_slot_s * (1.0 + SAME_PACE)
        ):
            return hop
        sent = self.sent(hop, at_once)
        return replace(hop, transfer_s=time_slot_s, num_time_slots=num_time_slots, sent_in_time_slot=sent)


def choices_between_places(traffic: Traffic) -> tuple[TransportChoice, ...]:
    """Choices of messages, with the verdict on time slots, and of exchanges, each once."""
    exchanges = [one.choice for cost in traffic.costs if cost.site_ring for one in cost.site_ring.steps]
    return tuple(dict.fromkeys([*_message_choices(traffic), *exchanges]))


def _message_choices(traffic: Traffic) -> Iterator[TransportChoice]:
    for delays, sharing in zip(traffic.hops, traffic.sharing, strict=True):
        for hop in delays:
            if hop.sent:
                both = (one.choice for one in hop.sent_in_time_slot or hop.sent)
                slower = min(both, key=lambda one: one.effective_bytes_per_s)
                verdict = _split(hop) + (_verdict(hop, sharing) if hop.num_sharers > 1 else "")
                reason = slower.reason[: MAX_REASON - len(verdict)] + verdict
                yield slower.model_copy(update={"reason": reason})


def _split(hop: HopDelay) -> str:
    """That its messages are split, and how much of one a link carries at most."""
    most = max((part for _, part in (*hop.there, *hop.back)), default=1.0)
    if all(part > 1.0 - 1e-9 for _, part in (*hop.there, *hop.back)):
        return ""
    return f" Split over several paths, no link carries more than {100 * most:.0f} % of a message."


def _verdict(hop: HopDelay, sharing: Sharing | None) -> str:
    """What the replicas of the route do on the hop, and what the other way would cost."""
    message = f"{hop.transfer_s * 1e3:.3g} ms a message"
    if hop.num_time_slots > 1:
        verdict = f" Replicas have {hop.num_time_slots} time slots, {message}"
        if sharing is None:
            return f"{verdict}."
        return (
            f"{verdict}: the route ends at {sharing.in_time_slots_s:.4g} s, all at once at {sharing.at_once_s:.4g} s."
        )
    if sharing is None:
        return f" {hop.num_senders} queues send at once, {message}; time slots would shorten none."
    return (
        f" {hop.num_senders} queues send at once, {message}: the route ends at {sharing.at_once_s:.4g} s,"
        f" in time slots at {sharing.in_time_slots_s:.4g} s."
    )
