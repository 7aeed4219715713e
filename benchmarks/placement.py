"""The placement model alone: unequal places, many replicas, proven optimal or how far from it.

`python -m benchmarks.placement [--time-limit S] [--drawn N]` prints one row per case and exits with 1 when one of 24
places is left unproven. Each case is solved with 512 and with 65,536 replicas and as much more room: the programme has
the same size. `--drawn` solves N random cases instead, of 2 to 24 places, and says how many are left unproven.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass

from solver.placement.problem import PlacementProblem, Prices, Tier, loss_s
from solver.placement.solve import place


@dataclass(frozen=True)
class Case:
    """Ranks, places, replicas, and how dear a crossing of the pipeline is beside an exchange between two places."""

    name: str
    crossing_s: float
    span_s: float
    slot_s: float = 0.0
    capacity: float = 1.05
    num_ranks: int = 16
    num_places: int = 24
    num_replicas: int = 512


CASES = (
    Case("crossing dear, exchange cheap", crossing_s=0.2, span_s=0.005),
    Case("crossing cheap, exchange dear", crossing_s=0.002, span_s=0.1),
    Case("both alike", crossing_s=0.02, span_s=0.02),
    Case("both alike, thin links", crossing_s=0.02, span_s=0.02, slot_s=1e-4),
    Case("no room to spare", crossing_s=0.02, span_s=0.02, capacity=1.0),
    Case("few large places", crossing_s=0.01, span_s=0.1, num_places=4),
    Case("large places, ranks may stay whole", crossing_s=0.01, span_s=0.1, capacity=2.5),
)


def problem_of(case: Case, *, factor: int = 1, seed: int = 0) -> PlacementProblem:
    """Places of unequal size in four regions, with so much more room than the replicas need."""
    draw = random.Random(seed)
    weight = [draw.uniform(0.4, 1.6) for _ in range(case.num_places)]
    groups = case.capacity * case.num_ranks * case.num_replicas
    capacity = [int(groups * one / sum(weight)) for one in weight]
    capacity[0] += max(case.num_ranks * case.num_replicas - sum(capacity), 0)
    places = tuple(range(case.num_places))
    tiers = (
        Tier(case.crossing_s, tuple(u % 4 for u in places)),
        Tier(3.0 * case.crossing_s, (0,) * case.num_places),
    )
    prices = Prices(
        tiers, (case.span_s,) * case.num_ranks, slot_b=(case.slot_s / factor,) * case.num_places, work_s=0.01
    )
    return PlacementProblem(
        num_ranks=case.num_ranks,
        num_replicas=case.num_replicas * factor,
        num_microbatches=32,
        capacity_u=tuple(one * factor for one in capacity),
        building_u=places,
        allowed_pu=((True,) * case.num_places,) * case.num_ranks,
        prices=prices,
    )


def drawn(number: int) -> Case:
    """A random case, the same for the same number."""
    draw = random.Random(number)
    return Case(
        f"drawn {number}",
        crossing_s=draw.choice([0.002, 0.01, 0.02, 0.05, 0.2]),
        span_s=draw.choice([0.005, 0.02, 0.05, 0.1]),
        slot_s=draw.choice([0.0, 1e-5, 1e-4]),
        capacity=draw.choice([1.0, 1.02, 1.05, 1.2, 1.5, 2.5]),
        num_ranks=draw.choice([4, 8, 16]),
        num_places=draw.choice([2, 3, 4, 5, 6, 8, 12, 16, 24]),
        num_replicas=draw.choice([64, 512]),
    )


def solved(case: Case, problem: PlacementProblem, limit_s: float) -> bool:
    """Print the row of a case; whether it is proven."""
    started = time.monotonic()
    found = place(problem, time_limit_s=limit_s)
    took = time.monotonic() - started
    proven = found is not None and found.proven
    text = "none" if found is None else f"{loss_s(problem, found.routes):8.4f} s  bound {found.bound_s:8.4f} s  "
    state = "" if found is None else ("proven" if proven else "OPEN") + f"  {len(found.routes)} routes"
    size = f"{case.num_ranks} ranks, {case.num_places} places, {problem.num_replicas:6d} replicas"
    sys.stdout.write(f"{case.name:36s} {size}  {took:6.2f} s  {text}{state}\n")
    sys.stdout.flush()
    return proven


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--drawn", type=int, default=0, help="so many random cases instead")
    arguments = parser.parse_args()
    if arguments.drawn:
        cases = [(drawn(number), 1) for number in range(arguments.drawn)]
    else:
        cases = [(case, factor) for case in CASES for factor in (1, 128)]
    missed, unproven = 0, 0
    for number, (case, factor) in enumerate(cases):
        seed = number if arguments.drawn else 0
        proven = solved(case, problem_of(case, factor=factor, seed=seed), arguments.time_limit)
        unproven += not proven
        missed += not proven and case.num_places == 24
    sys.stdout.write(f"{unproven} of {len(cases)} left unproven\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
