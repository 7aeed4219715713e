"""The processes of an executed schedule: `python -m app.replay.worker FOLDER`.

Imports PyTorch once and forks one process per pipeline rank and replica; each reads the cases from FOLDER, runs them in
PyTorch's runtime over gloo, and writes spans and differences to FOLDER. Ends all of them when one fails or the launcher
is gone.
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

from app.exporters.replay_case import EXCHANGE, ReplayCase
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
    ranks = [context.Process(target=_run_rank, args=(job, folder, rank)) for rank in range(job.cases[0].num_processes)]
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
    size = job.cases[0].num_processes
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    try:
        results = [_run_case(job, number, folder, rank) for number in range(len(job.cases))]
        result_file(folder, rank).write_text(json.dumps(results))
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _run_case(job: ReplayJob, number: int, folder: Path, process: int) -> dict[str, Any]:
    case = job.cases[number]
    rank, replica = divmod(process, len(case.replicas))
    pipeline, replicas = _groups(case, rank, replica)
    stages = [
        TimedStage(Block(one), one, case, replica, pipeline)
        for one, where in enumerate(case.rank_of_stage)
        if where == rank
    ]
    runtime = _runtime(case, stages, case_csv(folder, number, case.replicas[replica].pipeline))
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=LEARNING_RATE)
    part = tuple(torch.chunk(one, len(case.replicas))[replica] for one in _batch(case))
    spans, ends_s, losses, gradients = [], [], [], {}
    for repetition in range(job.num_warm_ups + job.num_repetitions):
        optimizer.zero_grad()
        line = DelayLine(case, SentTimes.in_file(case_table(folder, number), case, repetition, replica), replica)
        for stage in stages:
            stage.follow(line)
        gc.collect()
        dist.barrier()
        time.sleep(case.replicas[replica].shift_s)
        loss = _step(runtime, stages, part)
        _exchange(case, stages, replicas, line)
        gradients = {stage.stage_index: _gradients(stage.submod) for stage in stages}
        optimizer.step()
        time.sleep(case.closing_s)
        ends_s.append(time.monotonic())
        spans.append([span for stage in stages for span in stage.spans])
        losses.append(_mean_over(replicas, loss, len(case.replicas)))
    warm = job.num_warm_ups
    differences = _against_one_process(case, len(losses), gradients, stages, losses)
    return {"spans": spans[warm:], "ends_s": ends_s[warm:], "losses": losses, **differences}


def _groups(case: ReplayCase, rank: int, replica: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """The pipeline ranks of this replica and the replicas of this pipeline rank; every process makes all groups."""
    processes = torch.arange(case.num_processes).reshape(case.num_ranks, len(case.replicas))
    pipelines = [dist.new_group(one.tolist()) for one in processes.T]
    replicas = [dist.new_group(one.tolist()) for one in processes]
    return pipelines[replica], replicas[rank]


def _runtime(case: ReplayCase, stages: list[TimedStage], csv: Path) -> _PipelineScheduleRuntime:
    """PyTorch's runtime with the exported order."""
    runtime = _PipelineScheduleRuntime(stages, case.num_microbatches, loss_fn=nn.functional.mse_loss)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        form = "compute_comms" if case.pipelines[0].comms_csv else "compute_only"
        runtime._load_csv(str(csv), form)  # noqa: SLF001 - the only way in; the version is pinned
    return runtime


def _step(runtime: _PipelineScheduleRuntime, stages: list[TimedStage], batch: tuple[Tensor, ...]) -> Tensor | None:
    """Forward and backward of one step; the first stage is given the inputs, the last one the targets. Its loss."""
    inputs, targets = batch
    losses: list[Tensor] = []
    args = (inputs,) if any(stage.is_first for stage in stages) else ()
    with_loss = {"target": targets, "losses": losses} if any(stage.is_last for stage in stages) else {}
    runtime.step(*args, **with_loss)
    return torch.stack(losses).mean().detach() if losses else None


def _exchange(case: ReplayCase, stages: list[TimedStage], replicas: dist.ProcessGroup, line: DelayLine) -> None:
    """Mean of the gradients over the replicas, stage by stage in the planned order, as late as planned."""
    by_number = {stage.stage_index: stage for stage in stages}
    for message in case.exchanges:
        stage = by_number.get(int(message.operation.removesuffix(EXCHANGE)))
        if stage is None:
            continue
        for parameter in stage.submod.parameters():
            dist.all_reduce(parameter.grad, group=replicas)
            parameter.grad /= len(case.replicas)
        line.wait_for(message.operation)


def _mean_over(replicas: dist.ProcessGroup, loss: Tensor | None, num_replicas: int) -> float | None:
    """Loss of the step on every process of the last pipeline rank."""
    if loss is None:
        return None
    dist.all_reduce(loss, group=replicas)
    return float(loss) / num_replicas


def _batch(case: ReplayCase) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the step for all replicas, the same on every process."""
    generator = torch.Generator().manual_seed(SEED)
    shape = (len(case.replicas) * case.num_microbatches * SEQUENCES_PER_MICROBATCH, WIDTH)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))


def _gradients(block: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in block.parameters() if parameter.grad is not None]


def _against_one_process(
    case: ReplayCase,
    num_steps: int,
    gradients: dict[int, list[Tensor]],
    stages: list[TimedStage],
    losses: list[float | None],
) -> dict[str, float]:
    """Largest differences to the same steps of the model in one piece: losses, last gradients, last parameters."""
    model = nn.Sequential(*(Block(stage) for stage in range(case.num_stages)))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    inputs, targets = _batch(case)
    wanted_losses = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        # equal micro-batches and replicas: the mean of their means is the mean of the batch
        whole = nn.functional.mse_loss(model(inputs), targets)
        whole.backward()
        wanted_losses.append(whole.item())
        optimizer.step()
    wanted = {stage: _gradients(model[stage]) for stage in gradients}
    if any(len(gradients[stage]) != len(wanted[stage]) for stage in wanted):
        raise RuntimeError("a parameter of the pipeline has no gradient")
    after = {stage.stage_index: list(stage.submod.parameters()) for stage in stages}
    pairs = zip(losses, wanted_losses, strict=True)
    return {
        "loss_difference": max(abs(loss - one) if loss is not None else 0.0 for loss, one in pairs),
        "gradient_difference": _largest(gradients, wanted),
        "parameter_difference": _largest(after, {stage: list(model[stage].parameters()) for stage in after}),
        "largest_gradient": max(float(one.abs().max()) for ones in wanted.values() for one in ones),
    }


def _largest(found: dict[int, list[Any]], wanted: dict[int, list[Any]]) -> float:
    pairs = [pair for stage in wanted for pair in zip(found[stage], wanted[stage], strict=True)]
    return max(float((one - other).detach().abs().max()) for one, other in pairs)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
