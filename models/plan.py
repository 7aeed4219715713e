"""The answer: configuration, placement, timelines, transport, memory, time, proof and assumptions."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.base import Bytes, Count, Fraction, Frozen, Name, PositiveCount, Ratio, Relative, Seconds, TotalSeconds, Usd
from models.cluster import PlaceId
from models.diagnostic import DiagnosticOrText
from models.figures import Assumption, ConvergencePoint, MemoryUse, TimeBreakdown
from models.prediction import Prediction
from models.schedule import PipelineHop, PipelineProblem, PipelineSchedule
from models.transport import ExchangeRing, LinkLoad, MessageSplit, MessageTransport, TransportChoice, TransportPolicy
from models.verdict import Verdict
from models.workload import LayerCount, Recompute

Sharding = Literal["ddp", "zero1", "fsdp", "hsdp"]
ScheduleFamily = Literal["one_way", "loop", "v"]
LayerSplit = Literal["even", "by_gpu_type"]
Crossing = Literal["none", "dp_out", "pp_out", "mixed"]
TokensPerSecond = Annotated[float, Field(ge=0, json_schema_extra={"unit": "token/s"})]
MOST_WAYS = 1_048_576  # a batch has no more sequences; the judge looks at the members of a group one by one
Ways = Annotated[int, Field(ge=1, le=MOST_WAYS)]


class Degrees(Frozen):
    """How many ways each dimension splits the work. GPUs used = tp * cp * pp * dp; ep lies inside dp * cp."""

    tp: Ways = Field(description="Tensor parallel: GPUs that share every matrix of a layer.", examples=[8])
    cp: Ways = Field(1, description="Context parallel: GPUs that share every sequence.", examples=[1])
    ep: Ways = Field(1, description="Expert parallel: GPUs that share a layer's experts, inside cp * dp.", examples=[1])
    pp: Ways = Field(description="Pipeline ranks: stage groups that share the layers.", examples=[16])
    dp: Ways = Field(description="Data parallel: replicas that share the batch.", examples=[128])
    vpp: Ways = Field(1, description="Model chunks per pipeline rank.", examples=[1])

    @property
    def num_gpus(self) -> int:
        """GPUs that the plan uses."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def gpus_per_stage_group(self) -> int:
        """GPUs of one pipeline rank of one replica."""
        return self.tp * self.cp

    @property
    def num_stages(self) -> int:
        """Model chunks along the pipeline, all ranks together."""
        return self.pp * self.vpp


class Configuration(Frozen):
    """Everything about a plan that does not say where."""

    degrees: Degrees = Field(description="Parallel degrees.", examples=[{"tp": 8, "pp": 16, "dp": 128}])
    micro_batch_sequences: PositiveCount = Field(description="Sequences per micro-batch and replica.", examples=[1])
    num_microbatches: PositiveCount = Field(description="Micro-batches per replica and iteration.", examples=[16])
    sharding: Sharding = Field(description="What of the model state is split over the replicas.", examples=["zero1"])
    shard_group_replicas: PositiveCount = Field(
        1,
        description="Replicas that share one copy of the sharded state: dp for fsdp; dp for zero1 (one ring) or "
        "fewer, as for hsdp: every group then lies in one place, and the copies meet in an all-reduce.",
        examples=[64],
    )
    recompute: Recompute = Field(description="Activation recomputation.", examples=["none"])
    family: ScheduleFamily = Field(
        "one_way", description="How chunks fold over the pipeline ranks.", examples=["one_way"]
    )
    layer_split: LayerSplit = Field(
        "even",
        description="How layers are shared out: even gives all stages between the ends the same number, give or take "
        "one; by_gpu_type keeps every pipeline rank on one GPU type and gives ranks on faster or roomier types more.",
        examples=["even"],
    )
    layers_per_stage: tuple[LayerCount, ...] = Field(
        min_length=1,
        max_length=4096,
        description="Transformer layers of each stage, in model order.",
        examples=[[8, 8]],
    )

    @model_validator(mode="after")
    def _stages_match(self) -> Self:
        stated, needed = len(self.layers_per_stage), self.degrees.num_stages
        if stated != needed:
            raise ValueError(f"layers_per_stage has {stated} entries for {needed} stages")
        return self

    @property
    def num_state_copies(self) -> int:
        """Copies of the sharded state: optimizer instances of zero1, replicas of shards of hsdp."""
        return self.degrees.dp // self.shard_group_replicas if self.sharding in ("zero1", "hsdp") else 1

    @property
    def replicas_sharing_place(self) -> int:
        """Consecutive replicas that have to be in one place because they shard their state among themselves."""
        return self.shard_group_replicas if self.num_state_copies > 1 else 1

    def rank_of_stage(self, stage: int) -> int:
        """Pipeline rank that holds stage `stage` (model order)."""
        chunk, position = divmod(stage, self.degrees.pp)
        if self.family == "v" and chunk % 2 == 1:
            return self.degrees.pp - 1 - position
        return position

    @property
    def rank_of_stages(self) -> tuple[int, ...]:
        """The pipeline rank of every stage, in model order."""
        return tuple(map(self.rank_of_stage, range(self.degrees.num_stages)))

    def stages_of_rank(self, rank: int) -> list[int]:
        """Stages that pipeline rank `rank` holds, in model order."""
        return [stage for stage in range(self.degrees.num_stages) if self.rank_of_stage(stage) == rank]


class Route(Frozen):
    """Replicas that sit in the same places, stage group by stage group."""

    id: Name = Field(description="Name of the route inside the plan.", examples=["r0"])
    places: tuple[PlaceId, ...] = Field(
        min_length=1,
        max_length=4096,
        description="Place of each pipeline rank, in rank order.",
        examples=[["east-1", "west-1"]],
    )
    pools: tuple[Name, ...] = Field(
        min_length=1, max_length=4096, description="Pool of each pipeline rank, in rank order.", examples=[["p1", "p2"]]
    )
    num_replicas: PositiveCount = Field(description="Replicas on this route.", examples=[64])
    first_replica: Count = Field(description="Index of its first replica; the others follow.", examples=[0])


class RankRange(Frozen):
    """Consecutive global ranks that live in one pool, in hosts order."""

    first_rank: Count = Field(description="First global rank.", examples=[0])
    num_ranks: PositiveCount = Field(description="Ranks in the range.", examples=[512])
    pipeline_rank: Count = Field(description="Pipeline rank they hold.", examples=[0])
    route: Name = Field(description="Route they belong to.", examples=["r0"])
    pool: Name = Field(description="Pool they run in.", examples=["p1"])
    first_gpu: Count = Field(description="Offset of the first GPU among the pool's free GPUs.", examples=[0])
    hosts: tuple[Name, ...] = Field((), description="Host names, when the pool gives them.", examples=[["node-0001"]])


class Placement(Frozen):
    """Where every GPU group runs. Global rank = ((pipeline_rank * dp + replica) * cp + c) * tp + t."""

    routes: tuple[Route, ...] = Field(min_length=1, description="Routes with counts.", examples=[[{"id": "r0"}]])
    rank_map: tuple[RankRange, ...] = Field(
        min_length=1, description="Global ranks as ranges.", examples=[[{"first_rank": 0}]]
    )
    crossing: Crossing = Field(description="Which dimension crosses buildings.", examples=["dp_out"])


class OtherSharing(Frozen):
    """The other way of sharing links, under the same order: time slots where replicas send all at once, or reversed.

    All at once every message has its replica's part of a link; in its time slot the whole, and replicas run shifted.
    """

    hops: tuple[PipelineHop, ...] = Field(max_length=4096, description="Delays of the other way.", examples=[[{}]])
    stagger_s: Seconds = Field(description="How much later its last replicas would run everything.", examples=[0.0])
    end_s: Seconds = Field(description="When the route would end, shift included.", examples=[6.4])


class RouteTimeline(Frozen):
    """The timing of the first replicas of a route; all its replicas run the same, at once or one after another."""

    route: Name = Field(description="Route it belongs to.", examples=["r0"])
    problem: PipelineProblem = Field(description="Stage times, budgets and hops that were scheduled.", examples=[{}])
    schedule: PipelineSchedule = Field(description="Operations and transfers with start and end.", examples=[{}])
    stagger_s: Seconds = Field(
        0.0,
        description="How much later than the schedule says its last replicas run everything: they have time slots.",
        examples=[0.0],
    )
    other_sharing: OtherSharing | None = Field(
        None, description="The way of sharing links that was not taken; null where there is none.", examples=[None]
    )

    @property
    def end_s(self) -> float:
        """When the last operation of the last replica ends; 0 without operations."""
        return max((max(rank.end_s) for rank in self.schedule.ranks if rank.end_s), default=0.0) + self.stagger_s


class StageExchange(Frozen):
    """Gradient reduction and parameter gathering of one stage over all replicas, once per iteration.

    It becomes ready when the last weight gradient of the stage ends on the slowest route, less what overlaps with that
    backward. Exchanges of one pipeline rank take the network cards of its GPUs one after another, each of them for
    max(private_s, shared_s); those of several ranks are on the links between places at once as far as these carry them,
    each with constant rates for shared_s.
    """

    stage: Count = Field(description="Stage, in model order.", examples=[0])
    last_weight_grad_end_s: TotalSeconds = Field(description="End of its last W over all routes.", examples=[6.20])
    overlap_s: TotalSeconds = Field(
        description="Head start: the part that runs beside the last backward.", examples=[0.05]
    )
    start_s: TotalSeconds = Field(description="When it begins.", examples=[6.15])
    private_s: TotalSeconds = Field(description="Time inside places, on the GPUs' own network cards.", examples=[0.08])
    shared_s: TotalSeconds = Field(
        description="Time on links between places, taken alone; 0 if it leaves none. Not the `expected_s` of its "
        "transport, which is the whole operation of the largest stage, parts inside places included.",
        examples=[0.06],
    )
    end_s: TotalSeconds = Field(
        description="max(last_weight_grad_end_s, start_s + max(private_s, shared_s) + min(private_s, shared_s) / "
        "num_exchange_chunks): chunks are pipelined over both.",
        examples=[6.24],
    )


class Proof(Frozen):
    """How good the plan is known to be."""

    lower_bound_s: Seconds = Field(
        description="Least iteration time of any plan, or what `proven` says instead.", examples=[6.3]
    )
    relative_gap: Ratio = Field(description="Of what is minimised: (value - bound) / value.", examples=[0.02])
    status: Literal["optimal", "feasible"] = Field(
        description="optimal only within the gap asked for.", examples=["feasible"]
    )
    speed_of_light_s: Seconds = Field(description="Model-independent bound: FLOPs over peak.", examples=[3.1])
    num_configurations: Count = Field(description="Configurations that exist for this request.", examples=[2310])
    num_pruned: Count = Field(description="Discarded because their bound is no better than the plan.", examples=[2290])
    num_explored: Count = Field(description="Tried to the end; 0: the plan's own had places left.", examples=[20])
    proven: str = Field(max_length=800, description="What the bound covers.", examples=["All configurations: yes."])


class Baseline(Frozen):
    """Another way of planning the same job under the same evaluator."""

    name: Name = Field(description="Which rule.", examples=["nemo-like"])
    assumptions: str = Field(max_length=800, description="What was assumed of it.", examples=["DP-out, hierarchical"])
    iteration_s: Seconds | None = Field(
        None, description="Its iteration time; null if it has no feasible plan.", examples=[7.1]
    )
    speed_up: Ratio | None = Field(None, description="Its time over ours.", examples=[1.1])
    reason: str = Field("", max_length=400, description="Why it has no plan, if so.", examples=[""])
    configuration: Configuration | None = Field(
        None, description="Its best configuration, so that anyone can time it again.", examples=[None]
    )
    routes: tuple[Route, ...] = Field((), description="Where its replicas are.", examples=[[]])


class Alternative(Frozen):
    """Another plan that was timed: the best of its kind, where kinds differ in degrees, crossing or schedule."""

    degrees: Degrees = Field(description="Its parallel degrees.", examples=[{"tp": 8, "pp": 8, "dp": 256}])
    sharding: Sharding = Field(description="Its sharding.", examples=["zero1"])
    recompute: Recompute = Field(description="Its activation recomputation.", examples=["none"])
    family: ScheduleFamily = Field(description="How its chunks fold over the ranks.", examples=["one_way"])
    layer_split: LayerSplit = Field("even", description="How its layers are shared out.", examples=["even"])
    crossing: Crossing = Field(description="Which dimension crosses buildings in it.", examples=["pp_out"])
    iteration_s: Seconds = Field(description="Its iteration time.", examples=[6.71])
    slower_by: Relative = Field(description="Its objective over the plan's, less 1.", examples=[0.04])
    slower_probability: Fraction | None = Field(
        None,
        description="Probability that it takes more time than the plan when both are measured: errors that they share "
        "cancel.",
        examples=[0.93],
    )
    why_second: str = Field(
        max_length=400,
        description="What costs it the difference, largest part first.",
        examples=["bubble +0.21 s, data parallel +0.05 s"],
    )
    configuration: Configuration | None = Field(
        None, description="All of its configuration, so that anyone can time it again.", examples=[None]
    )
    routes: tuple[Route, ...] = Field((), description="Where its replicas are.", examples=[[]])


class FrameworkPlan(Frozen):
    """The best that the search found for a framework, timed as that framework runs it."""

    iteration_s: Seconds = Field(description="Its iteration time.", examples=[6.71])
    configuration: Configuration = Field(description="Its configuration.", examples=[{}])
    routes: tuple[Route, ...] = Field(min_length=1, description="Where its replicas are.", examples=[[{}]])


class RunnableBy(Frozen):
    """Whether a training framework can be told to run the plan, and what it makes of it."""

    framework: Name = Field(description="Name of the framework's profile.", examples=["megatron-core"])
    runs: bool = Field(description="It can run this configuration in these places.", examples=[True])
    as_planned: bool = Field(description="It also has the plan's schedules, backward and sends.", examples=[False])
    reasons: tuple[Annotated[str, Field(max_length=400)], ...] = Field(
        (), max_length=20, description="Why it cannot, or what it does otherwise.", examples=[["it folds no V"]]
    )
    iteration_s: Seconds | None = Field(
        None,
        description="Iteration time as it would run the plan, with its own schedules and sends; null where it cannot, "
        "or where that was not timed.",
        examples=[6.9],
    )
    best: FrameworkPlan | None = Field(
        None,
        description="The fastest of the plan and of what the search kept, as it would run them, with its own sharding "
        "and fold in the same places where it has to; null where it runs none of these, or none was timed.",
        examples=[None],
    )


class Metrics(Frozen):
    """Headline figures."""

    iteration_s: Seconds = Field(description="From the first forward to the last optimizer step.", examples=[6.45])
    shared_replay_s: Seconds | None = Field(
        None,
        description="Iteration time when every link is shared max-min fairly, not by reserved shares; never above "
        "iteration_s. Null where nobody replayed it.",
        examples=[6.41],
    )
    tokens_per_s: TokensPerSecond = Field(description="Tokens per second, whole job.", examples=[2.6e6])
    tokens_per_s_per_gpu: TokensPerSecond = Field(description="Tokens per second and GPU.", examples=[158.0])
    model_flops_utilisation: Ratio = Field(description="Model FLOPs over peak.", examples=[0.41])
    num_gpus: PositiveCount = Field(description="GPUs used.", examples=[16384])
    usd_per_million_tokens: Usd | None = Field(
        None, description="GPU-hours and egress; null without prices.", examples=[0.9]
    )
    cross_building_bytes: Bytes = Field(
        description="Bytes over links between buildings, per iteration.", examples=[1.1e12]
    )


class Plan(Frozen):
    """A complete, judged answer."""

    configuration: Configuration = Field(description="Degrees, sharding, micro-batches, layers.", examples=[{}])
    placement: Placement = Field(description="Where.", examples=[{}])
    timelines: tuple[RouteTimeline, ...] = Field(min_length=1, description="When, per route.", examples=[[{}]])
    exchanges: tuple[StageExchange, ...] = Field((), description="Gradient exchange of each stage.", examples=[[{}]])
    transport: tuple[TransportChoice, ...] = Field(description="How, per communicator and tier.", examples=[[{}]])
    message_splits: tuple[MessageSplit, ...] = Field(
        (),
        description="Ways on which stage messages are split over paths; on others they take that of least latency.",
        examples=[[]],
    )
    message_transports: tuple[MessageTransport, ...] = Field(
        (), description="How stage messages travel between pools in different places.", examples=[[]]
    )
    exchange_rings: tuple[ExchangeRing, ...] = Field(
        (), description="Rings of places that gradients travel.", examples=[[]]
    )
    transport_policy: TransportPolicy = Field(TransportPolicy(), description="How links are shared.", examples=[{}])
    link_loads: tuple[LinkLoad, ...] = Field(description="What every used link carries.", examples=[[]])
    memory: tuple[MemoryUse, ...] = Field(min_length=1, description="Peak memory per pipeline rank.", examples=[[{}]])
    time: TimeBreakdown = Field(description="Iteration time by cause.", examples=[{}])
    metrics: Metrics = Field(description="Headline figures.", examples=[{}])
    prediction: Prediction | None = Field(None, description="Error bars and the runs behind them.", examples=[None])
    proof: Proof = Field(description="Bound and gap.", examples=[{}])
    baselines: tuple[Baseline, ...] = Field((), description="Other rules under the same evaluator.", examples=[[]])
    alternatives: tuple[Alternative, ...] = Field(
        (), max_length=20, description="The next best plans that really differ, best first.", examples=[[]]
    )
    runnable_by: tuple[RunnableBy, ...] = Field(
        (),
        max_length=100,
        description="What every known framework makes of the plan; empty until the end.",
        examples=[[]],
    )
    convergence: tuple[ConvergencePoint, ...] = Field(
        (), max_length=1000, description="Incumbent and bound over the search.", examples=[[{"elapsed_s": 2.5}]]
    )
    one_building_s: Seconds | None = Field(
        None,
        description="Iteration time of the same configuration with all its GPUs in one building: what distance costs "
        "is the difference. Null where it was not determined; then `notes` says why.",
        examples=[6.31],
    )
    notes: tuple[Annotated[str, Field(max_length=400)], ...] = Field(
        (),
        description="What the search says of its own answer: limits of the request that a faster plan would break, and "
        "figures that were not determined.",
        examples=[["one_building_s is not determined: no time was left to time the configuration in one building"]],
    )
    assumptions: tuple[Assumption, ...] = Field((), description="What the numbers rest on.", examples=[[]])
    warnings: tuple[DiagnosticOrText, ...] = Field(
        (),
        description="What a person should know before running it: warnings and notes of the linter on the request, "
        "pools left unused, links whose switch buffers their distance outgrows.",
        examples=[[{"rule": "latency-unit", "severity": "warning", "detail": "2 s is 408,000 km of fibre"}]],
    )
    verdict: Verdict = Field(description="What the judge says.", examples=[{}])
    stack_profile: Name = Field(description="Software-stack profile of the cost model.", examples=["megatron-2024"])

    @property
    def gpus_of_pool(self) -> Counter[str]:
        """GPUs in use by pool, in the order of the rank map."""
        used = Counter[str]()
        for part in self.placement.rank_map:
            used[part.pool] += part.num_ranks
        return used
