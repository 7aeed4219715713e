"""A request and a plan as the judge reads them: operations, messages and memory by route, each read once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from models.figures import MemoryUse
from models.plan import RouteTimeline
from models.schedule import PipelineViolation
from models.transport import LinkLoad, MessagePath
from solver.memo import Memo
from solver.pipeline.judge import check_schedule
from solver.pipeline.problem import Floats
from solver.verify.activations import FORWARD, Timed, peak_activation_bytes, timed, timed_operations
from solver.verify.derived import Derived
from solver.verify.facts import Facts
from solver.verify.network_facts import NetworkFacts

Read = TypeVar("Read")
# Start and end of every message, two columns, by kind and stage of the sender; B stands for BW as well.
Messages = Mapping[tuple[str, int], Floats]


@dataclass(frozen=True)
class Reading(Facts):
    """Facts and what the physics makes of them. Every derived value is computed once, when a rule first asks."""

    @cached_property
    def derived(self) -> Derived:
        """Stage costs, memory and traffic of the configuration."""
        return Derived(self)

    @cached_property
    def network(self) -> NetworkFacts:
        """Demands between buildings and the capacity of cuts."""
        return NetworkFacts(self, self.derived)

    def _per_timeline(self, read: Callable[[RouteTimeline], Read]) -> dict[str, Read]:
        """Something read off every timeline; routes with one schedule and equal problems share the reading."""
        firsts = dict.fromkeys(self.alike_route.values())
        known = {route: read(self.timeline_by_route[route]) for route in firsts}
        return {route: known[first] for route, first in self.alike_route.items()}

    @cached_property
    def operations(self) -> Mapping[str, list[Timed]]:
        """Stated operations by route and pipeline rank."""
        return self._per_timeline(lambda one: [timed_operations(rank) for rank in one.schedule.ranks])

    @cached_property
    def loads(self) -> tuple[tuple[LinkLoad, int], ...]:
        """Stated loads with the edge that they are on, where it exists."""
        index = self.network.topology.edge_index
        stated = ((load, index.get((load.link, load.reverse))) for load in self.plan.link_loads)
        return tuple((load, edge) for load, edge in stated if edge is not None)

    @cached_property
    def message_splits(self) -> Mapping[tuple[str, str], tuple[MessagePath, ...]]:
        """Stated paths by the places that they join."""
        return {(one.from_place, one.to_place): one.paths for one in self.plan.message_splits}

    @cached_property
    def message_times(self) -> Mapping[str, Messages]:
        """Stated messages by route."""
        return self._per_timeline(_message_times)

    @cached_property
    def schedule_objections(self) -> Mapping[str, list[PipelineViolation]]:
        """What the pipeline judge objects to, by route."""
        return self._per_timeline(lambda one: check_schedule(one.problem, one.schedule))

    @cached_property
    def memory_needs(self) -> Mapping[tuple[str, int], MemoryUse]:
        """Memory by route and pipeline rank, activations as the stated times hold them."""
        return {
            (route, pipeline_rank): self._memory_need(route, pipeline_rank)
            for route in self.pools_by_route
            if route in self.timeline_by_route
            for pipeline_rank in range(
                min(self.configuration.degrees.pp, len(self.timeline_by_route[route].schedule.ranks))
            )
        }

    @cached_property
    def _peaks(self) -> Memo:
        return Memo()

    def _peak_bytes(self, route: str, pipeline_rank: int, held: dict[int, tuple[float, float]]) -> float:
        """Of one rank's operations, which alike routes share."""
        first = self.alike_route[route]
        return self._peaks.once(
            (first, pipeline_rank, tuple(held.items())),
            lambda: peak_activation_bytes(self.operations[first][pipeline_rank], held),
        )

    def _memory_need(self, route: str, pipeline_rank: int) -> MemoryUse:
        pool = self.pools_by_route[route][pipeline_rank]
        static = self.derived.static_memory(pool, pipeline_rank)
        held = {
            stage: (float(cost.activation_bytes[0]), float(cost.weight_grad_context_bytes[0]))
            for stage in self.derived.stages_of(pipeline_rank)
            for cost in [self.derived.stage(pool, stage)]
        }
        return MemoryUse.model_construct(  # whatever the request makes of it, however much that is
            pipeline_rank=pipeline_rank,
            route=route,
            weights_bytes=float(static.weights_bytes[0]),
            gradients_bytes=float(static.gradients_bytes[0]),
            optimizer_bytes=float(static.optimizer_bytes[0]),
            activations_bytes=self._peak_bytes(route, pipeline_rank, held),
            buffers_bytes=float(static.buffers_bytes[0]),
            framework_bytes=float(static.framework_bytes[0]),
            limit_bytes=self.derived.memory_limit_bytes(pool),
        )


def _message_times(timeline: RouteTimeline) -> Messages:
    messages = [timed(one.transfers, one.start_s, one.end_s) for one in timeline.schedule.transfers]
    if not messages:
        return {}
    all_messages = Timed(*(np.concatenate(column) for column in zip(*messages, strict=True)))
    sender = 2 * all_messages.stage + (all_messages.kind != FORWARD)
    order = np.argsort(sender, kind="stable")
    times = np.stack([all_messages.start_s, all_messages.end_s], axis=1)[order]
    senders, first = np.unique(sender[order], return_index=True)
    parts = zip(senders.tolist(), np.split(times, first[1:]), strict=True)
    return {("B" if one % 2 else "F", one // 2): part for one, part in parts}
