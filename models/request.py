"""A planning request: the job, the cluster, what is fixed, what is wanted and how long to look."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from models.base import Bytes, Count, Fraction, Frozen, Name, PositiveCount, Seconds, TimeLimit
from models.catalogue import named_entry
from models.cluster import Cluster, PlaceId, names_of
from models.framework import FrameworkOrName
from models.plan import Configuration, LayerSplit, ScheduleFamily, Sharding
from models.stack import StackProfile
from models.workload import Recompute, Workload

Allowed = Annotated[tuple[PositiveCount, ...], Field(min_length=1, max_length=64)]


class AllowedDegrees(Frozen):
    """Values that the search may take; null leaves a dimension to the search, one value fixes it."""

    tp: Allowed | None = Field(None, description="Tensor-parallel degrees.", examples=[[8]])
    cp: Allowed | None = Field(None, description="Context-parallel degrees.", examples=[[1, 2]])
    ep: Allowed | None = Field(None, description="Expert-parallel degrees.", examples=[[8, 64]])
    pp: Allowed | None = Field(None, description="Pipeline degrees.", examples=[[8, 16]])
    dp: Allowed | None = Field(None, description="Numbers of replicas.", examples=[[128]])
    vpp: Allowed | None = Field(None, description="Model chunks per pipeline rank.", examples=[[1]])
    micro_batch_sequences: Allowed | None = Field(None, description="Sequences per micro-batch.", examples=[[1, 2]])
    sharding: tuple[Sharding, ...] | None = Field(
        None, min_length=1, max_length=4, description="Sharding of the model state.", examples=[["zero1", "hsdp"]]
    )
    recompute: tuple[Recompute, ...] | None = Field(
        None, min_length=1, max_length=3, description="Activation recomputation.", examples=[["none", "full"]]
    )
    family: tuple[ScheduleFamily, ...] | None = Field(
        None, min_length=1, max_length=3, description="How chunks fold over pipeline ranks.", examples=[["one_way"]]
    )
    layer_split: tuple[LayerSplit, ...] | None = Field(
        None, min_length=1, max_length=2, description="How layers are shared out over stages.", examples=[["even"]]
    )


def choices_of(configuration: Configuration) -> dict[str, Any]:
    """What a configuration takes of everything that `AllowedDegrees` may restrict."""
    values = {**dict(configuration.degrees), **dict(configuration)}
    return {name: values[name] for name in AllowedDegrees.model_fields}


class Pin(Frozen):
    """Pipeline ranks that must be in a place, for all replicas or for some."""

    first_pipeline_rank: Count = Field(description="First pinned pipeline rank.", examples=[0])
    last_pipeline_rank: Count = Field(description="Last pinned pipeline rank.", examples=[3])
    place: PlaceId = Field(description="Place (or any place inside it) they must be in.", examples=["east-1"])
    num_replicas: PositiveCount | None = Field(
        None, description="At least so many replicas obey; null means all.", examples=[64]
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.last_pipeline_rank < self.first_pipeline_rank:
            raise ValueError(
                f"last_pipeline_rank {self.last_pipeline_rank} is below first_pipeline_rank {self.first_pipeline_rank}"
            )
        return self


class Constraints(Frozen):
    """What a plan must obey."""

    allowed: AllowedDegrees = Field(
        default_factory=AllowedDegrees, description="Fixed or allowed degrees.", examples=[{"tp": [8]}]
    )
    framework: FrameworkOrName | None = Field(
        None,
        description="What the framework can run, or the name of a catalogue profile; the rest is switched off.",
        examples=["megatron-core"],
    )
    pins: tuple[Pin, ...] = Field(
        (),
        max_length=1000,
        description="Stage groups that must sit in a place.",
        examples=[[{"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "east-1"}]],
    )
    forbidden_places: tuple[PlaceId, ...] = Field(
        (), max_length=10_000, description="Places (with all inside) that must stay empty.", examples=[["west-1"]]
    )
    max_gpus: PositiveCount | None = Field(None, description="At most so many GPUs; null means all.", examples=[8192])
    use_all_gpus: bool = Field(
        False, description="Only configurations that leave fewer than one replica's GPUs idle.", examples=[False]
    )
    memory_headroom_fraction: Annotated[float, Field(ge=0, lt=0.9, json_schema_extra={"unit": "1"})] = Field(
        0.06,
        description="Part of HBM that stays free. The default fits with at least 90 % probability, as peak memory is "
        "predicted to 4.5 %.",
        examples=[0.06],
    )
    max_cross_building_bytes_per_iteration: Bytes | None = Field(
        None, description="Limit on the traffic between buildings; null means none.", examples=[1e12]
    )
    pipeline_may_cross_buildings: bool = Field(True, description="Allow a replica to span buildings.", examples=[True])
    data_parallel_may_cross_buildings: bool = Field(
        True, description="Allow replicas of one stage in different buildings.", examples=[True]
    )


class Objective(Frozen):
    """What is to be least."""

    kind: Literal[
        "iteration_time", "time_at_confidence", "cost_per_token", "fewest_gpus", "least_cross_building_traffic"
    ] = Field(
        "iteration_time",
        description="The quantity to minimise; time_at_confidence is the iteration time that a measurement stays below "
        "with probability `confidence`, least_cross_building_traffic is bytes between buildings per iteration.",
        examples=["iteration_time"],
    )
    confidence: Annotated[float, Field(ge=0.5, le=0.99, json_schema_extra={"unit": "1"})] = Field(
        0.9, description="Probability that counts for time_at_confidence.", examples=[0.9]
    )
    target_iteration_s: Seconds | None = Field(
        None,
        description="Iteration time to reach; needed by fewest_gpus and least_cross_building_traffic, a limit to "
        "cost_per_token, of no meaning to iteration_time.",
        examples=[12.0],
    )

    @model_validator(mode="after")
    def _target_given(self) -> Self:
        if self.kind in ("fewest_gpus", "least_cross_building_traffic") and not self.target_iteration_s:
            raise ValueError(f"{self.kind} needs a target: set target_iteration_s to the iteration time to reach")
        return self


class Options(Frozen):
    """How to search. Nothing here changes what a good plan is."""

    time_limit_s: TimeLimit = Field(
        30.0, description="Wall-clock time to search; the best plan found is returned.", examples=[30.0]
    )
    relative_gap: Fraction = Field(
        0.01, description="Stop when (time - bound) / time is at most this.", examples=[0.01]
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(0, description="Seed of every random choice.", examples=[0])
    workers: Annotated[int, Field(ge=1, le=256)] = Field(
        2,
        description="Cores to use at most: processes that share the search, or else threads of the solvers.",
        examples=[2],
    )
    reproducible: bool = Field(
        False,
        description="One worker and deterministic limits: the same request gives the same plan.",
        examples=[False],
    )
    stack_profile: StackProfile | Name = Field(
        "auto",
        description="Software-stack profile of the cost model: a name of the catalogue, the id of a calibration, or a "
        "whole profile; auto takes the newest, whatever the GPUs.",
        examples=["megatron-2024"],
    )


ClusterOrName = Annotated[
    Cluster, BeforeValidator(lambda value: named_entry("clusters", value), json_schema_input_type=Cluster | str)
]


class PlanRequest(Frozen):
    """Everything a plan depends on."""

    workload: Workload = Field(
        description="The training job.",
        examples=[{"architecture": "llama-3.1-405b", "sequence_length": 8192, "global_batch_sequences": 2048}],
    )
    cluster: ClusterOrName = Field(
        description="The hardware, or the name of a catalogue cluster.", examples=["two-buildings"]
    )
    constraints: Constraints = Field(
        default_factory=Constraints, description="What a plan must obey.", examples=[{"max_gpus": 16384}]
    )
    objective: Objective = Field(
        default_factory=Objective, description="What is to be least.", examples=[{"kind": "iteration_time"}]
    )
    options: Options = Field(default_factory=Options, description="How to search.", examples=[{"time_limit_s": 30}])

    def with_constraints(self, **changes: object) -> Self:
        """The request with some constraints changed, which nothing checks again."""
        return self.model_copy(update={"constraints": self.constraints.model_copy(update=changes)})

    def with_options(self, **changes: object) -> Self:
        """The request with some options changed, which nothing checks again."""
        return self.model_copy(update={"options": self.options.model_copy(update=changes)})

    def with_cluster(self, **changes: object) -> Self:
        """The request with parts of its cluster changed, which nothing checks again."""
        return self.model_copy(update={"cluster": self.cluster.model_copy(update=changes)})

    @model_validator(mode="after")
    def _places_exist(self) -> Self:
        known = {place.id for place in self.cluster.places}
        named = [(f"pins[{index}].place", pin.place) for index, pin in enumerate(self.constraints.pins)]
        named += [(f"forbidden_places[{index}]", one) for index, one in enumerate(self.constraints.forbidden_places)]
        for where, place in named:
            if place not in known:
                raise ValueError(
                    f"constraints.{where} {place!r} is not a place of cluster {self.cluster.name!r}: "
                    f"use one of {names_of(known)}"
                )
        return self
