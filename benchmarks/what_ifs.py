"""Random what-ifs, answered briefly and then at length: how many intervals of gain does the longer answer contradict?

`python -m benchmarks.what_ifs [--seed S] [--minutes M] [--number N]` draws N changed worlds of small requests (200
unless told otherwise), answers them with a third of a second each and again with the rest of the time, and counts what
is contradicted: intervals without a point in common, a plan below the other answer's bound, a plan where the other has
a proof of none. The count has to be 0; it is the exit status.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from models.question_parts import Gain
from models.questions import WhatIf, WhatIfAnswer
from models.request import PlanRequest
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


def main() -> int:
    """Prints a line for every request and what was contradicted; the number of these is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--number", type=int, default=200)
    arguments = parser.parse_args()
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
        tally.decided += sum(gain.verdict != "not decided yet" for gain in long.gains)
        sys.stdout.write(f"{tally.asked:5d} asked, {tally.decided} decided, {tally.falsified} falsified\n")
        sys.stdout.writelines(f"      {line}\n" for line in found)
        sys.stdout.flush()
    return min(tally.falsified, 100)


if __name__ == "__main__":
    sys.exit(main())
