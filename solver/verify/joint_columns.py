"""All routes of a plan as flat columns: operations with what each one releases, messages as flows over edges.

The numbering over routes: operations, ranks and channels of one route follow those of the one before. Gradient
exchanges inside a pipeline problem are left out: `Plan.exchanges` has them.
"""

from typing import NamedTuple

import numpy as np

from models.plan import RouteTimeline
from models.schedule import PipelineHop, PipelineSchedule
from solver.pipeline.problem import NO_CHANNEL, Floats, Ints, PipelineOrder, PipelineShape, ragged, shape_of
from solver.pipeline.simulate import channel_messages, replay_shape

NOTHING = -1


class Work(NamedTuple):
    """Operations of routes, one entry each; NOTHING (-1) where an entry does not apply.

    Orders are flat, that of rank or channel i between its offsets i and i + 1.
    """

    duration: Floats  # seconds
    released: Ints  # operation that its end makes ready on its own rank
    target: Ints  # operation that its message makes ready on another rank
    delay: Floats  # seconds from the end of the transfer to the arrival
    channel: Ints  # link name and direction that the message takes; NO_CHANNEL: it takes no link any time
    flow: Ints  # by route, 2 * stage of the hop, and 1 more on the way back
    weight_stage: Ints  # by route, stage whose weight gradient it completes
    waits: Ints  # 1: it waits until what its rank has sent before has landed (F and B, where sends block)
    rank: Ints
    ready: Ints  # 1: ready from the start, as the forwards of the first stage are
    rank_flat: Ints
    rank_offsets: Ints
    channel_flat: Ints
    channel_offsets: Ints


def work_of(timeline: RouteTimeline) -> Work:
    """The work of one route, whose schedule is complete."""
    shape = shape_of(timeline.problem)
    m, kinds, stages = shape.num_microbatches, shape.num_kinds, shape.num_stages
    target, delay, channel, flow = (np.full((kinds, stages), fill) for fill in (NOTHING, 0.0, NO_CHANNEL, NOTHING))
    target[0, :-1], target[1, 1:] = np.arange(1, stages), stages + np.arange(stages - 1)
    latency_s = np.zeros(stages)
    for hop in timeline.problem.hops:
        latency_s[hop.from_stage] = hop.latency_s
    delay[0], delay[1, 1:] = latency_s, latency_s[:-1]
    channel[0], channel[1, 1:] = shape.activation_channel_s, shape.gradient_channel_s[:-1]
    flow[0], flow[1, 1:] = 2 * np.arange(stages), 2 * np.arange(stages - 1) + 1
    released = np.full((kinds, stages), NOTHING)
    released[0, -1] = stages + stages - 1
    if kinds == 3:
        released[1] = 2 * stages + np.arange(stages)
    weight_stage = np.full((kinds, stages), NOTHING)
    weight_stage[-1] = np.arange(stages)
    (rank_flat, rank_offsets), (channel_flat, channel_offsets) = map(ragged, _orders(shape, timeline.schedule))
    return Work(
        duration=np.repeat(shape.duration_ks.ravel(), m),
        released=_operations(released, m),
        target=_operations(target, m),
        delay=np.repeat(delay.ravel(), m),
        channel=np.repeat(channel.ravel(), m),
        flow=np.repeat(flow.ravel(), m),
        weight_stage=np.repeat(weight_stage.ravel(), m),
        waits=np.repeat(np.arange(kinds) < 2, stages * m).astype(np.int64) * (timeline.problem.sends == "blocking"),
        rank=np.repeat(np.tile(shape.rank_of_s, kinds), m),
        ready=(np.arange(shape.num_operations) < m).astype(np.int64),
        rank_flat=rank_flat,
        rank_offsets=rank_offsets,
        channel_flat=channel_flat,
        channel_offsets=channel_offsets,
    )


def _operations(rows: Ints, num_microbatches: int) -> Ints:
    """Operation ids of rows (kind, stage), one per micro-batch."""
    ids = rows.reshape(-1, 1) * num_microbatches + np.arange(num_microbatches)
    return np.where(rows.reshape(-1, 1) == NOTHING, NOTHING, ids).ravel()


def _orders(shape: PipelineShape, schedule: PipelineSchedule) -> tuple[tuple[Ints, ...], tuple[Ints, ...]]:
    """Orders of ranks, and of the channels that the shape has, as the schedule states them."""
    numbers = shape.numbers()
    rank_ops = tuple(np.array([*map(numbers.__getitem__, one.operations)], dtype=np.int64) for one in schedule.ranks)
    queues: list[list[Ints]] = [[np.zeros(0, dtype=np.int64)] for _ in range(shape.num_channels)]
    for one in schedule.transfers:
        if one.direction != "both" and one.link in shape.link_names:
            channel = 2 * shape.link_names.index(one.link) + int(one.direction == "down")
            named = np.array([numbers.get(text, NOTHING) for text in one.transfers], dtype=np.int64)
            queues[channel].append(named[named != NOTHING])
    return rank_ops, tuple(np.concatenate(queue) for queue in queues)


def end_with_hops(timeline: RouteTimeline, hops: tuple[PipelineHop, ...]) -> float:
    """End of the last operation of the timeline's order under other delays between its stages, or none."""
    shape = shape_of(timeline.problem.without_exchanges().model_copy(update={"hops": hops}))
    rank_ops, stated = _orders(shape, timeline.schedule)
    on_links = channel_messages(shape)  # a schedule also states messages that take no link any time
    order = PipelineOrder(rank_ops, tuple(own[np.isin(own, one)] for own, one in zip(stated, on_links, strict=True)))
    return float(replay_shape(shape, order).end.max())


def side_by_side(routes: list[Work], num_stages: int) -> Work:
    """The work of several routes, numbered one after another; flows and weight stages are numbered by route as well."""
    parts: list[Work] = []
    operations = ranks = channels = in_ranks = in_channels = 0
    for index, one in enumerate(routes):
        parts.append(
            one._replace(
                released=_shifted(one.released, operations),
                target=_shifted(one.target, operations),
                channel=_shifted(one.channel, channels),
                flow=_shifted(one.flow, 2 * num_stages * index),
                weight_stage=_shifted(one.weight_stage, num_stages * index),
                rank=one.rank + ranks,
                rank_flat=one.rank_flat + operations,
                rank_offsets=one.rank_offsets[min(index, 1) :] + in_ranks,
                channel_flat=one.channel_flat + operations,
                channel_offsets=one.channel_offsets[min(index, 1) :] + in_channels,
            )
        )
        operations += len(one.duration)
        ranks, channels = ranks + len(one.rank_offsets) - 1, channels + len(one.channel_offsets) - 1
        in_ranks, in_channels = in_ranks + len(one.rank_flat), in_channels + len(one.channel_flat)
    return Work(*map(np.concatenate, zip(*parts, strict=True)))


def _shifted(ids: Ints, base: int) -> Ints:
    return np.where(ids == NOTHING, NOTHING, ids + base).astype(np.int64)


class Network(NamedTuple):
    """Flows by (route, stage of the hop, way), edges (`_e`), and what exchanges hold; `_w` is by route and stage."""

    weight: Floats  # replicas that send at once
    bytes: Floats  # of one replica's message, until it is in
    tail: Floats  # bytes of the time slots after it, which take the channel as well
    cap: Floats  # most that one replica can send, B/s
    floor: Floats  # share that one replica always keeps, B/s
    edge_flat: Ints  # edges of every flow, between its offsets
    part_flat: Floats  # part of the flow on each of them
    edge_offsets: Ints
    capacity_e: Floats  # B/s
    hold_se: Floats  # B/s that the exchange of a stage holds of each edge once it may start
    left_w: Ints  # weight gradients
    until_exchange_w: Ints  # so many left on every route: the exchange may be about to start
