"""Corruptions of transport, link loads and totals."""

from __future__ import annotations

from typing import Any

from models.figures import ConvergencePoint
from models.plan import Alternative, Baseline, Degrees, Plan
from models.request import PlanRequest
from models.transport import LinkFlow, LinkLoad, LinkStep, MessagePath, MessageSplit
from tests.build_costs import Forgery
from tests.sensitivity.forge import Corruption, demand, edit, lie, put, puts, settled


def _alternative(iteration_s: float, slower_by: float) -> tuple[Alternative, ...]:
    return (
        Alternative(
            degrees=Degrees(tp=2, pp=2, dp=2),
            sharding="zero1",
            recompute="none",
            family="one_way",
            crossing="dp_out",
            iteration_s=iteration_s,
            slower_by=slower_by,
            why_second="bubble",
        ),
    )


def _history(incumbent_s: float | None, bound_s: float) -> Any:
    """One point before the plan's own end, or with its own incumbent where none is named."""

    def points(_: object) -> tuple[ConvergencePoint, ...]:
        return (ConvergencePoint(elapsed_s=1.0, incumbent_s=incumbent_s or 0.36, lower_bound_s=bound_s),)

    return points


ONE_PATH = MessageSplit(
    from_place="east",
    to_place="west",
    paths=(MessagePath(steps=(LinkStep(link="east-west", reverse=False),), part=1.0),),
)
TP, PP_ACROSS, DP_ACROSS = "transport__0__", "transport__2__", "transport__3__"


def _load(link: str, reverse: bool, *flows: LinkFlow, usable: float = 4e11) -> LinkLoad:
    return LinkLoad(
        link=link,
        reverse=reverse,
        usable_bytes_per_s=usable,
        flows=flows,
        mean_utilisation=0.0,
        peak_utilisation=0.5,
        headroom_bytes_per_s=usable / 2,
    )


def _halved(cause: int) -> Any:
    """Both directions carry half the bytes of one cause."""

    def halve(loads: tuple[LinkLoad, ...]) -> tuple[LinkLoad, ...]:
        return tuple(put(one, f"flows.{cause}.bytes_per_iteration", lambda old: old / 2) for one in loads)

    return halve


def _overloaded(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
    """Two thousand times the pipeline's bytes on the link, with true figures for them."""
    loads = tuple(
        puts(one, flows__0__bytes_per_iteration=lambda old: 2000 * old, peak_utilisation=5.0) for one in plan.link_loads
    )
    return request, settled(request, put(plan, "link_loads", loads))


def _from_nowhere(request: PlanRequest, plan: Plan) -> tuple[PlanRequest, Plan]:
    """Bytes leave a building that holds no GPU of the plan and receives none."""
    extra = _load("north-west", False, LinkFlow(cause="ep", bytes_per_iteration=1e6))
    forged = settled(request, put(plan, "link_loads", (*plan.link_loads, extra)))
    mean = forged.link_loads[-1].mean_utilisation
    return request, puts(
        forged,
        **{
            f"link_loads__{len(plan.link_loads)}__peak_utilisation": mean,
            f"link_loads__{len(plan.link_loads)}__headroom_bytes_per_s": 4e11 * (1 - mean),
        },
    )


def _baseline(speed_up: float | None) -> tuple[Baseline, ...]:
    return (Baseline(name="nemo-like", assumptions="", iteration_s=0.2, speed_up=speed_up),)


TRANSPORT = (
    edit("no choice for the exchange across", "transport-complete", transport=lambda old: old[:-1]),
    edit("no choice for tensor parallelism", "transport-complete", transport=lambda old: old[1:]),
    edit("a collective that tp never does", "transport-meaningful", **{TP + "collective": "all_to_all"}),
    edit("a member faster than its card", "transport-rate", **{DP_ACROSS + "effective_bytes_per_s": 9e10}),
    edit("a rate that the window does not fill", "transport-rate", **{DP_ACROSS + "num_outstanding": 1}),
    edit("half a message", "transport-message", **{PP_ACROSS + "message_bytes": lambda old: old / 2}),
    edit("a message faster than light", "transport-time", **{PP_ACROSS + "expected_s": 1e-6}),
    edit("a share that no bound covers", "transport-policy", transport_policy__exchange_share=0.9),
)

LINKS = (
    edit("a link that does not exist", "links-exist", link_loads=lambda old: (*old, _load("atlantic", False))),
    edit("a direction stated twice", "links-exist", link_loads=lambda old: (*old, _load("east-west", False))),
    edit(
        "forged capacity",
        "link-usable",
        link_loads__0__usable_bytes_per_s=8e11,
        link_loads__0__mean_utilisation=lambda old: old / 2,
        link_loads__0__peak_utilisation=lambda old: old / 2,
        link_loads__0__headroom_bytes_per_s=lambda old: old + 4e11,
    ),
    edit("forged utilisation", "link-utilisation", link_loads__0__mean_utilisation=0.01),
    edit(
        "overloaded link at one instant",
        "link-capacity",
        link_loads__0__peak_utilisation=1.2,
        link_loads__0__headroom_bytes_per_s=0.0,
    ),
    edit("a forged headroom", "link-headroom", link_loads__0__headroom_bytes_per_s=lambda old: old + 1e9),
    edit("a price of nobody's flow", "link-price", link_loads__0__price_s_per_gb=lambda old: 1.1 * old + 1e-6),
    edit("messages that work hides have a price", "message-price", link_loads__0__flows__0__price_s_per_gb=1e-12),
    Corruption("overloaded link", frozenset({"link-capacity", "pipeline-bytes", "message-price"}), _overloaded),
    edit("half the pipeline's bytes", "pipeline-bytes", link_loads=_halved(0), settle=True),
    edit("a split stated twice", "message-paths", message_splits=(ONE_PATH, ONE_PATH)),
    edit(
        "half of every message", "message-paths", "pipeline-bytes", message_splits=(put(ONE_PATH, "paths.0.part", 0.5),)
    ),
    edit("half the exchange's bytes", "exchange-bytes", link_loads=_halved(1), settle=True),
    Corruption("bytes from nowhere", frozenset({"loads-conserved"}), _from_nowhere),
    edit("wrong bytes between buildings", "cross-building-bytes", metrics__cross_building_bytes=1e9),
    demand("more bytes than allowed", "cross-building-limit", constraints__max_cross_building_bytes_per_iteration=1e9),
)

TOTALS = (
    edit("wrong total", "breakdown-sum", time__bubble_s=0.0),
    edit(
        "work called a bubble",
        "breakdown-work",
        time__bubble_s=lambda old: old + 0.01,
        time__compute_s=lambda old: old - 0.01,
    ),
    lie("forged optimizer", "optimizer-time", forgery=Forgery(optimizer=0.5)),
    lie("a longer iteration than timed", "iteration-time", forgery=Forgery(iteration=1.05)),
    lie("a shorter iteration than timed", "iteration-time", "replay-confirms", forgery=Forgery(iteration=0.95)),
    edit("a forged replay", "replay-confirms", metrics__shared_replay_s=lambda _: 0.3),
    edit("wrong count", "gpu-count", metrics__num_gpus=15),
    edit("wrong tokens per second", "throughput", metrics__tokens_per_s=1e6),
    edit("wrong MFU", "utilisation", metrics__model_flops_utilisation=0.6),
    edit("wrong cost", "cost", metrics__usd_per_million_tokens=0.1),
    edit("no cost although prices are known", "cost", metrics__usd_per_million_tokens=None),
    edit("bound above time", "bound-below-time", proof__lower_bound_s=9.0, proof__relative_gap=0.0),
    edit("forged gap", "gap-arithmetic", proof__relative_gap=0.005),
    edit("optimal outside the gap", "optimal-within-gap", proof__status="optimal"),
    demand("a target that is missed", "target-met", objective__kind="fewest_gpus", objective__target_iteration_s=0.1),
    edit("a forged speed-up", "baseline-arithmetic", baselines=_baseline(3.0)),
    edit("a speed-up over nothing", "baseline-arithmetic", baselines=_baseline(None)),
    edit("a forged ratio of an alternative", "alternatives-second", alternatives=_alternative(0.36, 0.2)),
    edit("an alternative that is better", "alternatives-second", alternatives=_alternative(0.18, -0.5)),
    edit("a search that ended with another plan", "convergence-ends", convergence=_history(1.0, 0.9)),
    edit("a search whose bound passed its plan", "convergence-ends", convergence=_history(None, 99.0)),
    edit("distance that saves time", "one-building", one_building_s=99.0),
    edit("one building beyond the speed of light", "one-building", one_building_s=1e-6),
)

HOW = TRANSPORT + LINKS + TOTALS
