"""A 1F1B schedule built by hand for tests: it knows no generator, no replay and no judge.

The order (warm-up, one forward one backward, cool-down) at its earliest times, with one stage per rank.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from models.schedule import LinkTimeline, Operation, PipelineHop, PipelineProblem, PipelineSchedule, RankTimeline


@dataclass
class Clock:
    """Times that are known so far."""

    end_of: dict[Operation, float] = field(default_factory=dict)
    start_of: dict[Operation, float] = field(default_factory=dict)
    arrival_of: dict[Operation, float] = field(default_factory=dict)
    free_of_channel: dict[tuple[str, str], float] = field(default_factory=dict)
    messages: dict[tuple[str, str], list[tuple[str, float, float]]] = field(default_factory=lambda: defaultdict(list))


def rank_order(rank: int, num_microbatches: int, warm_up: int) -> list[Operation]:
    """Operations of one rank: the forwards of its warm-up, then B, W and the next F in turns."""
    order = [Operation(rank, "F", microbatch) for microbatch in range(warm_up)]
    for microbatch in range(num_microbatches):
        order += [Operation(rank, "B", microbatch), Operation(rank, "W", microbatch)]
        if warm_up + microbatch < num_microbatches:
            order.append(Operation(rank, "F", warm_up + microbatch))
    return order


def one_f_one_b(problem: PipelineProblem, *, all_forward_first: bool = False) -> PipelineSchedule:
    """The 1F1B (or GPipe) schedule of a split one-way problem, as early as its order allows."""
    num_ranks, m = len(problem.ranks), problem.num_microbatches
    warm_ups = [m if all_forward_first else min(num_ranks - rank, m) for rank in range(num_ranks)]
    orders = [rank_order(rank, m, warm_up) for rank, warm_up in enumerate(warm_ups)]
    clock, hops = Clock(), {hop.from_stage: hop for hop in problem.hops}
    done, free = [0] * num_ranks, [0.0] * num_ranks
    while any(done[rank] < len(orders[rank]) for rank in range(num_ranks)):
        ready = [
            (max(free[rank], time), rank)
            for rank in range(num_ranks)
            if done[rank] < len(orders[rank])
            and (time := _ready_s(orders[rank][done[rank]], num_ranks, clock)) is not None
        ]
        start, rank = min(ready)
        operation = orders[rank][done[rank]]
        free[rank] = start + _duration_s(problem, operation)
        clock.start_of[operation], clock.end_of[operation] = start, free[rank]
        _send(operation, hops, clock)
        done[rank] += 1
    return _schedule(problem, orders, clock)


def _ready_s(operation: Operation, num_stages: int, clock: Clock) -> float | None:
    stage, kind, microbatch = operation
    if kind == "F":
        return 0.0 if stage == 0 else clock.arrival_of.get(Operation(stage - 1, "F", microbatch))
    if kind == "W":
        return clock.end_of.get(Operation(stage, "B", microbatch))
    forward = clock.end_of.get(Operation(stage, "F", microbatch))
    if stage == num_stages - 1 or forward is None:
        return forward
    gradient = clock.arrival_of.get(Operation(stage + 1, "B", microbatch))
    return None if gradient is None else max(forward, gradient)


def _duration_s(problem: PipelineProblem, operation: Operation) -> float:
    stage = problem.stages[operation.stage]
    return {"F": stage.forward_s, "B": stage.input_grad_s, "W": stage.weight_grad_s}[operation.kind]


def _send(operation: Operation, hops: dict[int, PipelineHop], clock: Clock) -> None:
    """Put the message of an F (to the next stage) or a B (to the one before) on its channel."""
    stage, kind, _ = operation
    hop = {"F": hops.get(stage), "B": hops.get(stage - 1)}.get(kind)
    end = clock.end_of[operation]
    if hop is None:
        clock.arrival_of[operation] = end
        return
    if hop.occupancy_s > 0:
        channel = (hop.link_name, "up" if kind == "F" else "down")
        start = max(end, clock.free_of_channel.get(channel, 0.0))
        end = clock.free_of_channel[channel] = start + hop.occupancy_s
        clock.messages[channel].append((str(operation), start, end))
        end = start + hop.transfer_s if hop.staggered else end
    clock.arrival_of[operation] = end + hop.latency_s


def _schedule(problem: PipelineProblem, orders: list[list[Operation]], clock: Clock) -> PipelineSchedule:
    ranks, spans, last = [], [], 0.0
    for rank, order in enumerate(orders):
        starts, ends = [clock.start_of[one] for one in order], [clock.end_of[one] for one in order]
        end = ends[-1] + problem.stages[rank].gradient_sync_s
        spans.append(end - starts[0])
        last = max(last, end)
        ranks.append(
            RankTimeline(
                operations=tuple(map(str, order)),
                start_s=tuple(starts),
                end_s=tuple(ends),
                peak_memory_bytes=_peak_bytes(problem, rank, order),
            )
        )
    bound = max(sum(_duration_s(problem, one) for one in order) for order in orders)
    return PipelineSchedule(
        ranks=tuple(ranks),
        transfers=(
            *(_link_timeline(channel, clock.messages[channel]) for channel in sorted(clock.messages)),
            *_exchanges(problem, ranks),
        ),
        objective="makespan",
        objective_value_s=last,
        makespan_s=last,
        span_s=max(spans),
        lower_bound_s=bound,
        gap=(last - bound) / last,
        status="feasible",
        generator="1f1b",
        seconds=0.0,
        text="\n".join(",".join(map(str, order)) for order in orders),
    )


def _link_timeline(channel: tuple[str, str], messages: list[tuple[str, float, float]]) -> LinkTimeline:
    texts, starts, ends = zip(*messages, strict=True)
    return LinkTimeline(link=channel[0], direction=channel[1], transfers=texts, start_s=starts, end_s=ends)


def _exchanges(problem: PipelineProblem, ranks: list[RankTimeline]) -> list[LinkTimeline]:
    """Gradient exchanges on links of their own, right after the last W."""
    return [
        LinkTimeline(
            link=f"exchange {stage}",
            direction="both",
            transfers=(f"{stage}SYNC",),
            start_s=(ranks[stage].end_s[-1],),
            end_s=(ranks[stage].end_s[-1] + one.gradient_sync_s,),
        )
        for stage, one in enumerate(problem.stages)
        if one.gradient_sync_s > 0
    ]


def _peak_bytes(problem: PipelineProblem, rank: int, order: list[Operation]) -> float:
    stage, held, peak = problem.stages[rank], 0.0, 0.0
    change = {
        "F": stage.activation_bytes,
        "B": stage.weight_grad_context_bytes - stage.activation_bytes,
        "W": -stage.weight_grad_context_bytes,
    }
    for operation in order:
        held += change[operation.kind]
        peak = max(peak, held)
    return peak
