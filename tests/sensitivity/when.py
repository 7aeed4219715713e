"""Corruptions of what was timed and how: stage costs, memory, schedules, hops, gradient exchanges.

Timeline 1 is the route inside east, whose end decides nothing, so its times can be bent.
"""

from __future__ import annotations

from typing import Any

from models.framework import FrameworkProfile
from models.plan import Plan
from models.request import PlanRequest
from models.schedule import PipelineSchedule, RankTimeline
from tests.build_costs import MARGIN, Forgery
from tests.build_plan import TRUTH, build_plan
from tests.build_request import build_request, cluster, link
from tests.sensitivity.forge import Corruption, demand, edit, exchanged, lie, put, puts, retext, settled


def bent(name: str, rule: str, bend: Any, *, forgery: Forgery = TRUTH) -> Corruption:
    """A corruption of the schedule of the inner route by a function of the schedule."""

    def corrupt(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
        return request, put(plan, "timelines.1.schedule", bend)

    return Corruption(name, frozenset({rule}), corrupt, forgery=forgery)


def shifted(schedule: PipelineSchedule, path: str, index: int, by_s: float) -> PipelineSchedule:
    """Entry `index` of a rank's or link's timeline (`ranks.0`, `transfers.1`) started and ended so much later."""
    later = schedule
    for side in ("start_s", "end_s"):
        later = put(later, f"{path}.{side}.{index}", lambda old: old + by_s)
    return later


def _not_waiting(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
    """Asynchronous times for a framework whose sends block."""
    profile = FrameworkProfile(name="waiting", blocking_sends=("one_way",))
    blocking = {f"timelines__{index}__problem__sends": "blocking" for index in range(len(plan.timelines))}
    return puts(request, constraints__framework=profile), puts(plan, **blocking)


def without(timeline: RankTimeline, index: int) -> RankTimeline:
    """A rank's timeline without one operation."""
    return puts(
        timeline, **{name: _dropped(getattr(timeline, name), index) for name in ("operations", "start_s", "end_s")}
    )


def _dropped(values: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return values[:index] + values[index + 1 :]


def _moved_to_other_rank(schedule: PipelineSchedule) -> PipelineSchedule:
    """The last operation of rank 0 runs on rank 1, after everything there."""
    source, target = schedule.ranks
    added = {name: (*getattr(target, name), getattr(source, name)[-1]) for name in ("operations", "start_s", "end_s")}
    return retext(puts(schedule, ranks=(without(source, len(source.operations) - 1), puts(target, **added))))


def _doubled_transfer(schedule: PipelineSchedule) -> PipelineSchedule:
    return _extra_transfer(schedule, schedule.transfers[0].transfers[0])


def _extra_transfer(schedule: PipelineSchedule, text: str) -> PipelineSchedule:
    """One more message at the end of the first link."""
    first = schedule.transfers[0]
    added = puts(
        first,
        transfers=(*first.transfers, text),
        start_s=(*first.start_s, 9.0),
        end_s=(*first.end_s, 9.1),
    )
    return put(schedule, "transfers.0", added)


def _tight_memory(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
    """All forwards first on GPUs that hold three micro-batches, not four; nothing in the plan admits it."""
    first = plan.memory[0]
    greedy = build_plan(request, forgery=Forgery(all_forward_first=True))
    return _with_limit(request, greedy, first.total_bytes + first.activations_bytes / 2)


def _small_memory(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
    return _with_limit(request, plan, 0.99 * plan.memory[0].total_bytes)


def _with_limit(request: PlanRequest, plan: Plan, limit_bytes: float) -> tuple[PlanRequest, Plan]:
    """GPUs with so much memory to use, stated as such."""
    uses = tuple(put(use, "limit_bytes", limit_bytes) for use in plan.memory)
    headroom = 1 - limit_bytes / 8e10
    return put(request, "constraints.memory_headroom_fraction", headroom), put(plan, "memory", uses)


def _exchange(name: str, rule: str, stage: int, **changes: Any) -> Corruption:
    """A corruption of one exchange whose end, and all that follows from it, is forged as well."""

    def corrupt(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
        return request, settled(request, exchanged(plan, stage, **changes))

    return Corruption(name, frozenset({rule}), corrupt)


def _in_turns(name: str, rule: str, **changes: Any) -> Corruption:
    """A corruption of a plan whose first route takes turns on its link."""

    def corrupt(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
        return request, settled(request, puts(plan, **changes))

    forgery = Forgery(messages_take_turns=True, staggered=True)
    return Corruption(name, frozenset({rule}), corrupt, forgery=forgery)


def _one_narrow_link(**changes: Any) -> dict[str, Any]:
    return cluster() | {"links": [link("east-west", "east", "west", capacity_bytes_per_s=5e10, **changes)]}


TIMELINES = (
    demand("another stack than asked for", "stack-profile", options__stack_profile="megatron-2021"),
    edit("a timeline too many", "timeline-per-route", timelines=lambda old: (*old, old[1])),
    edit("a timeline of no route", "timeline-per-route", timelines=lambda old: (*old, put(old[1], "route", "r9"))),
    lie("another number of micro-batches", "problem-shape", forgery=Forgery(scheduled_microbatches=6)),
    lie("forged stage time", "stage-times", forgery=Forgery(stage_times=0.9)),
    lie("slowed stage time", "stage-times", forgery=Forgery(stage_times=1.1)),
    lie("forged context", "stage-bytes", forgery=Forgery(context_bytes=0.5)),
    Corruption("memory overflow at one instant", frozenset({"memory-limit"}), _tight_memory),
    Corruption("memory overflow", frozenset({"memory-limit"}), _small_memory),
    edit("forged weights", "memory-report", memory__0__weights_bytes=1e9),
    edit("a rank without memory", "memory-report", memory=lambda old: old[1:]),
)

SCHEDULES = (
    bent(
        "lists that do not line up",
        "schedule-completeness",
        lambda one: put(one, "transfers.0.start_s", lambda old: old[1:]),
    ),
    bent(
        "missing operation",
        "schedule-missing-operation",
        lambda one: retext(put(one, "ranks.0", lambda old: without(old, -1 + len(old.operations)))),
    ),
    bent("missing message", "schedule-missing-transfer", lambda one: put(one, "transfers", lambda old: old[1:])),
    bent("operation of no stage", "schedule-unknown-operation", lambda one: _extra_transfer(one, "7F0")),
    bent("message stated twice", "schedule-duplicate", _doubled_transfer),
    bent("fused in a split schedule", "schedule-fused", lambda one: _extra_transfer(one, "1BW0")),
    bent("operation on another rank", "schedule-wrong-rank", _moved_to_other_rank),
    bent("operation cut short", "schedule-duration", lambda one: put(one, "ranks.1.end_s.0", lambda old: old - 1e-3)),
    bent("overlapping operations", "schedule-rank-exclusive", lambda one: shifted(one, "ranks.0", 1, -4e-3)),
    bent(
        "overlapping messages",
        "schedule-link-exclusive",
        lambda one: shifted(one, "transfers.1", 2, 1e-3),
        forgery=Forgery(all_forward_first=True, hop_transfer=20.0),
    ),
    bent("broken precedence", "schedule-precedence", lambda one: shifted(one, "transfers.1", 0, -1e-3)),
    Corruption("messages that nobody waits for", frozenset({"schedule-blocking-sends"}), _not_waiting),
    bent(
        "gradients exchanged before they exist",
        "schedule-gradient-sync",
        lambda one: shifted(one, "transfers.3", 0, -1e-3),
        forgery=Forgery(gradient_sync_s=1e-3),
    ),
    edit(
        "activations over the budget", "schedule-memory", timelines__1__problem__ranks__0__activation_budget_bytes=2e9
    ),
    bent("forged peak", "schedule-peak-memory", lambda one: put(one, "ranks.0.peak_memory_bytes", 1e9)),
    bent("wrong makespan", "schedule-totals", lambda one: put(one, "makespan_s", lambda old: 0.9 * old)),
)

HOPS = (
    lie("forged hop latency", "hop-latency", forgery=Forgery(hop_latency=0.5)),
    lie("a message faster than the cards", "hop-rate", forgery=Forgery(hop_transfer=0.5)),
    lie(
        "replicas that overload a link together",
        "hop-share",
        request=build_request(cluster=_one_narrow_link()),
        forgery=Forgery(num_sharers=1),
    ),
    _in_turns(
        "sharing all at once made to look late", "hop-sharing", timelines__0__other_sharing__end_s=lambda old: 2.0 * old
    ),
    _in_turns(
        "messages all at once that take longer than the round",
        "hop-sharing",
        timelines__0__other_sharing__hops__0__transfer_s=lambda old: 2.0 * old,
    ),
    edit("replicas that start late although none takes turns", "hop-stagger", timelines__1__stagger_s=1e-4),
)

EXCHANGES = (
    edit("an exchange stated twice", "exchange-complete", exchanges=lambda old: (*old, old[0])),
    edit("a forgotten exchange", "exchange-complete", exchanges=lambda old: old[1:], settle=True),
    edit("gradients ready too early", "exchange-ready", exchanges__0__last_weight_grad_end_s=lambda old: 0.9 * old),
    _exchange("an exchange that starts too early", "exchange-ready", 1, start_s=lambda old: old - 0.05),
    _exchange("more overlap than work", "exchange-ready", 1, overlap_s=1.0),
    _exchange("an exchange faster than its link", "exchange-shared", 1, shared_s=lambda old: 0.5 * old),
    lie(
        "an exchange that forgets the messages beside it",
        "exchange-room",
        request=build_request(cluster=_one_narrow_link(latency_s=1e-4)),
        forgery=Forgery(hop_transfer=10.0, exchange_shared=1.0 / MARGIN),
    ),
    edit("an exchange that ends early", "exchange-end", exchanges__0__end_s=lambda old: 0.99 * old),
)

WHEN = TIMELINES + SCHEDULES + HOPS + EXCHANGES
