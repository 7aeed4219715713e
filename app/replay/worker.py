"""The processes of an executed schedule: `python -m app.replay.worker FOLDER`.

Imports PyTorch once and forks one process per rank; each reads the cases from FOLDER, runs them in PyTorch's runtime
over gloo, and writes spans and differences to FOLDER. Ends all of them when one fails or the launcher is gone.
Owns the training step and its unpipelined reference. Never judges what it measured.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from app.replay.case import ReplayCase
from app.replay.delay_line import DelayLine, SentTimes
from app.replay.job import POLL_S, ReplayJob, case_csv, case_table, log_file, result_file
from app.replay.torch_stage import SEED, WIDTH, Block, TimedStage

SEQUENCES_PER_MICROBATCH = 2
LEARNING_RATE = 0.1


def main(folder: Path) -> int:
    """Fork a process per rank and wait for all; 0 when every one has measured."""
    job = ReplayJob.read(folder)
    torch.set_num_threads(1)  # before the fork: a pool of threads would not survive it
    launcher = os.getppid()
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_run_rank, args=(job, folder, rank)) for rank in range(job.cases[0].num_ranks)]
    for rank in ranks:
        rank.start()
    try:
        while any(rank.exitcode is None for rank in ranks):
            if any(rank.exitcode for rank in ranks) or os.getppid() != launcher:
                return 1
            time.sleep(POLL_S)
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    return int(any(rank.exitcode for rank in ranks))


def _run_rank(job: ReplayJob, folder: Path, rank: int) -> None:
    """Run every case of the job as one of its processes."""
    log = os.open(log_file(folder, rank), os.O_WRONLY | os.O_CREAT)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    # gloo would look up the host's own name, which need not resolve; all processes are on this machine
    os.putenv("GLOO_SOCKET_IFNAME", next(name for _, name in socket.if_nameindex() if name.startswith("lo")))
    num_ranks = job.cases[0].num_ranks
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=num_ranks)
    try:
        results = [_run_case(job, number, folder, rank) for number in range(len(job.cases))]
        result_file(folder, rank).write_text(json.dumps(results))
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _run_case(job: ReplayJob, number: int, folder: Path, rank: int) -> dict[str, Any]:
    case = job.cases[number]
    inputs, targets = _batch(case)
    stages = [TimedStage(Block(one), one, case) for one, where in enumerate(case.rank_of_stage) if where == rank]
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=LEARNING_RATE)
    runtime = _PipelineScheduleRuntime(stages, case.num_microbatches, loss_fn=nn.functional.mse_loss)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        form = "compute_comms" if case.comms_csv else "compute_only"
        runtime._load_csv(str(case_csv(folder, number)), form)  # noqa: SLF001 - the only way in; the version is pinned
    repetitions = []
    losses: list[Tensor] = []
    for repetition in range(job.num_warm_ups + job.num_repetitions):
        optimizer.zero_grad()
        losses = []
        sent = SentTimes.in_file(case_table(folder, number), case, repetition)
        for stage in stages:
            stage.follow(DelayLine(case, sent))
        gc.collect()
        dist.barrier()
        _step(runtime, stages, (inputs, targets), losses)
        if repetition >= job.num_warm_ups:
            repetitions.append([span for stage in stages for span in stage.spans])
    gradients = {stage.stage_index: _gradients(stage.submod) for stage in stages}
    optimizer.step()
    loss = float(torch.stack(losses).mean()) if losses else None
    return {"spans": repetitions, "loss": loss, **_against_unpipelined(case, gradients, stages, loss)}


def _step(
    runtime: _PipelineScheduleRuntime, stages: list[TimedStage], batch: tuple[Tensor, Tensor], losses: list[Tensor]
) -> None:
    """One training step; the first stage is given the inputs, the last one the targets."""
    inputs, targets = batch
    args = (inputs,) if any(stage.is_first for stage in stages) else ()
    with_loss = {"target": targets, "losses": losses} if any(stage.is_last for stage in stages) else {}
    runtime.step(*args, **with_loss)


def _batch(case: ReplayCase) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the step, the same on every process."""
    generator = torch.Generator().manual_seed(SEED)
    shape = (case.num_microbatches * SEQUENCES_PER_MICROBATCH, WIDTH)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))


def _gradients(block: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in block.parameters() if parameter.grad is not None]


def _against_unpipelined(
    case: ReplayCase, gradients: dict[int, list[Tensor]], stages: list[TimedStage], loss: float | None
) -> dict[str, float]:
    """Largest differences to one step of the same model in one piece: loss, gradients, parameters after the step."""
    model = nn.Sequential(*(Block(stage) for stage in range(case.num_stages)))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    inputs, targets = _batch(case)
    # equal micro-batches: the mean of their means is the mean of the batch
    whole = nn.functional.mse_loss(model(inputs), targets)
    whole.backward()
    wanted = {stage: _gradients(model[stage]) for stage in gradients}
    optimizer.step()
    if any(len(gradients[stage]) != len(wanted[stage]) for stage in wanted):
        raise RuntimeError("a parameter of the pipeline has no gradient")
    after = {stage.stage_index: list(stage.submod.parameters()) for stage in stages}
    return {
        "loss_difference": abs(loss - whole.item()) if loss is not None else 0.0,
        "gradient_difference": _largest(gradients, wanted),
        "parameter_difference": _largest(after, {stage: list(model[stage].parameters()) for stage in after}),
        "largest_gradient": max(float(one.abs().max()) for ones in wanted.values() for one in ones),
    }


def _largest(found: dict[int, list[Any]], wanted: dict[int, list[Any]]) -> float:
    pairs = [pair for stage in wanted for pair in zip(found[stage], wanted[stage], strict=True)]
    return max(float((one - other).detach().abs().max()) for one, other in pairs)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
