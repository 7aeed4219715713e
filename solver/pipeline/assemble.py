"""An order written out as a schedule: all times and totals come from an exact replay."""

import numpy as np

from models.schedule import LinkDirection, LinkTimeline, PipelineProblem, PipelineSchedule, RankTimeline
from solver.pipeline.local_search.late_starts import replayed
from solver.pipeline.problem import Floats, Ints, PipelineOrder, PipelineShape, shape_of
from solver.pipeline.simulate import PipelineReplay, occupancies

PROVEN = 1e-6  # relative distance below which a bound and a value are the same number


def assemble(
    problem: PipelineProblem, order: PipelineOrder, *, generator: str, lower_bound_s: float, seconds: float
) -> PipelineSchedule:
    """The answer for an order of this problem."""
    shape = shape_of(problem)
    run = replayed(shape, order, problem.objective)
    value_s = run.value_s(problem.objective)
    bound_s = min(lower_bound_s, value_s)
    gap = (value_s - bound_s) / value_s if value_s > 0 else 0.0
    ranks = rank_timelines(shape, order, run)
    return PipelineSchedule(
        ranks=ranks,
        transfers=link_timelines(problem, shape, order, run),
        objective=problem.objective,
        objective_value_s=value_s,
        makespan_s=run.makespan_s,
        span_s=run.span_s,
        lower_bound_s=bound_s,
        gap=gap,
        status="optimal" if gap <= PROVEN else "feasible",
        generator=generator,
        seconds=seconds,
        text="\n".join(",".join(rank.operations) for rank in ranks),
    )


def rank_timelines(shape: PipelineShape, order: PipelineOrder, run: PipelineReplay) -> tuple[RankTimeline, ...]:
    """Operations of every rank with their times."""
    texts = shape.texts()
    return tuple(
        RankTimeline(
            operations=tuple(map(texts.__getitem__, operations.tolist())),
            start_s=tuple(run.start[operations].tolist()),
            end_s=tuple(run.end[operations].tolist()),
            peak_memory_bytes=float(run.peak_memory_bytes[rank]),
        )
        for rank, operations in enumerate(order.rank_ops)
    )


def link_timelines(
    problem: PipelineProblem, shape: PipelineShape, order: PipelineOrder, run: PipelineReplay
) -> tuple[LinkTimeline, ...]:
    """Messages of every link and direction that is used, gradient exchanges apart."""
    timelines = []
    taken_s = occupancies(shape)
    for channel, messages in enumerate(order.channel_ops):
        own = messages[messages < shape.num_operations]
        direction: LinkDirection = "up" if channel % 2 == 0 else "down"
        timelines.append(_timeline(shape, run, taken_s, (shape.link_names[channel // 2], direction), own))
    timelines += _delays_only(problem, shape, run)
    for stage in np.flatnonzero(shape.sync_s > 0):
        name = problem.stages[stage].gradient_sync_link or f"gradient exchange of stage {stage}"
        message = np.array([shape.num_operations + stage], dtype=np.int64)
        timelines.append(_timeline(shape, run, taken_s, (name, "both"), message))
    return tuple(one for one in timelines if one.transfers)


def _delays_only(problem: PipelineProblem, shape: PipelineShape, run: PipelineReplay) -> list[LinkTimeline]:
    """Messages of hops that take a link no time: each leaves the instant it is produced."""
    timelines = []
    m, names = shape.num_microbatches, shape.texts()
    for hop in problem.hops:
        if hop.occupancy_s > 0:
            continue
        against = shape.rank_of_s[hop.to_stage] < shape.rank_of_s[hop.from_stage]
        ways: tuple[LinkDirection, LinkDirection] = ("down", "up") if against else ("up", "down")
        for kind, stage, way in ((0, hop.from_stage, ways[0]), (1, hop.to_stage, ways[1])):
            messages = np.arange(m) + shape.operation_id(kind, stage, 0)
            messages = messages[np.argsort(run.end[messages], kind="stable")]
            times = tuple(run.end[messages].tolist())
            texts = tuple(map(names.__getitem__, messages.tolist()))
            timelines.append(
                LinkTimeline(link=hop.link_name, direction=way, transfers=texts, start_s=times, end_s=times)
            )
    return timelines


def _timeline(
    shape: PipelineShape, run: PipelineReplay, taken_s: Floats, channel: tuple[str, LinkDirection], messages: Ints
) -> LinkTimeline:
    """One channel, a link and a direction; `taken_s` is how long each message occupies its link."""
    starts = run.message_start[messages]
    texts = shape.texts()
    named = (texts[one] if one < len(texts) else shape.text(one) for one in messages.tolist())
    return LinkTimeline(
        link=channel[0],
        direction=channel[1],
        transfers=tuple(named),
        start_s=tuple(starts.tolist()),
        end_s=tuple((starts + taken_s[messages]).tolist()),
    )
