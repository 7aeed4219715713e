"""What a training framework can run, and how its runtime runs it: everything else is switched off in the search.

A profile says what the framework has, when a stage waits for its messages, and how backward and batch are divided.
Constants of the cost model are those of the stack profile. Degrees are not limited: every framework here takes any that
divide, and gives every replica the same number of micro-batches of the same size, as plans do. Where the state has
several copies, every framework shares experts inside one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated

from pydantic import BeforeValidator, Field

from models.base import Frozen, Name
from models.catalogue import named_entry
from models.plan import Configuration, ScheduleFamily, Sharding
from models.schedule import Sends
from models.workload import Architecture


class FrameworkProfile(Frozen):
    """The part of the search space that a framework runs."""

    name: Name = Field(description="Name of the framework.", examples=["megatron-core"])
    families: tuple[ScheduleFamily, ...] = Field(
        ("one_way", "loop", "v"), min_length=1, description="How chunks may fold over ranks.", examples=[["one_way"]]
    )
    sharding: tuple[Sharding, ...] = Field(
        ("ddp", "zero1", "fsdp", "hsdp"),
        min_length=1,
        description="Ways of splitting the model state over replicas.",
        examples=[["ddp", "zero1"]],
    )
    schedules: tuple[Name, ...] | None = Field(
        None,
        min_length=1,
        description="Named schedules that it has; null means that it runs any order it is given.",
        examples=[["one_f_one_b", "interleaved"]],
    )
    fused_backward: bool = Field(
        False, description="Input and weight gradients of a stage are one operation.", examples=[True]
    )
    blocking_sends: tuple[ScheduleFamily, ...] = Field(
        (),
        description="Ways of folding chunks with which a stage waits until what it has sent has landed before it runs "
        "its next forward or backward; with the others sends are asynchronous.",
        examples=[["one_way"]],
    )
    microbatch_per_rank: bool = Field(
        False,
        description="Several chunks per rank run only with at least as many micro-batches as pipeline ranks.",
        examples=[True],
    )
    optimizer_copies: bool = Field(
        True,
        description="zero1 can keep a copy of the optimizer state in every group of replicas, not only one over all.",
        examples=[True],
    )
    tied_pipeline: bool = Field(
        True, description="Embeddings may be tied over several pipeline ranks.", examples=[True]
    )
    repeated_kv_heads: bool = Field(
        True, description="tp may exceed the key/value heads, which are then repeated.", examples=[True]
    )
    context_parallel: bool = Field(True, description="It has context parallelism.", examples=[True])
    unequal_layers: bool = Field(
        True,
        description="Every stage may have its own number of layers; without it they are split evenly.",
        examples=[True],
    )
    source: str = Field("", max_length=800, description="Where this can be looked up.", examples=["its documentation"])

    def sends(self, family: ScheduleFamily) -> Sends:
        """How stages send where chunks fold in this way."""
        return "blocking" if family in self.blocking_sends else "asynchronous"

    def lacks(self, used: Configuration, architecture: Architecture) -> Iterator[tuple[str, str]]:
        """What of a configuration of a model the framework cannot be told to run: the field and why."""
        for name, value, values in (("sharding", used.sharding, self.sharding), ("family", used.family, self.families)):
            if value not in values:
                yield name, f"{self.name} has {', '.join(values)}, not {value}"
        if used.sharding == "zero1" and used.num_state_copies > 1 and not self.optimizer_copies:
            yield "shard_group_replicas", f"{self.name} shards the optimizer state over all replicas"
        degrees, count = used.degrees, used.num_microbatches
        sharing = used.shard_group_replicas * degrees.cp
        if used.num_state_copies > 1 and sharing % degrees.ep:
            detail = f"{self.name} shares experts inside a copy of the state, over {sharing} ranks, not {degrees.ep}"
            yield "shard_group_replicas", detail
        if degrees.pp > 1 and not self.has_pipelines(architecture):
            yield "pp", f"{self.name} ties embeddings on one rank, not over a pipeline of {degrees.pp}"
        heads = architecture.attention.num_kv_heads
        if not self.repeated_kv_heads and heads % degrees.tp:
            yield "tp", f"{self.name} does not repeat heads, {heads} key/value heads over tp {degrees.tp}"
        if degrees.cp > 1 and not self.context_parallel:
            yield "cp", f"{self.name} has no context parallelism, cp is {degrees.cp}"
        if used.layer_split != "even" and not self.unequal_layers:
            yield "layer_split", f"{self.name} splits layers evenly, not {used.layer_split}"
        if not self.has_microbatches(num_microbatches=count, pp=degrees.pp, vpp=degrees.vpp):
            detail = f"{self.name} runs several chunks on {degrees.pp} ranks with as many micro-batches, not {count}"
            yield "num_microbatches", detail

    def has_pipelines(self, architecture: Architecture) -> bool:
        """Whether a model may have several pipeline ranks."""
        return self.tied_pipeline or not architecture.tied_embeddings

    def has_microbatches(self, *, num_microbatches: int, pp: int, vpp: int) -> bool:
        """Whether its schedules run with so many micro-batches."""
        return not self.microbatch_per_rank or vpp == 1 or num_microbatches >= pp


@cache
def packaged_framework(name: str) -> FrameworkProfile:
    """What the catalogue says of a framework."""
    return FrameworkProfile.model_validate(named_entry("frameworks", name))


FrameworkOrName = Annotated[
    FrameworkProfile,
    BeforeValidator(lambda value: named_entry("frameworks", value), json_schema_input_type=FrameworkProfile | str),
]
