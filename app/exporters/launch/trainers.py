"""What a trainer gets in a bundle: its files, the command that every rank becomes, and what it cannot be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from app.exporters import (
    megatron_args,
    megatron_communicators,
    nccl_env,
    replay_case,
    torch_schedule_csv,
    torchtitan_args,
)
from app.exporters.launch import nemo_job, torchtitan_job
from app.exporters.target import TrainerName
from models.plan import Plan
from models.request import PlanRequest

Files = Mapping[str, str]


@dataclass(frozen=True)
class Trainer:
    """One trainer: its files, its command after `source site.env`, and the data arguments that a trial run takes."""

    tool: str
    versions: str
    files: Callable[[Plan, PlanRequest], Files]
    losses: Callable[[Plan, PlanRequest | None], Iterator[str]]
    command: str
    arguments_file: str | None
    trial_arguments: str
    trainer_folder: str
    one_connection: bool = False  # it wants kernels to start in the order in which they are queued


def _megatron_files(plan: Plan, request: PlanRequest) -> Files:
    return {
        "megatron.args": megatron_args.megatron_args(plan, request),
        megatron_args.COMMUNICATORS_FILE: megatron_communicators.megatron_communicators(plan, request),
    }


def _torchtitan_files(plan: Plan, request: PlanRequest) -> Files:
    files = {
        "torchtitan.args": torchtitan_args.torchtitan_args(plan, request),
        "isthmus_job.py": torchtitan_job.torchtitan_job(plan, request),
    }
    if plan.configuration.degrees.pp > 1:
        files[torchtitan_args.SCHEDULE_FILE] = torch_schedule_csv.torch_schedule_csv(plan, request)
    return files


def _nemo_files(plan: Plan, request: PlanRequest) -> Files:
    return {
        "isthmus_job.py": nemo_job.nemo_job(plan, request),
        megatron_args.COMMUNICATORS_FILE: megatron_communicators.megatron_communicators(plan, request),
    }


def _pytorch_files(plan: Plan, request: PlanRequest) -> Files:
    return {replay_case.CASE_FILE: replay_case.iteration_case(plan, request).model_dump_json(indent=1) + "\n"}


TRAINERS: Mapping[TrainerName, Trainer] = {
    "megatron-core": Trainer(
        "Megatron-LM",
        megatron_args.TARGET.versions,
        _megatron_files,
        megatron_args.losses,
        'python -u "$TRAINER_FOLDER/pretrain_gpt.py"',
        "megatron.args",
        "--mock-data --tokenizer-type NullTokenizer --lr 1e-4 --train-iters 20 --log-interval 1",
        "/opt/Megatron-LM",
        one_connection=True,
    ),
    "torchtitan": Trainer(
        "torchtitan",
        torchtitan_args.TARGET.versions,
        _torchtitan_files,
        torchtitan_job.losses,
        "python -u -m torchtitan.train --module isthmus_job --config planned",
        "torchtitan.args",
        "--training.steps 20",
        "/opt/torchtitan",
    ),
    "nemo": Trainer(
        "Megatron-Bridge (NeMo)",
        "0.7, with Megatron-Core 0.20",
        _nemo_files,
        nemo_job.losses,
        "python -u isthmus_job.py",
        None,
        "train.train_iters=20",
        "/opt/Megatron-Bridge/src",
        one_connection=True,
    ),
    "pytorch": Trainer(
        "PyTorch's pipeline runtime",
        replay_case.TORCH_VERSION,
        _pytorch_files,
        replay_case.losses,
        f"isthmus replay {replay_case.CASE_FILE}",
        None,
        "",
        "",
    ),
}


def environment(trainer: Trainer, plan: Plan, request: PlanRequest) -> str:
    """Variables that every rank needs: NCCL's, and CUDA's for the trainers that ask for it.

    With tensor or context parallelism Megatron-LM wants one connection per device, so that kernels start in the order
    in which they are queued; with its own FSDP it refuses that. torchtitan shards fully whatever is planned.
    """
    is_asked = trainer.one_connection and plan.configuration.sharding not in ("fsdp", "hsdp")
    return nccl_env.nccl_env(plan, request) + ("export CUDA_DEVICE_MAX_CONNECTIONS=1\n" if is_asked else "")
