"""Random what-ifs, answered briefly and then at length: how many intervals of gain does the longer answer contradict?

`python -m benchmarks.what_ifs [--seed S] [--minutes M] [--number N]` draws N changed worlds of small requests (200
unless told otherwise), answers them with a third of a second each and again with the rest of the time, and counts what
is contradicted: intervals without a point in common, a plan below the other answer's bound, a plan where the other has
a proof of none. The count has to be 0; it is the exit status.

`--figures NAME [--ask KIND]... [--seconds S]` asks every kind of question about an example instead, one after the other
on one core, and prints CPU seconds and what came out. `--figures published` is one wave of a 120 km line down.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.cross_site import published, request_of
from benchmarks.scale import fleet, job
from models.catalogue import named_entry
from models.least import FrontierPoint
from models.outcome import Planned
from models.plan import Plan
from models.question_parts import Gain
from models.questions import AnyQuestion, WhatIf, WhatIfAnswer
from models.request import PlanRequest
from models.what_now import WhatIfLostAnswer, WhatNowAnswer
from models.worth import CurvePoint, WorthAnswer
from solver.network.places import buildings_of
from solver.planner import plan
from solver.questions.ask import ask

CLOSE = 1e-9  # relative: values and bounds are sums of floats
SHORT_S = 0.35  # per what-if; less than a search looks at
VARIANTS = 8  # what-ifs of one request
GPU = {
    "name": "some-gpu", "bf16_flops_per_s": 1e15, "memory_bytes": 8e10, "memory_bytes_per_s": 3.35e12,
    "scale_up_bytes_per_s": 4.5e11, "scale_up_domain_gpus": 8, "usd_per_gpu_hour": 2.0,
}  # fmt: skip
ARCHITECTURE = {
    "name": "small-dense", "num_layers": 8, "hidden_size": 4096, "ffn_hidden_size": 14336, "vocab_size": 32000,
    "attention": {"kind": "gqa", "num_heads": 32, "num_kv_heads": 8, "head_dim": 128},
}  # fmt: skip
OBJECTIVES: tuple[dict[str, Any], ...] = (
    {}, {}, {"kind": "cost_per_token"}, {"kind": "fewest_gpus", "target_iteration_s": 0.4},
)  # fmt: skip
ROOM: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("/cluster/links/*/capacity_bytes_per_s", "multiply", (0.01, 0.3, 2.0, 10.0)),
    ("/cluster/links/east-west/latency_s", "replace", (0.0, 5e-3, 0.05)),
    ("/cluster/links/east-west/loss_probability", "replace", (1e-5, 1e-3)),
    ("/cluster/links/east-west/num_failed_planes", "replace", (1, 3)),
    ("/cluster/pools/west-pool/num_unhealthy_gpus", "replace", (4, 8)),
    ("/cluster/pools/*/gpu/memory_bytes", "multiply", (0.3, 0.5, 2.0)),
    ("/workload/global_batch_sequences", "replace", (8, 24, 32)),
    ("/constraints/max_gpus", "replace", (8, 16)),
    ("/constraints/memory_headroom_fraction", "replace", (0.0, 0.5)),
    ("/constraints/pipeline_may_cross_buildings", "replace", (False,)),
)

EXAMPLES: dict[str, Callable[[], Any]] = {
    "405b": lambda: named_entry("examples", "llama-405b-two-buildings"),
    "five-zones": lambda: named_entry("examples", "mixtral-five-zones"),
    "24-buildings": lambda: job(fleet(131_072, 24), 16_384),
}
PUBLISHED = "published"
UNDECIDED = "not decided yet"
PUBLISHED_S = 80.0  # for the base and one variant


def variant(random: Random, number: int) -> dict[str, Any]:
    """One changed world: one or two of what there is to change."""
    chosen = random.sample(ROOM, random.randint(1, 2))
    return {
        "name": f"variant {number}",
        "changes": [{"pointer": at, "op": op, "value": random.choice(values)} for at, op, values in chosen],
    }


def request(random: Random) -> PlanRequest:
    """A small job on two or three buildings."""
    names = ("east", "west", "north")[: random.choice((2, 3))]
    return PlanRequest.model_validate({
        "workload": {"architecture": ARCHITECTURE, "sequence_length": 4096, "global_batch_sequences": 16},
        "cluster": {
            "name": "random",
            "places": [{"id": "campus", "level": "region"},
                       *({"id": name, "level": "building", "parent": "campus"} for name in names)],
            "pools": [{"id": f"{name}-pool", "place": name, "gpu": GPU, "num_hosts": random.choice((1, 1, 2)),
                       "nic_bytes_per_s": 5e10} for name in names],
            "links": [{"id": f"{one}-{other}", "from_place": one, "to_place": other, "planes": 4,
                       "capacity_bytes_per_s": random.choice((2e10, 4e11)), "latency_s": random.choice((5e-4, 5e-3))}
                      for one, other in itertools.combinations(names, 2)],
        },
        "objective": random.choice(OBJECTIVES),
        "options": {"relative_gap": 0.0, "workers": 1},
    })  # fmt: skip


def answered(base: PlanRequest, variants: Sequence[Any], limit_s: float) -> WhatIfAnswer:
    """All what-ifs of a request within a time."""
    options = base.options.model_copy(update={"time_limit_s": limit_s})
    question = {"request": base.model_copy(update={"options": options}), "variants": variants}
    return ask(WhatIf.model_validate({**question, "options": {"time_limit_s": limit_s}}))


def contradictions(one: WhatIfAnswer, other: WhatIfAnswer) -> Iterator[str]:
    """What two answers to the same question cannot both be right in."""
    for first, second in zip(one.gains, other.gains, strict=True):
        yield from _of_gain(first, second)
    for answer in (one, other):
        for name, value, bound in (("base", answer.value, answer.lower_bound),
                                   *((gain.name, gain.value, gain.lower_bound) for gain in answer.gains)):  # fmt: skip
            if value is not None and bound is not None and bound > value * (1.0 + CLOSE):
                yield f"{name}: the bound {bound} is above the plan {value}"


def _of_gain(one: Gain, other: Gain) -> Iterator[str]:
    if {one.status, other.status} == {"planned", "infeasible"}:
        yield f"{one.name}: a plan and a proof of none"
    scale = max(abs(value) for value in (one.value, other.value, 1e-9) if value is not None)
    for first, second in ((one, other), (other, one)):
        if first.least is not None and second.most is not None and first.least > second.most + CLOSE * scale:
            yield f"{one.name}: gains at least {first.least}, and at most {second.most}"
        value, bound = first.value, second.lower_bound
        if value is not None and bound is not None and bound > value * (1.0 + CLOSE):
            yield f"{one.name}: a plan of {value} is below the bound {bound}"


@dataclass
class Tally:
    """What came out so far."""

    asked: int = 0
    decided: int = 0
    falsified: int = 0


def example(name: str) -> PlanRequest:
    """The request of an example, on one core."""
    document = dict(EXAMPLES[name]())
    return PlanRequest.model_validate({**document, "options": {**document.get("options", {}), "workers": 1}})


def twenty(request: PlanRequest) -> list[dict[str, Any]]:
    """Twenty what-ifs of a planner: the way between buildings, GPUs, memory, cards, the job."""
    return [{"name": f"{number} {name}", "changes": changes} for number, (name, changes) in enumerate((
        *((f"times {by} between buildings", _ways(request, "capacity", by)) for by in (0.25, 0.5, 0.8, 1.25, 2, 4)),
        *((f"{1000 * delay_s:g} ms", _ways(request, "latency_s", delay_s)) for delay_s in (1e-3, 2e-3, 5e-3, 2e-2)),
        *((f"memory times {by}", [_times("/cluster/pools/*/gpu/memory_bytes", by)]) for by in (0.8, 1.25, 2.0)),
        *((f"cards times {by}", [_times("/cluster/pools/*/nic_bytes_per_s", by)]) for by in (0.5, 2.0)),
        *((f"batch times {by}", [_times("/workload/global_batch_sequences", by)]) for by in (2, 4)),
        ("fp8", [{"pointer": "/workload/precision", "value": "fp8"}]),
        ("half of the GPUs", [{"pointer": "/constraints/max_gpus", "value": request.cluster.num_free_gpus // 2}]),
        ("no pipeline between buildings", [{"pointer": "/constraints/pipeline_may_cross_buildings", "value": False}]),
    ))]  # fmt: skip


def _times(pointer: str, by: float) -> dict[str, Any]:
    return {"pointer": pointer, "op": "multiply", "value": by}


def _ways(request: PlanRequest, what: str, value: float) -> list[dict[str, Any]]:
    """The change made to every link, or where none is stated to the uplink of every building."""
    if request.cluster.links:
        by_capacity = _times("/cluster/links/*/capacity_bytes_per_s", value)
        return [by_capacity if what == "capacity" else {"pointer": f"/cluster/links/*/{what}", "value": value}]
    uplinks = [f"/cluster/places/{one.id}/uplink" for one in request.cluster.places if one.level == "building"]
    if what == "capacity":
        return [_times(f"{at}/oversubscription", 1.0 / value) for at in uplinks]
    return [{"pointer": f"{at}/{what}", "value": value} for at in uplinks]


def questions(request: PlanRequest, found: Plan) -> dict[str, dict[str, Any]]:
    """A question of every kind about a request; those after the what-ifs begin with a plan of it."""
    pools = {pool.id: pool.place for pool in request.cluster.pools}
    lost = buildings_of(request.cluster)[pools[found.placement.routes[0].pools[0]]]
    clash = {"tp": [1], "pp": [1], "sharding": ["zero1"], "recompute": ["none"]}
    evening = {"name": "a quarter of the way", "changes": _ways(request, "capacity", 0.25)}
    detour = {"name": "20 ms", "changes": _ways(request, "latency_s", 0.02)}
    slow = {"name": "a slow pool", "slow_pools": [{"pool": next(iter(pools)), "times": 1.2}]}
    kinds: dict[str, dict[str, Any]] = {
        "why_not": {"changes": [{"pointer": "/constraints/allowed", "value": clash}]},
        "what_if": {"variants": twenty(request)},
        "worth": {"of": ["links", "distance"]},
        "curves": {"over": ["bandwidth", "latency"] if request.cluster.links else ["memory"]},
        "least": {"target": {"iteration_s": 1.25 * found.metrics.iteration_s}, "of": ["gpus", "fibre", "memory"]},
        "frontier": {"against": ["gpus", "bytes"]},
        "what_now": {"lost": [lost]},
        "what_if_lost": {},
        "robust": {"scenarios": [evening, detour, slow]},
    }
    with_plan = list(kinds)[list(kinds).index("worth") :]
    return {kind: {**parts, **({"plan": found} if kind in with_plan else {})} for kind, parts in kinds.items()}


def _interval(gain: Gain) -> str:
    return f"[{_number(gain.least)}, {_number(gain.most)}]"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}"


def _way_on(answer: WhatNowAnswer) -> str:
    if answer.chosen is None:
        return str(answer.outcome)
    one = answer.points[answer.chosen]
    moves = f"{answer.num_groups_lost} of {answer.num_groups_before} groups lost, {one.num_moved} move"
    time = f"{one.iteration_s:.4g} s (at least {one.lower_bound_s:.4g}), before {_number(answer.before_s)} s"
    return f"{moves} (at least {one.least_moved}), {time}"


def _worth(answer: WorthAnswer) -> str:
    first = [f"first {one.name} {_interval(one.useful)}" for one in answer.values[:1]]
    near = answer.in_one_building
    return "; ".join([*first, *([] if near is None else [f"in one building {_interval(near)}"])])


def _gaps(points: Sequence[CurvePoint | FrontierPoint]) -> str:
    worst = max((1.0 if one.relative_gap is None else one.relative_gap for one in points), default=1.0)
    return f"{len(points)} points, gaps up to {100 * worst:.1f} %"


def _lost(answer: WhatIfLostAnswer) -> str:
    tried = [one.answer for one in answer.losses if one.answer is not None]
    chosen = [one.points[one.chosen] for one in tried if one.chosen is not None]
    still = sum(one.num_moved == 0 for one in chosen)
    return f"{len(tried)} of {len(answer.losses)} prepared, {len(chosen)} with a plan, {still} move nothing"


SAID: dict[str, Callable[[Any], str]] = {
    "why_not": lambda one: f"{one.outcome}, {len(one.conflicts)} conflicts, {len(one.relaxations)} ways out",
    "what_if": lambda one: (
        f"{sum(gain.verdict != UNDECIDED for gain in one.gains)} of {len(one.gains)} decided, "
        f"{sum(gain.value is not None for gain in one.gains)} planned"
    ),
    "worth": _worth,
    "curves": lambda one: "; ".join(f"{curve.over} {_gaps(curve.points)}" for curve in one.curves),
    "least": lambda one: ", ".join(
        f"{least.of} {_number(least.lower_bound)} to {_number(least.value)} {least.unit}" for least in one.least
    ),
    "frontier": lambda one: "; ".join(f"{some.against} {_gaps(some.points)}" for some in one.frontiers),
    "what_now": _way_on,
    "what_if_lost": _lost,
    "robust": lambda one: f"worst {_number(one.value_s)} s, none below {_number(one.lower_bound_s)} s",
}
"""What an answer comes to, in one line, by its kind."""


def figures(name: str, kinds: Sequence[str], seconds: float | None) -> None:
    """CPU seconds and outcome of every kind of question about an example: each has twice the time of its plan."""
    request, began_s = example(name), time.process_time()
    outcome = plan(request, clock=time.process_time)
    assert isinstance(outcome, Planned)
    plan_s, metrics = time.process_time() - began_s, outcome.plan.metrics
    gap = 100 * outcome.plan.proof.relative_gap
    _row(name, "plan", plan_s, f"{metrics.iteration_s:.4g} s, gap {gap:.1f} %")
    limit_s = seconds or 2.0 * request.options.time_limit_s
    for kind, parts in questions(request, outcome.plan).items():
        if not kinds or kind in kinds:
            document = {"ask": kind, "request": request, **parts, "options": {"time_limit_s": limit_s}}
            question, began_s = AnyQuestion.model_validate(document).root, time.process_time()
            answer = ask(question, clock=time.process_time)
            complete = "" if answer.complete else "; not complete"
            _row(name, kind, time.process_time() - began_s, SAID[kind](answer) + complete)


def _row(name: str, what: str, cpu_s: float, text: str) -> None:
    sys.stdout.write(f"{name:12s}  {what:12s}  {cpu_s:6.1f} CPU s  {text}\n")
    sys.stdout.flush()


def published_wave() -> None:
    """One wave down as a what-if, at every batch assumed: the throughput changes by LB0 / T1 - 1 to T0 / LB1 - 1."""
    row = next(one for one in published() if one["quantity"] == "wave_down_pct")
    down = {"name": "one wave down", "changes": [{"pointer": "/cluster/links/line/num_failed_planes", "value": 1}]}
    for batch in row.batches:
        began_s = time.process_time()
        question = {"request": request_of(row, batch), "variants": [down], "options": {"time_limit_s": PUBLISHED_S}}
        answer = ask(WhatIf.model_validate(question), clock=time.process_time)
        gain = answer.gains[0]
        assert None not in (answer.value, answer.lower_bound, gain.least, gain.most)
        least, most = (100 * known / (known - gained) - 100
                       for known, gained in ((answer.lower_bound, gain.least), (answer.value, gain.most)))  # fmt: skip
        _row(PUBLISHED, f"batch {batch}", time.process_time() - began_s,
             f"throughput {least:+.1f} to {most:+.1f} %, published {row['published_low']} %")  # fmt: skip


def main() -> int:
    """Prints a line for every request and what was contradicted; the number of these is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--figures", choices=(*EXAMPLES, PUBLISHED), help="ask every kind about an example instead")
    parser.add_argument("--ask", action="append", default=[], help="only this kind")
    parser.add_argument("--seconds", type=float, help="CPU seconds for each question")
    arguments = parser.parse_args()
    if arguments.figures == PUBLISHED:
        published_wave()
        return 0
    if arguments.figures:
        figures(arguments.figures, arguments.ask, arguments.seconds)
        return 0
    random, tally, ends_s = Random(arguments.seed), Tally(), time.monotonic() + 60.0 * arguments.minutes
    while tally.asked < arguments.number:
        variants = [variant(random, number) for number in range(min(VARIANTS, arguments.number - tally.asked))]
        base = request(random)
        left_s = (ends_s - time.monotonic()) * len(variants) / (arguments.number - tally.asked)
        short_s = SHORT_S * (len(variants) + 1)
        short = answered(base, variants, short_s)
        long = answered(base, variants, max(left_s - short_s, 2.0 * short_s))
        found = list(contradictions(short, long))
        tally.asked += len(variants)
        tally.falsified += len(found)
        tally.decided += sum(gain.verdict != UNDECIDED for gain in long.gains)
        sys.stdout.write(f"{tally.asked:5d} asked, {tally.decided} decided, {tally.falsified} falsified\n")
        sys.stdout.writelines(f"      {line}\n" for line in found)
        sys.stdout.flush()
    return min(tally.falsified, 100)


if __name__ == "__main__":
    sys.exit(main())
