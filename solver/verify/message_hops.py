"""Hops as a plan takes them, as the judge derives them: all replicas at once, or in the time slots that it states.

A route whose replicas have time slots states a transport for every way that keeps the pace. No time is read.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from models.schedule import PipelineHop
from solver.verify.message_ways import SAME_PACE, MessageTime, MessageWays
from solver.verify.network_facts import Boundary


@dataclass(frozen=True)
class TimeSlot:
    """One time slot of a route: how long, of how many, and how many replicas send in each."""

    time_slot_s: float
    num_time_slots: int
    at_once: int

    @property
    def stagger_s(self) -> float:
        """How much later the last replicas run."""
        return (self.num_time_slots - 1) * self.time_slot_s


@dataclass(frozen=True)
class MessageHops:
    """Hops of the routes of a plan. LookupError where it states no transport for a way, ValueError for no slot."""

    ways: MessageWays

    def slot(self, route: str) -> TimeSlot | None:
        """The time slots of a route: those of its slowest hop; None where the plan states none."""
        stated = [one for one in self.ways.case.plan.message_transports if one.route == route]
        if not stated:
            return None
        slowest = max(
            (one for one in self.ways.crossing if one.route == route), key=lambda one: self.ways.at_once(one).transfer_s
        )
        stated_there = self.ways.transports[slowest.sender.id, slowest.receiver.id, route].connection
        senders, rest = divmod(stated_there.num_connections, self.ways.case.gpus_per_group)
        at_once, replicas = senders - self._others(slowest), self._num_replicas(route)
        if rest or not 1 <= at_once <= replicas:
            raise ValueError(f"{senders} senders and {rest} connections are no time slot of {route}")
        return TimeSlot(self._slot_s(slowest, at_once), math.ceil(replicas / at_once), at_once)

    def _num_replicas(self, route: str) -> int:
        return self.ways.case.route_by_id[route].num_replicas

    def _others(self, boundary: Boundary) -> int:
        """Messages of other routes that share a hop."""
        return max(self.ways.at_once(boundary).num_sharers - self._num_replicas(boundary.route), 0)

    def in_slot(self, boundary: Boundary, at_once: int) -> MessageTime:
        """The slower direction of a hop by the transports stated for time slots of so many replicas of its route."""
        size = self.ways.case.network.boundary_bytes(boundary)
        others = max(self.ways.at_once(boundary).num_senders - self._num_replicas(boundary.route), 0)
        both = (self.ways.sent(*way, size, boundary.route, senders=others + at_once) for way in boundary.ways)
        return min(both, key=lambda one: one.rate_bytes_per_s)

    def _slot_s(self, boundary: Boundary, at_once: int) -> float:
        """One message of a hop while so many replicas split the route's share: S / min(sender, share / at_once)."""
        size = self.ways.case.network.boundary_bytes(boundary)
        share = self._num_replicas(boundary.route) * size / self.ways.at_once(boundary).transfer_s
        return size / min(
            self.ways.case.gpus_per_group * self.in_slot(boundary, at_once).rate_bytes_per_s, share / at_once
        )

    def faults(self, boundary: Boundary, slot: TimeSlot) -> Iterator[str]:
        """Where the transports stated for time slots on a hop are not those of as many senders, or too slow."""
        busy = (self._others(boundary) + slot.at_once) * self.ways.case.gpus_per_group
        for source, target in boundary.ways:
            way, own = f"{source.id} to {target.id}", self.ways.transports.get((source.id, target.id, boundary.route))
            if own is None:
                yield f"{way} has no transport for the time slots of {boundary.route}, the way back has"
            elif own.connection.num_connections != busy:
                yield f"{own.connection.num_connections} connections in slots from {way}, it has {busy}"
        if self._is_stated(boundary) and not self.keeps_pace(boundary, slot):
            way = f"{boundary.sender.id} to {boundary.receiver.id}"
            yield f"{way} cannot keep the pace of the time slots of {boundary.route}, or need not"

    def _is_stated(self, boundary: Boundary) -> bool:
        """Whether both ways of a hop have a transport for the time slots of its route."""
        return all((source.id, target.id, boundary.route) in self.ways.transports for source, target in boundary.ways)

    def of(self, route: str, slot: TimeSlot | None) -> tuple[PipelineHop, ...]:
        """Hops of a route, all at once or in these time slots."""
        return tuple(self._hop(one, slot) for one in self.ways.case.network.boundaries if one.route == route)

    @cached_property
    def all_at_once(self) -> tuple[tuple[Boundary, PipelineHop], ...]:
        """Every boundary with its hop when all replicas send at once."""
        return tuple((one, self._hop(one, None)) for one in self.ways.case.network.boundaries)

    def keeps_pace(self, boundary: Boundary, slot: TimeSlot | None) -> bool:
        """Whether a hop keeps the pace of the time slots: where the plan states how, and a message arrives earlier."""
        if slot is None or self.ways.is_local(boundary) or not self._is_stated(boundary):
            return False
        soon_enough = self._slot_s(boundary, slot.at_once) <= slot.time_slot_s * (1.0 + SAME_PACE)
        return soon_enough and slot.time_slot_s < self.ways.at_once(boundary).transfer_s

    def _hop(self, boundary: Boundary, slot: TimeSlot | None) -> PipelineHop:
        whole = self.ways.at_once(boundary)
        ends = (boundary.from_stage, boundary.from_stage + 1)
        if self.ways.is_local(boundary):
            return PipelineHop(from_stage=ends[0], to_stage=ends[1], latency_s=whole.latency_s)
        in_slot = slot is not None and self.keeps_pace(boundary, slot)
        return PipelineHop(
            from_stage=ends[0],
            to_stage=ends[1],
            latency_s=whole.latency_s,
            transfer_s=slot.time_slot_s if slot is not None and in_slot else whole.transfer_s,
            link="~".join(sorted((boundary.sender.id, boundary.receiver.id))),
            num_sharing_replicas=slot.num_time_slots if slot is not None and in_slot else 1,
            staggered=in_slot,
        )

    def choices(self) -> Iterator[tuple[Boundary, MessageTime]]:
        """How messages travel on every hop as taken: the slower direction, or that of the time slots."""
        for boundary in self.ways.crossing:
            timeline = self.ways.case.timeline_by_route.get(boundary.route)
            slot = self.slot(boundary.route) if timeline is not None and timeline.stagger_s > 0 else None
            if slot is not None and self.keeps_pace(boundary, slot):
                yield boundary, self.in_slot(boundary, slot.at_once)
                continue
            slower = self.ways.at_once(boundary).slower
            if slower is not None:
                yield boundary, slower
