"""A schedule as the CSV that PyTorch's pipeline runtime loads: computation alone, or with communication.

One line per pipeline rank, one cell per action: stage, action, micro-batch. PyTorch writes I for the input gradient,
W for the weight gradient and B for both in one. What its loader would take without a word and then run wrongly is
refused here. Source: torch.distributed.pipelining 2.13, `_PipelineScheduleRuntime._load_csv`; a private interface.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence

from app.exporters.target import Target
from app.faults import Fault, Refused
from models.plan import Plan, RouteTimeline
from models.request import PlanRequest
from models.schedule import Operation, PipelineSchedule

TARGET = Target(
    "torch.distributed.pipelining",
    "PyTorch 2.13 (private interface, tested against 2.13.0)",
    ("_PipelineScheduleRuntime with one stage object per stage of the row",),
)
ACTIONS = {"F": "F", "B": "I", "W": "W", "BW": "B"}
Rows = Sequence[Sequence[Operation]]
Receive = tuple[int, str]  # the row's operation before which it is posted, and its cell


def torch_schedule_csv(plan: Plan, _request: PlanRequest | None = None) -> str:
    """The order of operations ("compute_only"); the runtime adds the messages."""
    return compute_only(main_timeline(plan).schedule)


def torch_comms_csv(plan: Plan, _request: PlanRequest | None = None) -> str:
    """The order of operations and messages ("compute_comms"), each receive posted when its message is sent."""
    return compute_and_comms(main_timeline(plan).schedule)


def main_timeline(plan: Plan) -> RouteTimeline:
    """The timeline of the route with most replicas: PyTorch runs one schedule on every replica."""
    replicas = {route.id: route.num_replicas for route in plan.placement.routes}
    return max(plan.timelines, key=lambda one: replicas[one.route])


def compute_only(schedule: PipelineSchedule) -> str:
    """The rows of the computation, checked."""
    rows = _checked(schedule)
    return "".join(",".join(torch_action(str(one)) for one in row) + "\n" for row in rows)


def torch_action(text: str) -> str:
    """An operation in PyTorch's words.

    >>> torch_action("2F0"), torch_action("0B3"), torch_action("1BW2")
    ('2F0', '0I3', '1B2')
    """
    operation = Operation.parse(text)
    return f"{operation.stage}{ACTIONS[operation.kind]}{operation.microbatch}"


def compute_and_comms(schedule: PipelineSchedule) -> str:
    """The rows with UNSHARD, RESHARD, REDUCE_GRAD, sends after their producer and receives where they are sent."""
    rows = _checked(schedule)
    rank_of_stage = {one.stage: rank for rank, row in enumerate(rows) for one in row}
    receives = _receives(schedule, rows, rank_of_stage)
    lines = (",".join(_with_comms(row, rank, receives[rank], rank_of_stage)) for rank, row in enumerate(rows))
    return "".join(line + "\n" for line in lines)


def _receives(schedule: PipelineSchedule, rows: Rows, rank_of_stage: dict[int, int]) -> dict[int, list[Receive]]:
    """Per receiving rank, in the order of sending: messages of one pair of ranks are matched in order."""
    sent = sorted(
        (end_s, rank, position, one)
        for rank, (row, times) in enumerate(zip(rows, schedule.ranks, strict=True))
        for position, (one, end_s) in enumerate(zip(row, times.end_s, strict=True))
    )
    found: dict[int, list[Receive]] = defaultdict(list)
    earliest: Counter[int] = Counter()
    for end_s, rank, _, one in sent:
        step = _message_step(one)
        receiver = rank_of_stage.get(one.stage + step)
        if not step or receiver is None or receiver == rank:
            continue
        at = bisect_left(schedule.ranks[receiver].start_s, end_s)
        earliest[receiver] = max(earliest[receiver], at)
        action = "RECV_F" if step > 0 else "RECV_B"
        found[receiver].append((earliest[receiver], f"{one.stage + step}{action}{one.microbatch}"))
    return found


def _message_step(operation: Operation) -> int:
    """To which side an operation sends: 1 to the next stage, -1 to the one before, 0 to none."""
    return {"F": 1, "B": -1, "BW": -1}.get(operation.kind, 0)


def _with_comms(
    row: Sequence[Operation], rank: int, receives: Sequence[Receive], rank_of_stage: dict[int, int]
) -> Iterator[str]:
    first = {one.stage: index for index, one in reversed(list(enumerate(row)))}
    last = {one.stage: index for index, one in enumerate(row)}
    waiting = deque(receives)
    for index, one in enumerate(row):
        while waiting and waiting[0][0] <= index:
            yield waiting.popleft()[1]
        if first[one.stage] == index:
            yield f"{one.stage}UNSHARD"
        yield torch_action(str(one))
        step = _message_step(one)
        if step and rank_of_stage.get(one.stage + step, rank) != rank:
            yield f"{one.stage}{'SEND_F' if step > 0 else 'SEND_B'}{one.microbatch}"
        if last[one.stage] == index:
            yield f"{one.stage}RESHARD"
            yield f"{one.stage}REDUCE_GRAD"


def _checked(schedule: PipelineSchedule) -> Rows:
    """The operations of every rank, or why PyTorch cannot run them."""
    rows = [[Operation.parse(text) for text in rank.operations] for rank in schedule.ranks]
    faults = [what for check in (_incomplete, _scattered, _out_of_order) for what in check(rows)]
    if faults:
        remedy = "Export a schedule that the judge accepts."
        raise Refused([Fault("invalid-plan", what, "/schedule/ranks", remedy=remedy) for what in faults[:20]])
    return rows


def _incomplete(rows: Rows) -> Iterator[str]:
    """PyTorch loads operations that are missing, repeated or beyond the number of micro-batches without a word."""
    counts = Counter(one for row in rows for one in row)
    for one, number in counts.items():
        if number > 1:
            yield f"{one} occurs {number} times"
    num_stages = 1 + max((one.stage for one in counts), default=0)
    num_microbatches = 1 + max((one.microbatch for one in counts), default=0)
    for stage in range(num_stages):
        for microbatch in range(num_microbatches):
            kinds = [kind for kind in ("F", "B", "W", "BW") if Operation(stage, kind, microbatch) in counts]
            if kinds not in (["F", "B", "W"], ["F", "BW"]):
                yield f"micro-batch {microbatch} on stage {stage} has {kinds or 'nothing'}: F, B, W or F, BW is needed"


def _scattered(rows: Rows) -> Iterator[str]:
    seen: dict[int, int] = {}
    for rank, row in enumerate(rows):
        if not row:
            yield f"rank {rank} has no operation: a blank line counts as a rank"
        for one in row:
            if seen.setdefault(one.stage, rank) != rank:
                yield f"stage {one.stage} lies on ranks {seen[one.stage]} and {rank}"
                break


def _out_of_order(rows: Rows) -> Iterator[str]:
    """The runtime keeps the losses in a list and reads them by micro-batch: the last stage goes in order."""
    last_stage = max((one.stage for row in rows for one in row), default=0)
    forwards = [one.microbatch for row in rows for one in row if one.stage == last_stage and one.kind == "F"]
    if forwards != sorted(forwards):
        yield f"the forwards of the last stage, {last_stage}, are not in the order of the micro-batches"


def losses(plan: Plan, _request: PlanRequest | None = None) -> Iterator[str]:
    """What the rows do not carry."""
    yield "times: an operation starts when the one before it has ended and its inputs are there"
    yield "the order of messages that share a link: each pair of ranks sends in its own order"
    yield "memory: the runtime allocates receive buffers for all micro-batches, whatever the schedule"
    if len(plan.timelines) > 1:
        yield f"{len(plan.timelines)} routes: the schedule of the one with most replicas is written, for all"
