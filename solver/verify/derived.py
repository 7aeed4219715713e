"""What the cost model says of the stages of a plan, as the judge derives it from the request and the configuration.

No time or byte count of the plan is read.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from models.cluster import GpuType, Pool
from models.stack import StackProfile, packaged_stack
from solver.arrays import FloatArray
from solver.cost.columns import Columns, columns_of
from solver.cost.compute import peak_flops_per_s
from solver.cost.data_parallel import step_traffic
from solver.cost.fabric import fabric_of
from solver.cost.job import Job, job_of
from solver.cost.layer import Setting
from solver.cost.memory import StaticMemory, static_memory
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import PART_KINDS, StageCost, stage_cost
from solver.memo import Memo
from solver.verify.facts import Facts

# Dense layers, MoE layers, embeddings and logits of one stage. Multi-token prediction is on the last stage.
StageParts = tuple[int, int, int, int]


@dataclass(frozen=True)
class Derived:
    """Stage costs of a plan's configuration; every method names the pool whose GPUs it is about."""

    facts: Facts
    _known: Memo = field(default_factory=Memo, repr=False, compare=False)

    @cached_property
    def stack(self) -> StackProfile:
        """The profile that the request brings, else the packaged one that the plan names; ValueError without one."""
        brought = self.facts.request.options.stack_profile
        if isinstance(brought, StackProfile):
            return brought
        return packaged_stack(self.facts.plan.stack_profile)

    @cached_property
    def job(self) -> Job:
        """The workload as arithmetic."""
        return job_of(self.facts.request.workload)

    @cached_property
    def columns(self) -> Columns:
        """The configuration in the form the formulas take."""
        return columns_of(self.facts.configuration)

    @cached_property
    def parts(self) -> tuple[StageParts, ...]:
        """What every stage consists of, in model order."""
        counts = self.facts.configuration.layers_per_stage
        architecture = self.facts.request.workload.architecture
        stages, first = list[StageParts](), 0
        for stage, count in enumerate(counts):
            kinds = [architecture.is_moe_layer(layer) for layer in range(first, first + count)]
            first += count
            is_last = stage == len(counts) - 1
            if is_last:
                kinds += [architecture.is_moe_layer(architecture.num_layers - 1)] * architecture.num_mtp_layers
            logits = 1 + architecture.num_mtp_layers if is_last else 0
            stages.append((kinds.count(False), kinds.count(True), int(stage == 0), logits))
        return tuple(stages)

    @cached_property
    def _kinds(self) -> dict[str, int]:
        """Pools whose GPUs and networks are alike have one number."""
        numbers: dict[tuple[GpuType, float, int], int] = {}
        return {
            pool.id: numbers.setdefault((pool.gpu, pool.nic_bytes_per_s_per_gpu, pool.gpus_per_host), len(numbers))
            for pool in self.facts.request.cluster.pools
        }

    def stage(self, pool: Pool, stage: int) -> StageCost:
        """Cost per micro-batch of one stage on the GPUs of a pool."""
        parts, profiles = self.parts[stage], self.facts.request.workload.layer_profiles
        counts = zip(PART_KINDS, parts, strict=True)
        return self._known.once(
            ("stage", self._kinds[pool.id], parts), lambda: stage_cost(_setting(self, pool), dict(counts), profiles)
        )

    @cached_property
    def _stages_by_rank(self) -> dict[int, list[int]]:
        used = self.facts.configuration
        found: dict[int, list[int]] = {}
        for stage in range(used.degrees.num_stages):
            found.setdefault(used.rank_of_stage(stage), []).append(stage)
        return found

    def stages_of(self, pipeline_rank: int) -> list[int]:
        """Stages that a pipeline rank holds, in model order."""
        return self._stages_by_rank.get(pipeline_rank, [])

    def parameters(self, pool: Pool, pipeline_rank: int) -> tuple[FloatArray, FloatArray]:
        """Dense and expert parameters on one GPU of a pipeline rank."""
        costs = [self.stage(pool, stage) for stage in self.stages_of(pipeline_rank)]
        dense = np.sum([cost.parameters for cost in costs], axis=0)
        return dense, np.sum([cost.expert_parameters for cost in costs], axis=0)

    def static_memory(self, pool: Pool, pipeline_rank: int) -> StaticMemory:
        """Memory of one GPU that no schedule changes; pools of one kind need the same."""

        def static() -> StaticMemory:
            is_last = self.facts.configuration.degrees.num_stages - 1 in self.stages_of(pipeline_rank)
            parameters = self.parameters(pool, pipeline_rank)
            return static_memory(_setting(self, pool), *parameters, has_logits=int(is_last))

        return self._known.once(("static", self._kinds[pool.id], pipeline_rank), static)

    def memory_limit_bytes(self, pool: Pool) -> float:
        """HBM less the headroom that the request asks for."""
        return pool.gpu.memory_bytes * (1.0 - self.facts.request.constraints.memory_headroom_fraction)

    def optimizer_s(self, pool: Pool, pipeline_rank: int) -> float:
        """Optimizer step of one GPU of a pipeline rank."""
        dense, expert = self.parameters(pool, pipeline_rank)
        return float(optimizer_s(dense, expert, self.columns, gpu=pool.gpu, stack=self.stack, job=self.job)[0])

    def private_exchange_s(self, pool: Pool, stage: int, num_replicas: int) -> float:
        """Gradient reduction and parameter gathering of a stage among so many replicas in one pool."""

        def private_s() -> float:
            cost, columns = self.stage(pool, stage), replace(self.columns, dp=np.array([num_replicas]))
            traffic = step_traffic(
                cost.parameters, cost.expert_parameters, columns, fabric_of(pool), self.stack, job=self.job
            )
            return float(traffic.reduce_s[0] + traffic.gather_s[0])

        return self._known.once(("private", self._kinds[pool.id], self.parts[stage], num_replicas), private_s)

    def overlap_s(self, pool: Pool, stage: int) -> float:
        """Longest head start of an exchange: a share of the last backward, for zero1 also of the next forward."""
        cost = self.stage(pool, stage)
        beside = cost.input_grad_s + cost.weight_grad_s
        if self.facts.configuration.sharding == "zero1":
            beside = beside + cost.forward_s
        return float(self.stack.data_parallel_overlap.value * beside[0])

    def peak_flops_per_s(self, pool: Pool) -> float:
        """Datasheet peak of one GPU in the precision of the workload."""
        return peak_flops_per_s(pool.gpu, self.facts.request.workload.precision)


def _setting(derived: Derived, pool: Pool) -> Setting:
    return Setting.of(derived.job, pool.gpu, fabric_of(pool), derived.stack, derived.columns)
