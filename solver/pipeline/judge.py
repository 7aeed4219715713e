"""The judge of one pipeline schedule: every rule of the contract, checked on the stated times alone.

It shares with the solver neither an order nor a rounding: problem and answer are read afresh. All objections are
reported, at most a few per rule and place.
"""

from collections.abc import Iterator

import numpy as np

from models.schedule import PipelineProblem, PipelineSchedule, PipelineViolation
from solver.pipeline.problem import Floats, Ints, PipelineShape
from solver.pipeline.simulate import durations, occupancies, peak_memory_bytes, rank_totals
from solver.pipeline.stated import Stated, read, violation

MOST_PER_RULE = 20  # objections: a wrong column is one mistake
TOTALS_TOLERANCE = 1e-6  # relative, as answers are rounded


def check_schedule(problem: PipelineProblem, schedule: PipelineSchedule) -> list[PipelineViolation]:
    """All broken rules of a schedule; an empty list is an acquittal."""
    stated, found = read(problem, schedule)
    if stated is None:
        return found
    missing = list(_missing(stated))
    if missing or found:
        return found + missing
    for rule in RULES:
        for count, objection in enumerate(rule(stated)):
            if count >= MOST_PER_RULE:
                break
            found.append(objection)
    return found


def _missing(stated: Stated) -> Iterator[PipelineViolation]:
    """Every operation, message and gradient exchange is stated once, and nothing that does not exist."""
    shape = stated.shape
    for operation in np.flatnonzero(np.isnan(stated.start))[:MOST_PER_RULE]:
        yield violation("missing_operation", shape.text(int(operation)), "is not scheduled")
    needed = _needed_messages(stated)
    for message in np.flatnonzero(needed & np.isnan(stated.message_start))[:MOST_PER_RULE]:
        yield violation("missing_transfer", shape.text(int(message)), "sends a message that is not scheduled")
    for message in np.flatnonzero(~needed & ~np.isnan(stated.message_start))[:MOST_PER_RULE]:
        yield violation("unknown_operation", shape.text(int(message)), "sends no message")


def _needed_messages(stated: Stated) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    shape, m = stated.shape, stated.shape.num_microbatches
    needed = np.zeros(shape.num_operations + shape.num_stages, dtype=np.bool_)
    for hop in stated.problem.hops:
        needed[shape.operation_id(0, hop.from_stage, 0) : shape.operation_id(0, hop.from_stage, 0) + m] = True
        needed[shape.operation_id(1, hop.to_stage, 0) : shape.operation_id(1, hop.to_stage, 0) + m] = True
    needed[shape.num_operations :] = shape.sync_s > 0
    return needed


def check_placement(stated: Stated) -> Iterator[PipelineViolation]:
    """Every operation runs on the rank of its stage."""
    shape = stated.shape
    home = np.repeat(np.tile(shape.rank_of_s, shape.num_kinds), shape.num_microbatches)
    for operation in np.flatnonzero(stated.rank != home):
        yield violation("wrong_rank", shape.text(int(operation)), f"runs on rank {stated.rank[operation]}")


def check_durations(stated: Stated) -> Iterator[PipelineViolation]:
    """Operations and messages last exactly as long as the problem says, and none starts before zero."""
    shape = stated.shape
    for starts, ends, wanted in (
        (stated.start, stated.end, durations(shape)),
        (stated.message_start, stated.message_end, occupancies(shape)),
    ):
        used = ~np.isnan(starts)
        wrong = used & (np.abs(np.where(used, ends - starts, wanted) - wanted) > stated.slack_s)
        for item in np.flatnonzero(wrong):
            lasts = ends[item] - starts[item]
            yield violation("duration", shape.text(int(item)), f"lasts {lasts:g} s instead of {wanted[item]:g} s")
        for item in np.flatnonzero(used & (starts < -stated.slack_s)):
            yield violation("duration", shape.text(int(item)), "starts before 0")


def check_ranks_exclusive(stated: Stated) -> Iterator[PipelineViolation]:
    """A rank runs one operation at a time, in the stated order."""
    for rank, timeline in enumerate(stated.schedule.ranks):
        starts, ends = np.array(timeline.start_s), np.array(timeline.end_s)
        for at in np.flatnonzero(starts[1:] < ends[:-1] - stated.slack_s):
            detail = f"{timeline.operations[at + 1]} starts at {starts[at + 1]:g} before {timeline.operations[at]} ends"
            yield violation("rank_exclusive", f"rank {rank}", detail)


def check_links_exclusive(stated: Stated) -> Iterator[PipelineViolation]:
    """One message at a time on each link and direction; a gradient exchange takes both."""
    shape = stated.shape
    taken: dict[int, list[int]] = {channel: [] for channel in range(shape.num_channels)}
    m = shape.num_microbatches
    for kind, sender, _, _, channel in shape.messages():
        if channel >= 0:
            first = shape.operation_id(kind, sender, 0)
            taken[channel] += range(first, first + m)
    for stage in np.flatnonzero((shape.sync_link_s >= 0) & (shape.sync_s > 0)).tolist():
        for direction in (0, 1):
            taken[2 * int(shape.sync_link_s[stage]) + direction].append(shape.num_operations + int(stage))
    for channel, messages in taken.items():
        yield from _overlaps(stated, channel, np.array(messages, dtype=np.int64))


def _overlaps(stated: Stated, channel: int, messages: Ints) -> Iterator[PipelineViolation]:
    by_start = messages[np.argsort(stated.message_start[messages], kind="stable")]
    starts, ends = stated.message_start[by_start], stated.message_end[by_start]
    where = f"link {stated.shape.link_names[channel // 2]} {'up' if channel % 2 == 0 else 'down'}"
    for at in np.flatnonzero(starts[1:] < ends[:-1] - stated.slack_s):
        one, two = stated.shape.text(int(by_start[at])), stated.shape.text(int(by_start[at + 1]))
        yield violation("link_exclusive", where, f"{two} starts at {starts[at + 1]:g} before {one} ends")


def check_links_named(stated: Stated) -> Iterator[PipelineViolation]:
    """Every message is stated on its link and direction; an exchange that shares no link on any name of its own."""
    shape, used = stated.shape, _used_links(stated)
    named = {link for link, _ in used.values() if link}
    for one, messages in zip(stated.schedule.transfers, stated.messages_by_link, strict=True):
        streams = _streams(shape, messages)
        is_own = one.link not in named and len(messages) == 1
        for stream in np.unique(streams).tolist():
            link, direction = used[stream]
            if one.direction != direction or not (one.link == link or (is_own and not link)):
                first = shape.text(int(messages[streams == stream][0]))
                detail = f"{first} is on {f'link {link}' if link else 'a link of its own'}, {direction}"
                yield violation("wrong_link", f"link {one.link} {one.direction}", detail)


def _streams(shape: PipelineShape, messages: Ints) -> Ints:
    """Which F or B of which stage, or the exchange of which stage, each message is of; exchanges after all others."""
    exchange = shape.num_kinds * shape.num_stages + messages - shape.num_operations
    return np.where(messages < shape.num_operations, messages // shape.num_microbatches, exchange)


def _used_links(stated: Stated) -> dict[int, tuple[str, str]]:
    """Link and direction of the messages of every stream: activations one way, gradients back, exchanges both ways.

    No link where an exchange shares none.
    """
    shape, used = stated.shape, dict[int, tuple[str, str]]()
    for hop in stated.problem.hops:
        against = shape.rank_of_s[hop.to_stage] < shape.rank_of_s[hop.from_stage]
        there, back = ("down", "up") if against else ("up", "down")
        used[hop.from_stage] = hop.link_name, there
        used[shape.num_stages + hop.to_stage] = hop.link_name, back
    for stage, own in enumerate(stated.problem.stages):
        if own.gradient_sync_s > 0:
            used[shape.num_kinds * shape.num_stages + stage] = own.gradient_sync_link or "", "both"
    return used


def check_precedence(stated: Stated) -> Iterator[PipelineViolation]:
    """Data arrives before it is used: forward down, gradients back up, W after B, each message after its producer."""
    shape = stated.shape
    shaped = (shape.num_kinds, shape.num_stages, shape.num_microbatches)
    start, end = stated.start.reshape(shaped), stated.end.reshape(shaped)
    sent = stated.message_start[: shape.num_operations].reshape(shaped)
    left = stated.message_end[: shape.num_operations].reshape(shaped)
    for kind, sender, receiver, hop, _ in shape.messages():
        has_message = ~np.isnan(sent[kind, sender])
        early = has_message & (sent[kind, sender] < end[kind, sender] - stated.slack_s)
        yield from _late(stated, early, kind, sender, "is sent before it exists")
        leaves = np.where(has_message, left[kind, sender], end[kind, sender])
        used = start[kind, receiver] < leaves + shape.latency_s[hop] - stated.slack_s
        yield from _late(stated, used, kind, receiver, f"starts before the data of stage {sender} has arrived")
    early = start[1, -1] < end[0, -1] - stated.slack_s
    yield from _late(stated, early, 1, shape.num_stages - 1, "starts before its forward has ended")
    if shape.num_kinds == 3:
        for stage in range(shape.num_stages):
            late = start[2, stage] < end[1, stage] - stated.slack_s
            yield from _late(stated, late, 2, stage, "starts before its input gradient has ended")


def _late(
    stated: Stated, wrong: np.ndarray[tuple[int], np.dtype[np.bool_]], kind: int, stage: int, detail: str
) -> Iterator[PipelineViolation]:
    for microbatch in np.flatnonzero(wrong):
        operation = stated.shape.operation_id(kind, stage, int(microbatch))
        yield violation("precedence", stated.shape.text(operation), detail)


def check_sends(stated: Stated) -> Iterator[PipelineViolation]:
    """Where sends block, no F or B of a rank starts while the message of its F or B before is on its way."""
    if stated.problem.sends != "blocking":
        return
    landed = _landings(stated)
    for operations in stated.rank_ops:
        sending = operations[operations < len(landed)]
        early = stated.start[sending[1:]] < landed[sending[:-1]] - stated.slack_s
        for one, before in zip(sending[1:][early].tolist(), sending[:-1][early].tolist(), strict=True):
            detail = f"starts at {stated.start[one]:g} before the message of {stated.shape.text(before)} has landed"
            yield violation("blocking_sends", stated.shape.text(one), detail)


def _landings(stated: Stated) -> Floats:
    """When the message of every F and B has landed, by id; its end where it sends none."""
    shape = stated.shape
    latency_s = np.concatenate([shape.latency_s, [0.0], shape.latency_s[:-1]])
    size = 2 * shape.num_stages * shape.num_microbatches
    left = stated.message_end[:size] + np.repeat(latency_s, shape.num_microbatches)
    return np.where(np.isnan(left), stated.end[:size], left)


def check_exchanges(stated: Stated) -> Iterator[PipelineViolation]:
    """A gradient exchange starts after the last W of its stage."""
    shape = stated.shape
    last = stated.end.reshape(shape.num_kinds, shape.num_stages, shape.num_microbatches)[-1].max(axis=1)
    starts = stated.message_start[shape.num_operations :]
    for stage in np.flatnonzero((shape.sync_s > 0) & (starts < last - stated.slack_s)):
        yield violation(
            "gradient_sync", f"{stage}SYNC", f"starts at {starts[stage]:g}, before the last W at {last[stage]:g}"
        )


def check_memory(stated: Stated) -> Iterator[PipelineViolation]:
    """Activation memory remains within every budget at every instant, and the stated peaks are true.

    What a rank holds between two operations of its order counts, however short they are.
    """
    for rank, timeline in enumerate(stated.schedule.ranks):
        peak, at_s = _peak(stated, rank)
        budget = stated.shape.budget_r[rank]
        # a W of no duration gives back what its B has just taken: counting that instant or not is both a true peak
        most = max(peak, peak_memory_bytes(stated.shape, stated.rank_ops[rank]))
        if peak > budget * (1 + 1e-9):
            yield violation("memory", f"rank {rank}", f"holds {peak:g} B at {at_s:g} s, budget {budget:g} B")
        elif most > budget * (1 + 1e-9):
            yield violation("memory", f"rank {rank}", f"holds {most:g} B by its order, budget {budget:g} B")
        slack = TOTALS_TOLERANCE * max(most, 1e-30)
        if not peak - slack <= timeline.peak_memory_bytes <= most + slack:
            yield violation("peak_memory", f"rank {rank}", f"says {timeline.peak_memory_bytes:g} B, is {peak:g} B")


def _peak(stated: Stated, rank: int) -> tuple[float, float]:
    """Largest memory and when: F takes at its start, ends give back; at one instant giving back goes first.

    An end and a start that a float sum has pulled apart by less than the slack are one instant.
    """
    shape = stated.shape
    times: list[Floats] = []
    changes: list[Floats] = []
    shaped = (shape.num_kinds, shape.num_stages, shape.num_microbatches)
    start, end = stated.start.reshape(shaped), stated.end.reshape(shaped)
    for stage in np.flatnonzero(shape.rank_of_s == rank):
        for moments, change in (
            (start[0, stage], shape.activation_s[stage]),
            (end[1, stage] - 2 * stated.slack_s, shape.context_s[stage] - shape.activation_s[stage]),
            (end[-1, stage] - 2 * stated.slack_s, -shape.context_s[stage]),
        ):
            times.append(moments)
            changes.append(np.full(len(moments), change))
    when, change = np.concatenate(times), np.concatenate(changes)
    order = np.lexsort((change, when))
    held = np.cumsum(change[order])
    top = int(np.argmax(held))
    return max(float(held[top]), 0.0), float(when[order][top])


def check_totals(stated: Stated) -> Iterator[PipelineViolation]:
    """Makespan, span, objective value, gap, bound, status and text say what the times say."""
    schedule = stated.schedule
    span_s, makespan_s = rank_totals(stated.shape, stated.start, stated.end, stated.message_end)
    value_s = span_s if stated.problem.objective == "span" else makespan_s
    for name, said, true in (
        ("makespan_s", schedule.makespan_s, makespan_s),
        ("span_s", schedule.span_s, span_s),
        ("objective_value_s", schedule.objective_value_s, value_s),
        ("gap", schedule.gap, max(0.0, (value_s - schedule.lower_bound_s) / value_s) if value_s > 0 else 0.0),
    ):
        if abs(said - true) > TOTALS_TOLERANCE * max(true, 1e-12) + (TOTALS_TOLERANCE if name == "gap" else 0.0):
            yield violation("totals", name, f"says {said:g}, the times say {true:g}")
    if schedule.objective != stated.problem.objective:
        yield violation("totals", "objective", f"says {schedule.objective}, asked was {stated.problem.objective}")
    if schedule.lower_bound_s > value_s * (1 + TOTALS_TOLERANCE):
        yield violation("totals", "lower_bound_s", f"{schedule.lower_bound_s:g} exceeds the value {value_s:g}")
    if schedule.status == "optimal" and schedule.gap > TOTALS_TOLERANCE:
        yield violation("totals", "status", f"optimal is claimed at a gap of {schedule.gap:g}")
    if schedule.text != "\n".join(",".join(one.operations) for one in schedule.ranks):
        yield violation("totals", "text", "differs from the operations of the ranks")


RULES = (
    check_placement,
    check_durations,
    check_ranks_exclusive,
    check_links_exclusive,
    check_links_named,
    check_precedence,
    check_sends,
    check_exchanges,
    check_memory,
    check_totals,
)
