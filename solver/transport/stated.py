"""The transport between places as a plan states it: every way of messages, every ring of exchanges."""

from models.plan import Route
from models.transport import Connection, ExchangeRing, ExchangeStep, MessageTransport, TransportChoice
from solver.context import Context
from solver.network.connection import option_of
from solver.network.topology import Topology
from solver.transport.exchange import ExchangeCost, InterSiteRing
from solver.transport.hops import HopDelay
from solver.transport.ring import stated_split


def message_transports(
    context: Context, routes: tuple[Route, ...], hops: list[tuple[HopDelay, ...]]
) -> tuple[MessageTransport, ...]:
    """Once per way between two pools, and once more per way of a route whose replicas have time slots."""
    found: dict[tuple[str, str, str], MessageTransport] = {}
    for route, delays in zip(routes, hops, strict=True):
        for hop in delays:
            for name, sent in (*((None, one) for one in hop.sent), *((route.id, one) for one in hop.sent_in_time_slot)):
                ends = context.pools[sent.source].id, context.pools[sent.target].id
                found.setdefault(
                    (*ends, name or ""),
                    MessageTransport(
                        from_pool=ends[0],
                        to_pool=ends[1],
                        route=name,
                        connection=_connection(sent.choice, sent.num_connections),
                    ),
                )
    return tuple(found[key] for key in sorted(found))


def exchange_rings(topology: Topology, costs: tuple[ExchangeCost, ...]) -> tuple[ExchangeRing, ...]:
    """One per ring with its transports, and the stages that take it. A ring is told from its first place by name."""
    stages: dict[tuple[object, ...], list[int]] = {}
    rings_between: dict[tuple[object, ...], InterSiteRing] = {}
    for stage, cost in enumerate(costs):
        if cost.site_ring is not None:
            key = (cost.site_ring.ring, cost.site_ring.steps)
            stages.setdefault(key, []).append(stage)
            rings_between[key] = cost.site_ring
    return tuple(_ring(topology, rings_between[key], own) for key, own in stages.items())


def _ring(topology: Topology, site_ring: InterSiteRing, stages: list[int]) -> ExchangeRing:
    steps = [stated_split(topology, *pair) for pair in zip(site_ring.ring.steps, site_ring.ring.parts, strict=True)]
    first = min(range(len(steps)), key=lambda one: steps[one].from_place)
    return ExchangeRing(
        stages=tuple(stages),
        steps=(*steps[first:], *steps[:first]),
        transports=tuple(
            ExchangeStep(
                from_place=one.step[0], to_place=one.step[1], connection=_connection(one.choice, one.num_connections)
            )
            for one in site_ring.steps
        ),
        num_at_once=site_ring.ring.num_at_once,
    )


def _connection(choice: TransportChoice, num_connections: int) -> Connection:
    return Connection(num_connections=num_connections, **vars(option_of(choice)))
