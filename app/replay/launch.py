"""Executes schedules: starts the processes, waits for them, and puts their measurements together.

Needs PyTorch to be installed, but never imports it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import Field

from app.exporters.replay_case import TORCH_VERSION, ReplayCase
from app.faults import refused
from app.replay.job import ReplayJob, log_file, result_file
from models.base import Frozen, Name, Seconds

STARTING_S = 60.0  # importing PyTorch on a busy machine
STARTING_S_PER_RANK = 5.0  # its process group, and the reference model
SLOWEST = 4.0  # times the prediction, after which something hangs
MAX_TOTAL_S = 900.0
WORST = ("loss_difference", "gradient_difference", "parameter_difference", "largest_gradient")
ROUNDING = 1e-9  # of the largest gradient: sums of micro-batches in another order, in double precision


class ReplayFailed(RuntimeError):
    """A process ended without a measurement; the message holds its last lines."""


class Measured(Frozen):
    """An executed schedule: measured against predicted, and its steps against those of one process.

    Operations never end before their planned time, so other work on the machine only ever adds to a repetition: the
    fastest is the one it disturbed least.
    """

    name: Name = Field(description="Name of the case.", examples=["zb_h1"])
    predicted_s: Seconds = Field(description="Prediction in the time of the execution.", examples=[0.81])
    measured_s: Seconds = Field(description="The fastest of the repetitions.", examples=[0.83])
    repetitions_s: tuple[Seconds, ...] = Field(
        description="Every repetition: first start to the end of all.", examples=[[0.83, 0.84, 0.83]]
    )
    ratio: float = Field(description="Measured over predicted.", examples=[1.02], json_schema_extra={"unit": "1"})
    same_order: bool = Field(description="Every process ran its operations in the exported order.", examples=[True])
    loss: float = Field(description="Loss of the last step.", examples=[1.31])
    loss_difference: float = Field(description="Largest over all steps, to the model in one process.", examples=[0.0])
    gradient_difference: float = Field(description="Largest, over all parameters.", examples=[1e-17])
    parameter_difference: float = Field(description="Largest, after the last step of the optimizer.", examples=[1e-17])
    largest_gradient: float = Field(description="What to compare the differences with.", examples=[0.1])

    @property
    def median_s(self) -> float:
        """Median of the repetitions: far from the fastest where the machine was busy."""
        return median(self.repetitions_s)

    @property
    def same_result(self) -> bool:
        """Losses, gradients and parameters equal those of one process, but for the order of additions."""
        worst = max(self.loss_difference, self.gradient_difference, self.parameter_difference)
        return worst <= ROUNDING * self.largest_gradient


def check_torch() -> None:
    """Refuse with the way to install it when PyTorch is not there, or is another version."""
    try:
        found = importlib.metadata.version("torch").split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        found = ""
    if found != TORCH_VERSION:
        what = f"PyTorch {found} is installed" if found else "PyTorch is not installed"
        remedy = "In a checkout: make torch. Elsewhere: pip install 'isthmus[torch]' (a CPU build is enough)."
        raise refused("missing-field", f"{what}, but replaying needs its pipeline runtime", where="--with torch",
                      allowed=f"PyTorch {TORCH_VERSION}", remedy=remedy)  # fmt: skip


def execute(job: ReplayJob) -> tuple[Measured, ...]:
    """Run every case of the job; `ReplayFailed` when a process fails or hangs."""
    check_torch()
    if job.expected_s > MAX_TOTAL_S:
        raise refused("limit-exceeded", f"the steps would take {job.expected_s:,.0f} s", "",
                      f"at most {MAX_TOTAL_S:,.0f} s", "Lower --operation-ms or --repetitions.",
                      where="--operation-ms")  # fmt: skip
    num_ranks = job.cases[0].num_processes
    if any(case.num_processes != num_ranks for case in job.cases):
        raise ValueError("cases of one job have the same number of processes")
    with tempfile.TemporaryDirectory(prefix="isthmus-replay-") as name:
        folder = Path(name)
        job.write(folder)
        _run_processes(folder, num_ranks, SLOWEST * job.expected_s + STARTING_S + STARTING_S_PER_RANK * num_ranks)
        results = [json.loads(result_file(folder, rank).read_bytes()) for rank in range(num_ranks)]
    return tuple(_measured(case, [of_rank[at] for of_rank in results]) for at, case in enumerate(job.cases))


def _run_processes(folder: Path, num_ranks: int, limit_s: float) -> None:
    command = [sys.executable, "-m", "app.replay.worker", str(folder)]
    own_log = folder / "log.txt"
    with own_log.open("wb") as out:
        ranks = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        code = ranks.wait(limit_s)
    except subprocess.TimeoutExpired:
        words = _last_words([log_file(folder, rank) for rank in range(num_ranks)])
        raise ReplayFailed(f"not finished after {limit_s:.0f} s\n{words}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(ranks.pid, signal.SIGKILL)
        ranks.wait()
    if code != 0:
        logs = [own_log, *(log_file(folder, rank) for rank in range(num_ranks))]
        raise ReplayFailed(f"a process failed\n{_last_words(logs)}")


def _last_words(logs: Sequence[Path]) -> str:
    """The end of the log that holds an error and was written first: the others lost their partner after that."""
    written = sorted((log for log in logs if log.exists()), key=lambda log: log.stat().st_mtime_ns)
    texts = [log.read_text(errors="replace") for log in written]
    telling = [text for text in texts if "Error" in text] or [text for text in texts if text] or [""]
    return "\n".join(telling[0].splitlines()[-15:])


def _measured(case: ReplayCase, by_rank: Sequence[dict[str, Any]]) -> Measured:
    ends_s = [max(ends) for ends in zip(*(one["ends_s"] for one in by_rank), strict=True)]
    starts_s = [_first_start_s(spans) for spans in zip(*(one["spans"] for one in by_rank), strict=True)]
    repetitions = [end - start for end, start in zip(ends_s, starts_s, strict=True)]
    measured_s = min(repetitions)
    losses = [one["losses"][-1] for one in by_rank if one["losses"][-1] is not None]
    return Measured(
        name=case.name,
        predicted_s=case.predicted_s,
        measured_s=measured_s,
        repetitions_s=tuple(repetitions),
        ratio=measured_s / case.predicted_s,
        same_order=all(_in_order(case, process, one["spans"]) for process, one in enumerate(by_rank)),
        loss=losses[0],
        **{name: max(one[name] for one in by_rank) for name in WORST},
    )


def _first_start_s(spans_by_rank: Sequence[Sequence[tuple[str, float, float]]]) -> float:
    return min(start for spans in spans_by_rank for _, start, _ in spans)


def _in_order(case: ReplayCase, process: int, repetitions: Sequence[Sequence[tuple[str, float, float]]]) -> bool:
    """Whether the operations ran as exported; PyTorch's I and B are both a B here."""
    rank, replica = divmod(process, len(case.replicas))
    wanted = case.pipeline_of(replica).schedule_csv.splitlines()[rank].replace("I", "B").split(",")
    return all([name for name, _, _ in sorted(spans, key=lambda one: one[1])] == wanted for spans in repetitions)
