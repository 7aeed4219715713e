"""A pipeline problem as flat numpy columns, and an operation order as integer lists.

The numbering: operation id = (kind * stages + stage) * micro-batches + micro-batch with kind 0 F, 1 B or BW, 2 W;
a message has the id of the operation that produces it, the gradient exchange of a stage comes after all operations;
channel = 2 * link + direction (0 up, towards the higher rank; 1 down).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt

from models.schedule import OperationKind, PipelineProblem

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
NO_CHANNEL = -1
KNOWN_SHAPES = 64  # of which what all orders need is kept: a search makes many orders of few shapes; set by hand


@dataclass(frozen=True, eq=False)
class PipelineShape:
    """Columns by stage (s), by kind and stage (ks), by rank (r). Column `hop` of stage s is the way from s to s + 1.

    `latency_s` counts from when the link is free again, so it is below zero where replicas send in time slots.
    With `blocking` a rank whose message is on its way starts nothing but W.
    """

    num_microbatches: int
    num_stages: int
    num_ranks: int
    num_kinds: int
    rank_of_s: Ints
    duration_ks: Floats
    latency_s: Floats
    transfer_s: Floats
    activation_channel_s: Ints
    gradient_channel_s: Ints
    activation_s: Floats
    context_s: Floats
    budget_r: Floats
    sync_s: Floats
    sync_link_s: Ints
    link_names: tuple[str, ...]
    blocking: bool = False

    @classmethod
    def without_links(
        cls,
        num_microbatches: int,
        rank_of_s: Ints,
        duration_ks: Floats,
        latency_s: Floats,
        sync_s: Floats,
        *,
        activation_s: Floats,
        context_s: Floats,
        budget_r: Floats,
    ) -> PipelineShape:
        """A pipeline whose messages have a latency alone, and whose exchanges share nothing (seconds and bytes)."""
        num_kinds, num_stages = duration_ks.shape
        none = np.full(num_stages, NO_CHANNEL, dtype=np.int64)
        return cls(
            num_microbatches=num_microbatches,
            num_stages=num_stages,
            num_ranks=len(budget_r),
            num_kinds=num_kinds,
            rank_of_s=rank_of_s,
            duration_ks=duration_ks,
            latency_s=latency_s,
            transfer_s=np.zeros(num_stages),
            activation_channel_s=none,
            gradient_channel_s=none,
            activation_s=activation_s,
            context_s=context_s,
            budget_r=budget_r,
            sync_s=sync_s,
            sync_link_s=none,
            link_names=(),
        )

    @property
    def num_operations(self) -> int:
        """Compute operations; message ids of gradient exchanges follow."""
        return self.num_kinds * self.num_stages * self.num_microbatches

    @property
    def num_channels(self) -> int:
        """Links times two directions."""
        return 2 * len(self.link_names)

    @property
    def chunk_s(self) -> Ints:
        """How many stages its rank has before each stage."""
        same = self.rank_of_s[:, None] == self.rank_of_s
        before: Ints = np.tril(same, -1).sum(axis=1).astype(np.int64)
        return before

    def messages(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Kind and stage of what sends, stage that receives, hop and channel: of activations and gradients, by hop."""
        channels = zip(self.activation_channel_s.tolist(), self.gradient_channel_s.tolist(), strict=True)
        for hop, (there, back) in enumerate(islice(channels, self.num_stages - 1)):
            yield FORWARD, hop, hop + 1, hop, there
            yield BACKWARD, hop + 1, hop, hop, back

    def operation_id(self, kind: int, stage: int, microbatch: int) -> int:
        """Id of one operation."""
        return (kind * self.num_stages + stage) * self.num_microbatches + microbatch

    def split(self, operation: int) -> tuple[int, int, int]:
        """Kind, stage and micro-batch of an id."""
        rest, microbatch = divmod(operation, self.num_microbatches)
        kind, stage = divmod(rest, self.num_stages)
        return kind, stage, microbatch

    def text(self, operation: int) -> str:
        """Text form of an operation, or `3SYNC` for the gradient exchange of stage 3."""
        if operation >= self.num_operations:
            return f"{operation - self.num_operations}SYNC"
        kind, stage, microbatch = self.split(operation)
        return f"{stage}{self.kind_names[kind]}{microbatch}"

    @property
    def kind_names(self) -> tuple[OperationKind, ...]:
        """F, B, W, or BW where the backward is fused."""
        return ("F", "BW") if self.num_kinds == 2 else ("F", "B", "W")

    def texts(self) -> tuple[str, ...]:
        """Text form of every operation, by id."""
        return _texts(self.kind_names, self.num_stages, self.num_microbatches)

    def numbers(self) -> Mapping[str, int]:
        """Id of every operation, by its text form."""
        return _numbers(self.kind_names, self.num_stages, self.num_microbatches)


@lru_cache(maxsize=8)
def _texts(kinds: tuple[OperationKind, ...], num_stages: int, num_microbatches: int) -> tuple[str, ...]:
    return tuple(
        f"{stage}{kind}{microbatch}"
        for kind in kinds
        for stage in range(num_stages)
        for microbatch in range(num_microbatches)
    )


@lru_cache(maxsize=8)
def _numbers(kinds: tuple[OperationKind, ...], num_stages: int, num_microbatches: int) -> Mapping[str, int]:
    return {text: number for number, text in enumerate(_texts(kinds, num_stages, num_microbatches))}


@dataclass(frozen=True, eq=False)
class PipelineOrder:
    """The decisions of a schedule: operation ids per rank, message ids per channel (planned order)."""

    rank_ops: tuple[Ints, ...]
    channel_ops: tuple[Ints, ...]


def shape_of(problem: PipelineProblem) -> PipelineShape:
    """The columns of a problem."""
    stages, placement = problem.stages, problem.placement
    fused = problem.backward == "fused"
    forward = [stage.forward_s for stage in stages]
    backward = [stage.input_grad_s for stage in stages]
    weight = [stage.weight_grad_s for stage in stages]
    rows = [forward, list(map(sum, zip(backward, weight, strict=True)))] if fused else [forward, backward, weight]
    links = _link_numbers(problem)
    latency, transfer, up, down = _hop_columns(problem, links)
    budgets = [rank.activation_budget_bytes for rank in problem.ranks]
    return PipelineShape(
        num_microbatches=problem.num_microbatches,
        num_stages=len(stages),
        num_ranks=len(problem.ranks),
        num_kinds=len(rows),
        rank_of_s=np.array(placement, dtype=np.int64),
        duration_ks=np.array(rows, dtype=np.float64),
        latency_s=latency,
        transfer_s=transfer,
        activation_channel_s=up,
        gradient_channel_s=down,
        activation_s=np.array([stage.activation_bytes for stage in stages]),
        context_s=np.array([0.0 if fused else stage.weight_grad_context_bytes for stage in stages]),
        budget_r=np.array([np.inf if budget is None else budget for budget in budgets]),
        sync_s=np.array([stage.gradient_sync_s for stage in stages]),
        sync_link_s=np.array(
            [
                links[stage.gradient_sync_link]
                if stage.gradient_sync_link and stage.gradient_sync_s > 0
                else NO_CHANNEL
                for stage in stages
            ],
            dtype=np.int64,
        ),
        link_names=tuple(links),
        blocking=problem.sends == "blocking",
    )


def ragged(lists: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Lists of ids as one flat array with offsets, the form that kernels take."""
    offsets = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in lists], out=offsets[1:])
    flat = np.concatenate(lists).astype(np.int64) if offsets[-1] else np.zeros(0, dtype=np.int64)
    return flat, offsets


def unragged(flat: Ints, offsets: Ints) -> tuple[Ints, ...]:
    """The inverse of `ragged`."""
    return tuple(flat[offsets[i] : offsets[i + 1]].copy() for i in range(len(offsets) - 1))


def _link_numbers(problem: PipelineProblem) -> dict[str, int]:
    names = [hop.link_name for hop in problem.hops]
    names += [stage.gradient_sync_link for stage in problem.stages if stage.gradient_sync_link is not None]
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _hop_columns(problem: PipelineProblem, links: dict[str, int]) -> tuple[Floats, Floats, Ints, Ints]:
    size, placement = len(problem.stages), problem.placement
    latency, transfer = np.zeros(size), np.zeros(size)
    up, down = np.full(size, NO_CHANNEL, dtype=np.int64), np.full(size, NO_CHANNEL, dtype=np.int64)
    for hop in problem.hops:
        sender = hop.from_stage
        latency[sender], transfer[sender] = hop.lag_s, hop.occupancy_s
        if hop.occupancy_s > 0:
            against = int(placement[hop.to_stage] < placement[sender])
            up[sender] = 2 * links[hop.link_name] + against
            down[sender] = 2 * links[hop.link_name] + 1 - against
    return latency, transfer, up, down
