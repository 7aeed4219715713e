"""The list scheduler as a function: columns and a policy in, an order out.

The order in which messages of a given rank order take shared links is planned here too (`with_messages`).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from solver.pipeline.generators.list_scheduler_choice import FILL, GUIDED, LONGEST_TAIL, DispatchState, Policy, tails
from solver.pipeline.generators.list_scheduler_kernel import Record, dispatch
from solver.pipeline.problem import FORWARD, Floats, Ints, PipelineOrder, PipelineShape, ragged, unragged
from solver.pipeline.simulate import channel_streams, durations, occupancies, rank_totals
from solver.pipeline.simulate_kernel import columns_of, replay_kernel

UNLIMITED = np.int64(2**40)
NOTHING_GIVEN: Ints = np.zeros(0, dtype=np.int64)


class ListScheduler:
    """List scheduling of one shape, for many orders: what all share is made once.

    `given` is a fixed order of the ranks, or of their F and B, as `dispatch` takes it; without it policies choose.
    """

    def __init__(self, shape: PipelineShape, given: Ints = NOTHING_GIVEN) -> None:
        # A context larger than its activation would break the budget at the end of B: F reserves the larger of the two.
        shape = replace(shape, activation_s=np.maximum(shape.activation_s, shape.context_s))
        self._shape, self._columns, self._record, self._given = shape, columns_of(shape), _new_record(shape), given
        self._operation_s, self._message_s = durations(shape), occupancies(shape)
        self.state = _new_state(shape, tails(self._columns), reserves_memory=not given.size)

    def run(self, policy: Policy, begin: DispatchState) -> Record | None:
        """Run the policy from `state` or one with other columns; None where the order blocks itself."""
        state = DispatchState._make(column.copy() for column in begin)
        record = Record._make(column.copy() for column in self._record)
        end = dispatch(self._columns, state, record, self._given, policy.in_floats())
        return None if end < 0 else record

    def order(self, guide: Floats, *, strict: bool, wait: float) -> Record | None:
        """What has arrived, in order of a wish of times by operation id (s); None where the order blocks itself.

        `strict`: forwards of a rank go in order of their wishes, arrived or not, and leave no memory free for others.
        `wait`: the share of what would start within which one of an earlier wish is waited for.
        """
        policy = Policy(GUIDED, backward_wait=wait, earlier_microbatch=strict, message_rule=LONGEST_TAIL)
        begin = self.state._replace(guide=guide)
        return self.run(policy, begin._replace(reserve_s=np.zeros_like(begin.reserve_s)) if strict else begin)

    def replayed(self, record: Record) -> tuple[float, Floats]:
        """Makespan of the order that a run has written, and the starts of its operations by id (s), by exact replay.

        It names everything once and keeps to memory, so neither is looked at.
        """
        orders = (record.rank_flat, record.rank_offsets, record.channel_flat, record.channel_offsets)
        start, message_start = replay_kernel(self._columns, *orders)
        end, message_end = start + self._operation_s, message_start + self._message_s
        return rank_totals(self._shape, start, end, message_end)[1], start


def greedy_order(
    shape: PipelineShape, policy: Policy, limits: Ints | None = None, *, guide: Floats | None = None
) -> PipelineOrder:
    """Run the policy; `limits` caps the micro-batches between F and B by stage, `guide` is a wish of times by id."""
    scheduler = ListScheduler(shape)
    begin = scheduler.state if limits is None else scheduler.state._replace(limit_s=limits)
    record = scheduler.run(policy, begin if guide is None else begin._replace(guide=guide))
    return one_by_one(shape) if record is None else order_of(record)


def order_of(record: Record) -> PipelineOrder:
    """The order that a run of the scheduler has written."""
    return PipelineOrder(
        unragged(record.rank_flat, record.rank_offsets), unragged(record.channel_flat, record.channel_offsets)
    )


def one_by_one(shape: PipelineShape) -> PipelineOrder:
    """Each micro-batch all the way, W right after its B: it fits wherever one micro-batch fits.

    The simulation reserves the larger of activation and context for every F, which a rank of several stages with large
    contexts may lack though one context at a time has room.
    """
    steps: list[list[int]] = [[] for _ in range(shape.num_ranks)]
    for microbatch in range(shape.num_microbatches):
        for stage in range(shape.num_stages):
            steps[shape.rank_of_s[stage]].append(shape.operation_id(FORWARD, stage, microbatch))
        for stage in range(shape.num_stages - 1, -1, -1):
            for kind in range(1, shape.num_kinds):
                steps[shape.rank_of_s[stage]].append(shape.operation_id(kind, stage, microbatch))
    order = with_messages(shape, [np.array(one, dtype=np.int64) for one in steps])
    assert order is not None, "micro-batches one after the other never wait for each other"
    return order


def with_messages(shape: PipelineShape, rank_ops: Sequence[Ints], message_rule: int = 0) -> PipelineOrder | None:
    """Plan the message order for a given rank order by simulation; None when the rank order blocks itself."""
    unlimited = replace(shape, budget_r=np.full(shape.num_ranks, np.inf))
    return _following(unlimited, rank_ops, Policy(message_rule=message_rule))


def with_weights_filled(shape: PipelineShape, rank_ops: Sequence[Ints], most_bytes: Floats) -> PipelineOrder | None:
    """F and B in the given order, W where a rank would idle or the memory of `most_bytes` per rank asks for it."""
    limited = replace(shape, budget_r=np.minimum(shape.budget_r, most_bytes))
    return _following(limited, rank_ops, Policy(preference=FILL))


def _following(shape: PipelineShape, rank_ops: Sequence[Ints], policy: Policy) -> PipelineOrder | None:
    scheduler = ListScheduler(shape, ragged(rank_ops)[0])
    record = scheduler.run(policy, scheduler.state)
    return None if record is None else order_of(record)


def _new_record(shape: PipelineShape) -> Record:
    per_rank = np.bincount(shape.rank_of_s, minlength=shape.num_ranks) * shape.num_kinds * shape.num_microbatches
    per_channel = [sum(left for _, left in streams) for streams in channel_streams(shape)]
    rank_offsets, channel_offsets = _offsets(per_rank), _offsets(per_channel)
    return Record(
        np.zeros(rank_offsets[-1], dtype=np.int64),
        rank_offsets,
        np.zeros(shape.num_ranks, dtype=np.int64),
        np.zeros(channel_offsets[-1], dtype=np.int64),
        channel_offsets,
        np.zeros(shape.num_channels, dtype=np.int64),
    )


def _new_state(shape: PipelineShape, tail: Floats, *, reserves_memory: bool) -> DispatchState:
    arrival = np.full(shape.num_operations, np.inf)
    arrival[: shape.num_microbatches] = 0.0
    streams = channel_streams(shape)
    flat_streams = [stream for one in streams for stream in one]
    stage_flat, stage_offsets = ragged([np.flatnonzero(shape.rank_of_s == r)[::-1] for r in range(shape.num_ranks)])
    return DispatchState(
        arrival=arrival,
        message_ready=np.full(shape.num_operations + shape.num_stages, np.inf),
        next_ks=np.zeros((3, shape.num_stages), dtype=np.int64),
        inflight_s=np.zeros(shape.num_stages, dtype=np.int64),
        limit_s=np.full(shape.num_stages, UNLIMITED),
        memory_r=np.zeros(shape.num_ranks),
        reserve_s=_reserves(shape) if reserves_memory else np.zeros(shape.num_stages),
        rank_busy=np.zeros(shape.num_ranks, dtype=np.int64),
        running_r=np.zeros((shape.num_ranks, 3), dtype=np.int64),
        sending_r=np.zeros(shape.num_ranks, dtype=np.int64),
        last_kind_r=np.ones(shape.num_ranks, dtype=np.int64),
        channel_busy=np.zeros(shape.num_channels, dtype=np.int64),
        stream_head=np.array([head for head, _ in flat_streams], dtype=np.int64),
        stream_left=np.array([left for _, left in flat_streams], dtype=np.int64),
        stream_offsets=_offsets([len(one) for one in streams]),
        stage_flat=stage_flat,
        stage_offsets=stage_offsets,
        tail=tail,
        guide=np.zeros(0),
    )


def _reserves(shape: PipelineShape) -> Floats:
    """Activations of the later stages of the same rank, by stage."""
    reserve, held = np.zeros(shape.num_stages), np.zeros(shape.num_ranks)
    for stage in range(shape.num_stages - 1, -1, -1):
        rank = shape.rank_of_s[stage]
        reserve[stage] = held[rank]
        held[rank] += shape.activation_s[stage]
    return reserve


def _offsets(counts: Sequence[int] | Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))]).astype(np.int64)
