"""What the cost model says of the one configuration that `build_plan` places, and how it may be forged.

Stage costs, messages and exchanges of the hand-made plan; `build_plan` puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from models.catalogue import named_entry
from models.cluster import Pool
from models.plan import Configuration, StageExchange
from models.request import PlanRequest
from models.schedule import PipelineHop
from models.stack import StackProfile
from solver.cost.columns import Columns, columns_of
from solver.cost.data_parallel import crossing_bytes, step_traffic
from solver.cost.fabric import fabric_of
from solver.cost.job import job_of
from solver.cost.layer import Setting
from solver.cost.memory import StaticMemory, static_memory
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import StageCost, stage_cost
from solver.network.latency import tier_s
from solver.network.topology import Edge, PathFacts, build_topology

STACK = "megatron-2024"
MARGIN = 1.25  # how much slower than the physics allow the stated hops and exchanges are
Routes = tuple[tuple[str, tuple[str, ...], int], ...]
MIXED: Routes = (("across", ("east", "west"), 2), ("inside", ("east", "east"), 2))
INSIDE: Routes = (("inside", ("east", "east"), 4),)
CROSSED: Routes = (("there", ("east", "west"), 2), ("back", ("west", "east"), 2))


@dataclass(frozen=True)
class Forgery:
    """Lies that the whole plan is built on, so that nothing else in it contradicts them. The default is the truth."""

    stage_times: float = 1.0
    context_bytes: float = 1.0
    hop_latency: float = 1.0
    hop_transfer: float = 1.0
    optimizer: float = 1.0
    iteration: float = 1.0
    num_sharers: int | None = None
    exchange_shared: float = 1.0
    messages_take_turns: bool = False
    staggered: bool = False
    scheduled_microbatches: int | None = None
    gradient_sync_s: float = 0.0
    all_forward_first: bool = False


@dataclass(frozen=True)
class Costs:
    """The request, the configuration and the routes: (name, place of each rank, replicas)."""

    request: PlanRequest
    configuration: Configuration
    routes: Routes
    forgery: Forgery

    @property
    def stack(self) -> StackProfile:
        """The software-stack profile."""
        return StackProfile.model_validate(named_entry("stacks", STACK))

    @property
    def columns(self) -> Columns:
        """The configuration in the form of the formulas."""
        return columns_of(self.configuration)

    def pool(self, place: str) -> Pool:
        """The pool of a place."""
        return next(pool for pool in self.request.cluster.pools if pool.place == place)

    def path(self, one: str, other: str) -> PathFacts:
        """The least-latency path between two places."""
        return build_topology(self.request.cluster).path_facts(one, other)

    def edges(self, one: str, other: str) -> list[Edge]:
        """The directed edges of that path."""
        topology = build_topology(self.request.cluster)
        return [topology.edges[index] for index in topology.path(one, other)]

    def num_replicas(self, rank: int) -> dict[str, int]:
        """Replicas of a pipeline rank by place."""
        counts: dict[str, int] = {}
        for _, places, num_replicas in self.routes:
            counts[places[rank]] = counts.get(places[rank], 0) + num_replicas
        return counts

    def stage(self, place: str, stage: int) -> StageCost:
        """Cost of a stage whose layers are all of one kind."""
        pool, last = self.pool(place), self.configuration.degrees.num_stages - 1
        has_experts, layers = self.request.workload.architecture.moe is not None, self.configuration.layers_per_stage
        parts = {
            "dense": 0 if has_experts else layers[stage],
            "moe": layers[stage] if has_experts else 0,
            "embedding": int(stage == 0),
            "logits": int(stage == last),
        }
        return stage_cost(self._setting(pool), parts, self.request.workload.layer_profiles)

    def _setting(self, pool: Pool) -> Setting:
        return Setting.of(job_of(self.request.workload), pool.gpu, fabric_of(pool), self.stack, self.columns)

    def static(self, place: str, stage: int) -> StaticMemory:
        """Memory that no schedule changes."""
        pool, cost = self.pool(place), self.stage(place, stage)
        is_last = stage == self.configuration.degrees.num_stages - 1
        return static_memory(self._setting(pool), cost.parameters, cost.expert_parameters, has_logits=int(is_last))

    def room_bytes(self, place: str, stage: int) -> float:
        """Memory left for activations."""
        headroom = self.request.constraints.memory_headroom_fraction
        return self.pool(place).gpu.memory_bytes * (1 - headroom) - float(self.static(place, stage).total_bytes[0])

    def optimizer_s(self, place: str, stage: int) -> float:
        """Optimizer step of one GPU."""
        cost, job = self.stage(place, stage), job_of(self.request.workload)
        gpu = self.pool(place).gpu
        dense, expert = cost.parameters, cost.expert_parameters
        time = optimizer_s(dense, expert, self.columns, gpu=gpu, stack=self.stack, job=job)
        return self.forgery.optimizer * float(time[0])

    def message_bytes(self) -> float:
        """Hidden states between two stages of one replica."""
        return float(self.stage("east", 0).boundary_bytes[0])

    def hop(self, stage: int, ends: tuple[str, str], count: int) -> PipelineHop:
        """The message over the group's cards or an equal share of the link, a little slower than possible."""
        group = self.configuration.degrees.gpus_per_stage_group
        rate, latency = group * self.pool(ends[0]).nic_bytes_per_s_per_gpu, tier_s("rack")
        if ends[0] != ends[1]:
            path = self.path(*ends)
            rate = min(rate, path.capacity_bytes_per_s / (self.forgery.num_sharers or count))
            latency = path.latency_s
        return PipelineHop(
            from_stage=stage,
            to_stage=stage + 1,
            latency_s=MARGIN * latency * self.forgery.hop_latency,
            transfer_s=MARGIN * self.message_bytes() / rate * self.forgery.hop_transfer,
            num_sharing_replicas=count if self.forgery.messages_take_turns else 1,
            staggered=self.forgery.staggered and ends[0] != ends[1],
        )

    def exchanged_bytes(self, stage: int) -> float:
        """Bytes that one building sends to the others for a stage."""
        cost, degrees = self.stage("east", stage), self.configuration.degrees
        job, num_sites = job_of(self.request.workload), len(self.num_replicas(stage))
        dense = crossing_bytes(cost.parameters, self.columns, num_sites, job)
        expert = crossing_bytes(cost.expert_parameters, self.columns, num_sites, job)
        return degrees.tp * (float(dense[0]) + degrees.ep * float(expert[0]))

    def exchange(self, stage: int, *, last_s: float, free_s: float) -> StageExchange:
        """The exchange of a stage without overlap, once the links are free."""
        counts = self.num_replicas(stage)
        private = max(self._private_s(place, stage, count) for place, count in counts.items())
        shared = self._shared_s(stage) if len(counts) > 1 else 0.0
        start = max(last_s, free_s) if shared else last_s
        return StageExchange(
            stage=stage,
            last_weight_grad_end_s=last_s,
            overlap_s=0.0,
            start_s=start,
            private_s=private,
            shared_s=shared,
            end_s=start + max(private, shared) + min(private, shared) / 8,
        )

    def _private_s(self, place: str, stage: int, count: int) -> float:
        cost, pool = self.stage(place, stage), self.pool(place)
        traffic = step_traffic(
            cost.parameters,
            cost.expert_parameters,
            replace(self.columns, dp=np.array([count])),
            fabric_of(pool),
            self.stack,
            job=job_of(self.request.workload),
        )
        return MARGIN * float(traffic.reduce_s[0] + traffic.gather_s[0])

    def _shared_s(self, stage: int) -> float:
        counts, group = self.num_replicas(stage), self.configuration.degrees.gpus_per_stage_group
        path = self.path(*sorted(counts))
        cards = min(count * group * self.pool(place).nic_bytes_per_s_per_gpu for place, count in counts.items())
        return (
            MARGIN
            * self.forgery.exchange_shared
            * (self.exchanged_bytes(stage) / min(cards, path.capacity_bytes_per_s) + 2 * path.latency_s)
        )
