"""What a training framework can run, and how its runtime runs it: everything else is switched off in the search.

A profile says what the framework has, when a stage waits for its messages, and how backward and batch are divided.
Constants of the cost model are those of the stack profile. Degrees are not limited: every framework here takes any that
divide, and gives every replica the same number of micro-batches of the same size, as plans do. Where the state has
several copies, every framework shares experts inside one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import lcm
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from models.base import Frozen, Name
from models.catalogue import named_entry
from models.definition import ModelDefinition
from models.plan import Configuration, ScheduleFamily, Sharding
from models.schedule import Sends
from models.workload import Architecture, OptimizerName, Workload

FLEX_BLOCK = 128  # tokens; _DEFAULT_SPARSE_BLOCK_SIZE of torch.nn.attention.flex_attention, by which cp splits


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
    even_widths: bool = Field(
        False,
        description="tp has to divide the width of every feed-forward block, and experts that add biases are not split "
        "over it.",
        examples=[True],
    )
    token_split: Literal["any", "sequences", "micro_batches"] = Field(
        "any",
        description="What is split evenly over tp and cp: sequences, over tp x cp ranks and in 2 cp halves; or the "
        "tokens of micro-batches, over 2 tp x cp and in blocks of 128 over cp; without cp, over tp.",
        examples=["sequences"],
    )
    sharded_optimizers: tuple[OptimizerName, ...] | None = Field(
        None,
        min_length=1,
        description="Optimizers whose state it splits over replicas; null means any.",
        examples=[["adam", "muon"]],
    )
    builds: Literal["any", "megatron"] = Field(
        "any",
        description="Jobs that it has; megatron: no shared experts with biases, groups of experts of equal size that "
        "hold as many as a token takes of each, Muon not in fp16, and heads shared out evenly over tp x cp ranks where "
        "attention has sinks.",
        examples=["megatron"],
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

    def lacks(self, used: Configuration, workload: Workload) -> Iterator[tuple[str, str]]:
        """What of a configuration of a job the framework cannot be told to run: the field and why."""
        for name, value, values in (("sharding", used.sharding, self.sharding), ("family", used.family, self.families)):
            if value not in values:
                yield name, f"{self.name} has {', '.join(values)}, not {value}"
        yield from self.job_limits(workload)
        yield from self._lacks_state(used, workload.optimizer.name)
        degrees, count = used.degrees, used.num_microbatches
        if degrees.pp > 1 and not self.has_pipelines(workload.architecture):
            yield "pp", f"{self.name} ties embeddings on one rank, not over a pipeline of {degrees.pp}"
        yield from (("tp", detail) for detail in self.tensor_limits(workload.architecture, degrees.tp))
        size = used.micro_batch_sequences
        if detail := self.token_limit(workload, tp=degrees.tp, cp=degrees.cp, micro_batch_sequences=size):
            yield "degrees", detail
        if degrees.cp > 1 and not self.context_parallel:
            yield "cp", f"{self.name} has no context parallelism, cp is {degrees.cp}"
        if used.layer_split != "even" and not self.unequal_layers:
            yield "layer_split", f"{self.name} splits layers evenly, not {used.layer_split}"
        if not self.has_microbatches(num_microbatches=count, pp=degrees.pp, vpp=degrees.vpp):
            detail = f"{self.name} runs several chunks on {degrees.pp} ranks with as many micro-batches, not {count}"
            yield "num_microbatches", detail

    def _lacks_state(self, used: Configuration, optimizer: OptimizerName) -> Iterator[tuple[str, str]]:
        """What of the copies of the optimizer state, and of experts beside them, it cannot be told."""
        copies, degrees = used.num_state_copies, used.degrees
        if used.sharding != "ddp" and not self.shards(optimizer):
            names = ", ".join(self.sharded_optimizers or ())
            yield "optimizer", f"{self.name} shards the state of {names} over replicas, not that of {optimizer}"
        if used.sharding == "zero1" and copies > 1 and not self.has_copies(optimizer):
            detail = f"{optimizer} with {copies} copies of the optimizer state: {self.name} shards it over all replicas"
            yield "shard_group_replicas", detail
        sharing = used.shard_group_replicas * degrees.cp
        if copies > 1 and sharing % degrees.ep:
            detail = f"{self.name} shares experts inside a copy of the state, over {sharing} ranks, not {degrees.ep}"
            yield "shard_group_replicas", detail

    def job_limits(self, workload: Workload) -> Iterator[tuple[str, str]]:
        """What of a job it has in no configuration: the place in the request and why."""
        moe, one = workload.architecture.moe, workload.architecture.definition
        if self.builds == "any":
            return
        if workload.optimizer.name == "muon" and workload.precision == "fp16":
            yield "/workload/precision", f"{self.name} has muon in bf16 and fp32, not in fp16"
        yield from () if one is None else self._definition_limits(workload.architecture, one)
        if moe is None or one is None:
            return
        where, groups, per_token = "/workload/architecture/moe", one.router_groups, one.router_groups_per_token
        if one.linear_bias and moe.num_shared_experts:
            yield f"{where}/num_shared_experts", f"{self.name} has no shared experts with biases"
        if per_token and (moe.num_experts % groups or moe.experts_per_token // per_token > moe.num_experts // groups):
            detail = (
                f"{moe.num_experts} experts in {groups} groups, {per_token} of them for the {moe.experts_per_token}"
            )
            yield f"{where}/num_experts", f"{self.name} has groups of equal size that hold as many: {detail} of a token"

    def _definition_limits(self, architecture: Architecture, one: ModelDefinition) -> Iterator[tuple[str, str]]:
        """Parts of a model that Megatron-Core refuses together. Source: TransformerConfig, gpt_layer_specs, experts."""
        where, moe = "/workload/architecture/definition", architecture.moe
        if one.gate_offset and one.activation != "quick_gelu":
            yield f"{where}/gate_offset", f"{self.name} adds an offset to gates of quick_gelu, not of {one.activation}"
        if one.activation_limit is not None and moe is None and one.activation == "silu":
            yield f"{where}/activation_limit", f"{self.name} cuts off what goes into SiLU in experts only"
        if one.qk_l2_norm and architecture.attention.kind == "mla":
            yield f"{where}/qk_l2_norm", f"{self.name} has no such norm in latent attention"
        if one.router_scales_input and moe is not None and moe.experts_per_token > 1:
            detail = f"{self.name} weighs what goes into experts where a token has one, not {moe.experts_per_token}"
            yield f"{where}/router_scales_input", detail

    def shards(self, optimizer: OptimizerName) -> bool:
        """Whether it splits the state of this optimizer over replicas."""
        return self.sharded_optimizers is None or optimizer in self.sharded_optimizers

    def has_copies(self, optimizer: OptimizerName) -> bool:
        """Whether zero1 can keep several copies of its state; Muon's is shared out by whole matrices, once."""
        return self.optimizer_copies and optimizer != "muon"

    def tensor_limits(self, architecture: Architecture, tp: int) -> Iterator[str]:
        """Why it does not split a model over so many tensor-parallel ranks."""
        heads = architecture.attention.num_kv_heads
        if not self.repeated_kv_heads and heads % tp:
            yield f"{self.name} does not repeat heads, {heads} key/value heads over tp {tp}"
        if self.even_widths:
            uneven = sorted({width for width in architecture.feed_forward_widths() if width % tp})
            yield from (f"{self.name} splits feed-forward blocks evenly, {width} wide over tp {tp}" for width in uneven)
            one = architecture.definition
            if tp > 1 and architecture.moe is not None and one is not None and one.linear_bias:
                yield f"{self.name} has biases on whole experts only, tp is {tp}"

    def token_limit(self, workload: Workload, *, tp: int, cp: int, micro_batch_sequences: int) -> str:
        """Why it does not split sequences, or the tokens of micro-batches, over so many ranks; empty where it does."""
        if detail := self._head_limit(workload.architecture, tp, cp):
            return detail
        tokens, what, parts = workload.sequence_length, "sequences", lcm(tp * cp, 2 * cp if cp > 1 else 1)
        if self.token_split == "micro_batches":
            tokens, what = tokens * micro_batch_sequences, "micro-batches"
            parts = lcm(2 * tp * cp, FLEX_BLOCK * cp) if cp > 1 else tp
        if self.token_split == "any" or tokens % parts == 0:
            return ""
        return (
            f"{what} of {tokens} tokens over {tp} tensor-parallel and {cp} context-parallel ranks: {self.name} splits "
            f"them evenly, {parts} has to divide them"
        )

    def _head_limit(self, architecture: Architecture, tp: int, cp: int) -> str:
        """Why so many context-parallel ranks cannot share out the heads, which learned sinks make them do.

        Source: AttnFuncWithCPAndQKVOA2A in context_parallel.py of Transformer Engine.
        """
        one, heads = architecture.definition, architecture.attention.num_kv_heads
        if self.builds == "any" or cp == 1 or one is None or not one.attention_sinks or heads % (tp * cp) == 0:
            return ""
        return f"{self.name} shares out the heads of attention with sinks, {heads} over tp {tp} and cp {cp}"

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
