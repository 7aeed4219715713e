"""A message has its share of the link that leaves it the least, however many others take another link of its way."""

from __future__ import annotations

import numpy as np
import pytest

from solver.configurations.enumerate import EVEN, FAMILY_CODES, Space
from solver.context import Context
from solver.cost.columns import ZERO1, columns_from
from solver.evaluation.candidate import configuration_of
from solver.placement.fill import PooledRoute
from solver.transport.hops import HopDelay, StageMessages, route_hops
from solver.transport.message_paths import MessagePaths
from tests.build_job import context_of
from tests.unit.solver.transport.meshes import meshed

WIDE, NARROW, MESSAGE_BYTES = 1e12, 1e10, 1e8


def chained(narrow: float = NARROW) -> Context:
    """Three buildings in a row, with two links between the first two."""
    links = (("near", "b0", "b1", WIDE, 1e-4), ("far", "b0", "b1", 3 * WIDE, 1e-4), ("thin", "b1", "b2", narrow, 1e-4))
    return context_of(meshed(3, links))


def hops_of(context: Context, ends: tuple[tuple[int, int, int], ...], paths: MessagePaths) -> list[HopDelay]:
    """The one hop of every route of two ranks: pools from and to, and how many replicas."""
    row = {"tp": 8, "cp": 1, "ep": 1, "pp": 2, "dp": sum(one[2] for one in ends), "vpp": 1, "micro_batch": 1}
    columns = columns_from([row | {"num_microbatches": 4, "sharding": ZERO1, "shard_group": row["dp"], "recompute": 0}])
    space = Space(columns, np.array([FAMILY_CODES.index("one_way")]), np.array([EVEN]))
    messages = StageMessages(context, configuration_of(context, space, 0), MESSAGE_BYTES, paths)
    routes = tuple(PooledRoute((source, target), replicas, (0, 0)) for source, target, replicas in ends)
    return [hop for delays in route_hops(messages, routes) for hop in delays]


@pytest.mark.parametrize("others", [0, 2, 60])
def test_others_on_a_wide_link_take_nothing_of_a_narrow_one(others: int) -> None:
    context = chained()
    ends = ((0, 2, 2), *(((0, 1, others),) if others else ()))
    far = hops_of(context, ends, MessagePaths(context.topology))[0]
    assert far.transfer_s == pytest.approx(2 * MESSAGE_BYTES / NARROW, rel=0.03)  # headers
    assert (far.num_sharers, far.num_senders) == (2, max(2, 2 + others))


def test_parts_of_a_message_share_each_link_by_their_size() -> None:
    context = chained(4 * WIDE)
    edges = context.topology.edges
    by_name = {(edge.id, edge.reverse): index for index, edge in enumerate(edges)}
    split = {
        ends: tuple(((by_name[name, back],), part) for name, part in (("near", 0.25), ("far", 0.75)))
        for ends, back in ((("b0", "b1"), False), (("b1", "b0"), True))
    }
    hop = hops_of(context, ((0, 1, 96),), MessagePaths(context.topology, split))[0]
    assert hop.num_sharers == 96
    assert hop.transfer_s == pytest.approx(96 * MESSAGE_BYTES / (4 * WIDE), rel=0.03)  # headers


def test_whoever_sends_at_once_may_lose_a_message() -> None:
    """The slowest of all that send is waited for, whether or not they share the narrow link."""
    links = (("wide", "b0", "b1", WIDE, 5e-3), ("far", "b1", "b2", NARROW, 5e-3))
    context = context_of(meshed(3, links, far={"loss_probability": 1e-6}))
    alone, among = (
        hops_of(context, ((0, 2, 2), *more), MessagePaths(context.topology))[0] for more in ((), ((0, 1, 60),))
    )
    assert among.latency_s > alone.latency_s
    assert among.transfer_s == pytest.approx(alone.transfer_s, rel=0.03)  # headers
