"""A configuration on given routes timed by the judge itself: plain 1F1B, transports picked one by one, no solver.

What it finds is a plan that exists, so no bound on all plans is above it; and what it cannot beat, its own lower bound,
no plan of that configuration on these routes can.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import numpy as np

from models.plan import Configuration, Plan, Route
from models.request import PlanRequest
from models.schedule import PipelineHop, PipelineProblem, PipelineRank, PipelineStage
from models.transport import (
    Connection,
    ExchangeRing,
    ExchangeStep,
    LinkStep,
    MessagePath,
    MessageSplit,
    MessageTransport,
)
from solver.network.technology import CHUNK_BYTES, OUTSTANDING, QUEUE_PAIRS
from solver.network.topology import PathFacts
from solver.pipeline.problem import Floats, Ints, PipelineOrder, PipelineShape, shape_of
from solver.pipeline.simulate import channel_messages, replay_shape
from solver.verify.case import Case
from solver.verify.exchange_ways import ExchangeWays
from solver.verify.rules.message_times import unoffered

FUSED = 2  # kinds of operation: F and BW


@dataclass(frozen=True)
class Trial:
    """A configuration on routes of a request; `like` gives the policy of sharing links and the stack profile.

    With `plain_ecmp` nothing balances load, where links offer that.
    """

    request: PlanRequest
    like: Plan
    configuration: Configuration
    routes: tuple[Route, ...]
    plain_ecmp: bool = False

    @cached_property
    def bare(self) -> Case:
        """The case without any transport between places."""
        nothing = {"timelines": (), "message_splits": (), "message_transports": (), "exchange_rings": ()}
        placement = self.like.placement.model_copy(update={"routes": self.routes})
        own = {"configuration": self.configuration, "placement": placement}
        return Case(self.request, self.like.model_copy(update=nothing | own))

    @cached_property
    def case(self) -> Case:
        """The case with rings for the exchanges, then with the best transport of every way of messages."""
        with_rings = self.bare.plan.model_copy(update={"exchange_rings": tuple(self._rings())})
        case = Case(self.request, with_rings)
        found = {}
        for one in case.messages.crossing:
            for source, target in one.ways:
                busy, path = case.messages.num_connections(source, target), case.messages.facts(source, target)
                size = case.network.boundary_bytes(one)
                best = min(
                    self._connections(path, busy),
                    key=lambda how: case.messages.travels(source, target, size, how).message_s,
                )
                found[source.id, target.id] = MessageTransport(from_pool=source.id, to_pool=target.id, connection=best)
        return Case(self.request, with_rings.model_copy(update={"message_transports": tuple(found.values())}))

    def _rings(self) -> Iterator[ExchangeRing]:
        """Places by building and name, each to the next on the path of least latency, with the fastest transport."""
        case = self.bare
        for stage in case.exchanging.shared_stages:
            places = sorted(case.exchanging.places(stage), key=lambda place: (case.building_of(place), place))
            steps = tuple(
                MessageSplit(from_place=one, to_place=other, paths=(_path(case, one, other),))
                for one, other in pairwise((*places, places[0]))
            )
            busy = case.exchanging.fewest(stage)[1] * case.gpus_per_group
            transports = tuple(
                ExchangeStep(
                    from_place=kind.narrowest[0],
                    to_place=kind.narrowest[1],
                    connection=max(
                        self._connections(kind.path, busy),
                        key=lambda how: case.exchanging.connection_bytes_per_s(stage, kind.path, how),
                    ),
                )
                for kind in case.exchanging.alike(steps)
            )
            yield ExchangeRing(stages=(stage,), steps=steps, transports=transports)

    def _connections(self, path: PathFacts, num_connections: int) -> list[Connection]:
        """What a path offers, of load balancing plain ECMP alone where that is asked for and there."""
        every = _connections(path, num_connections)
        plain = [one for one in every if one.load_balancing == "ecmp" and one.reliability in ("go_back_n", "tcp")]
        return plain if self.plain_ecmp and plain else every

    @property
    def optimizer_s(self) -> float:
        """The update of the slowest GPU."""
        case = self.bare
        return max(case.derived.optimizer_s(one.pool, one.pipeline_rank) for one in case.groups)

    def bound_s(self) -> float:
        """No schedule is faster: a rank works through all its micro-batches once the first has reached it.

        T >= max over routes and ranks (sum of F of the stages before its first + m x F, B, W of its own) + update.
        """
        case, longest = self.bare, 0.0
        m = self.configuration.num_microbatches
        for pools in case.pools_by_route.values():
            cost = [
                case.derived.stage(pools[self.configuration.rank_of_stage(stage)], stage)
                for stage in range(self.configuration.degrees.num_stages)
            ]
            for rank in range(self.configuration.degrees.pp):
                own = case.derived.stages_of(rank)
                reached = sum(float(cost[stage].forward_s[0]) for stage in range(own[0]))
                longest = max(longest, reached + m * sum(float(cost[stage].total_s[0]) for stage in own))
        return longest + self.optimizer_s

    def time_s(self) -> float | None:
        """Its time under 1F1B with a fused backward; None where chunks fold, or memory has no room for that."""
        case = self.case
        if self.configuration.degrees.vpp > 1 or not all(self._fits(route) for route in self.routes):
            return None
        ends = [self._last_gradients_s(route, case.hops.of(route.id, None)) for route in self.routes]
        return max(self._exchanged_s(np.maximum.reduce(ends))) + self.optimizer_s

    def _in_flight(self, rank: int) -> int:
        """Micro-batches that 1F1B holds on a rank."""
        return min(self.configuration.degrees.pp - rank, self.configuration.num_microbatches)

    def _fits(self, route: Route) -> bool:
        case = self.case
        for rank, pool in enumerate(case.pools_by_route[route.id]):
            held = self._in_flight(rank) * float(case.derived.stage(pool, rank).activation_bytes[0])
            static = float(case.derived.static_memory(pool, rank).total_bytes[0])
            if static + held > case.derived.memory_limit_bytes(pool):
                return False
        return True

    def _last_gradients_s(self, route: Route, hops: tuple[PipelineHop, ...]) -> Floats:
        """End of the last backward of every stage."""
        case, m = self.case, self.configuration.num_microbatches
        pools = case.pools_by_route[route.id]
        stages = tuple(
            PipelineStage(
                forward_s=float(cost.forward_s[0]),
                input_grad_s=float(cost.input_grad_s[0]),
                weight_grad_s=float(cost.weight_grad_s[0]),
            )
            for cost in (case.derived.stage(pool, stage) for stage, pool in enumerate(pools))
        )
        framework = self.request.constraints.framework
        problem = PipelineProblem(
            num_microbatches=m,
            ranks=(PipelineRank(),) * len(pools),
            stages=stages,
            hops=hops,
            backward="fused",
            sends="asynchronous" if framework is None else framework.sends("one_way"),
        )
        shape = shape_of(problem)
        order = PipelineOrder(tuple(self._order(shape, rank) for rank in range(len(pools))), channel_messages(shape))
        ends = replay_shape(shape, order).end.reshape(FUSED, len(pools), m)
        last: Floats = ends[1].max(axis=1)
        return last

    def _order(self, shape: PipelineShape, rank: int) -> Ints:
        """1F1B: as many forwards as the rank holds, then one backward and one forward in turn."""
        m, ahead = self.configuration.num_microbatches, self._in_flight(rank)
        order = [shape.operation_id(0, rank, index) for index in range(ahead)]
        for index in range(m):
            order.append(shape.operation_id(1, rank, index))
            if index + ahead < m:
                order.append(shape.operation_id(0, rank, index + ahead))
        return np.array(order, dtype=np.int64)

    def _exchanged_s(self, last_s: Floats) -> Iterator[float]:
        """Ends of the exchanges, first ready first, one by one on the links though several may fit at once."""
        ways, free_s = ExchangeWays(self.case, self.case.hops.all_at_once), 0.0
        ready = {stage: max(float(end) - ways.overlap_s(stage), 0.0) for stage, end in enumerate(last_s)}
        for stage in sorted(ready, key=lambda one: ready[one]):
            private_s, start_s, shared_s = ways.private_s(stage), ready[stage], 0.0
            if stage in ways.shared_stages:
                shared_s, start_s = ways.on_ring(stage).shared_s, max(start_s, free_s)
                free_s = start_s + shared_s
            yield max(float(last_s[stage]), start_s + self.case.exchange_s(private_s, shared_s))


def _path(case: Case, source: str, target: str) -> MessagePath:
    topology = case.network.topology
    edges = (topology.edges[edge] for edge in topology.path(source, target))
    return MessagePath(part=1.0, steps=tuple(LinkStep(link=edge.id, reverse=edge.reverse) for edge in edges))


def _connections(path: PathFacts, num_connections: int) -> list[Connection]:
    """Everything that a path offers."""
    every = (
        Connection(
            num_connections=num_connections,
            load_balancing=balancing,
            reliability=recovery,
            num_queue_pairs=pairs,
            chunk_bytes=chunk,
            num_outstanding=outstanding,
        )
        for balancing, recovery, pairs, chunk, outstanding in product(
            path.load_balancing,
            ("tcp", "go_back_n", "selective_repeat_nack", "erasure_code"),
            QUEUE_PAIRS[::2],
            CHUNK_BYTES[::2],
            OUTSTANDING,
        )
    )
    return [one for one in every if not any(unoffered(path, one))]
