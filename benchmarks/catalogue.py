"""Every model of the catalogue on every cluster: a judged plan or a typed reason, with what it took.

`python -m benchmarks.catalogue [--time-limit S] [--model NAME] [--cluster NAME]` prints the table and exits with 1 when
a pair ends in anything else. Times to the first plan depend on the machine; the bound, the gap and the verdict do not.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from dataclasses import dataclass

from models.catalogue import entry_names
from models.outcome import Infeasible, NotFound, Outcome, Planned
from models.request import Options, PlanRequest
from models.workload import Workload
from solver.planner import plan

SEQUENCE_LENGTH = 8192
BATCH = {"region-5x38": 14592, "five-cloud-zones": 640}
USUAL_BATCH = 2048


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    cluster: str
    outcome: Outcome | None
    first_plan_s: float | None
    elapsed_s: float
    error: str = ""

    @property
    def accounted_for(self) -> bool:
        """A judged plan or a typed reason."""
        if isinstance(self.outcome, Planned):
            return self.outcome.plan.verdict.accepted
        return isinstance(self.outcome, Infeasible)


def request_of(model: str, cluster: str, time_limit_s: float) -> PlanRequest:
    """A plausible job for the pair."""
    return PlanRequest(
        workload=Workload(
            architecture=model,  # type: ignore[arg-type]
            sequence_length=SEQUENCE_LENGTH,
            global_batch_sequences=BATCH.get(cluster, USUAL_BATCH),
        ),
        cluster=cluster,  # type: ignore[arg-type]
        options=Options(time_limit_s=time_limit_s),
    )


def run(model: str, cluster: str, time_limit_s: float) -> Row:
    """Plan one pair."""
    started = time.monotonic()
    first: list[float] = []
    try:
        outcome = plan(
            request_of(model, cluster, time_limit_s),
            incumbent=lambda _: first.append(time.monotonic() - started) if not first else None,
        )
    except Exception as error:  # a crash is a row of the table, not its end
        return Row(model, cluster, None, None, time.monotonic() - started, f"{type(error).__name__}: {error}")
    return Row(model, cluster, outcome, first[0] if first else None, time.monotonic() - started)


def text_of(row: Row) -> str:
    """The line as printed."""
    head = f"{row.model:24s} {row.cluster:18s} {row.elapsed_s:6.1f} s  "
    if isinstance(row.outcome, Planned):
        found = row.outcome.plan
        degrees = found.configuration.degrees
        return head + (
            f"first {row.first_plan_s or 0.0:5.1f} s  {found.metrics.iteration_s:9.3f} s  "
            f"gap {100 * found.proof.relative_gap:5.1f} %  MFU {100 * found.metrics.model_flops_utilisation:4.1f} %  "
            f"{found.placement.crossing:6s} tp{degrees.tp} cp{degrees.cp} ep{degrees.ep} pp{degrees.pp}x{degrees.vpp} "
            f"dp{degrees.dp}  {'accepted' if found.verdict.accepted else 'REJECTED'}"
        )
    if isinstance(row.outcome, Infeasible):
        return head + f"infeasible: {row.outcome.reasons[0].code}: {row.outcome.reasons[0].detail}"
    if isinstance(row.outcome, NotFound):
        return head + f"NOT FOUND: {row.outcome.detail}"
    return head + f"CRASH {row.error}"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--model", action="append")
    parser.add_argument("--cluster", action="append")
    arguments = parser.parse_args()
    bad = 0
    for cluster in arguments.cluster or entry_names("clusters"):
        for model in arguments.model or entry_names("models"):
            row = run(model, cluster, arguments.time_limit)
            bad += not row.accounted_for
            sys.stdout.write(text_of(row) + "\n")
            sys.stdout.flush()
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sys.stdout.write(f"{bad} pairs without a judged plan or a typed reason; peak memory {peak_gib:.2f} GiB\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
