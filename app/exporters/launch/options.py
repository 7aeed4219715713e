"""What a launch needs beside the plan: trainer, scheduler, hosts, and the site's own words for queues and images.

Their names and their form are checked, because they end in a shell and in YAML.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from app.exporters.target import SchedulerName, TrainerName
from app.faults import Refused, refused
from models.base import Frozen

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,250}")
WORDS = ("partition", "account", "queue", "image")  # the fields that hold such a word
DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
MAX_MINUTES = 525_600  # a year
MAX_HOSTS_CHARACTERS = 64 * 1024 * 1024
HostsField = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_HOSTS_CHARACTERS,
        description="A hosts file: `POOL=node[001-128]` a line, host names, a Slurm hostlist, or the JSON or YAML of "
        "`kubectl get nodes`.",
        examples=["east-pool=e[001-128]\nwest-pool=w[001-128]"],
    ),
]
Word = Annotated[str, Field(min_length=1, max_length=250)]


class Launch(Frozen):
    """Who trains, who starts, and on which hosts."""

    trainer: TrainerName = Field(description="The trainer.", examples=["megatron-core"])
    scheduler: SchedulerName = Field(description="What starts the processes.", examples=["slurm"])
    hosts: HostsField | None = Field(
        None, description="A hosts file; null takes the names that the plan has.", examples=["pool=node[1-8]"]
    )
    name: Word = Field("isthmus", description="Name of the job.", examples=["llama"])
    time_limit_minutes: int | None = Field(None, description="Time limit of the job.", examples=[1440])
    partition: Word | None = Field(None, description="Slurm's partition.", examples=["gpu"])
    account: Word | None = Field(None, description="Slurm's account.", examples=["research"])
    block_topology: bool = Field(
        False, description="Slurm has topology/block: segments are asked for (from 24.05).", examples=[False]
    )
    queue: Word = Field("training", description="Kueue's queue.", examples=["training"])
    image: Word = Field(
        "registry.example/trainer:latest", description="Image of the pods.", examples=["registry.example/trainer:1"]
    )

    def check(self) -> None:
        """Refuse what a shell or a manifest could take for something else."""
        if not DNS_LABEL.fullmatch(self.name):
            raise _refused("name", self.name, "at most 40 lower-case letters, digits and dashes, a letter first")
        for option in WORDS:
            value = getattr(self, option)
            if value is not None and not WORD.fullmatch(value):
                raise _refused(option, value, "letters, digits and . _ : / @ + -")
        limit = self.time_limit_minutes
        if limit is not None and not 1 <= limit <= MAX_MINUTES:
            raise _refused("time_limit_minutes", str(limit), f"1 to {MAX_MINUTES}")
        if (self.trainer == "pytorch") != (self.scheduler == "local"):
            what = f"{self.trainer} is not started by {self.scheduler}: pytorch runs on this machine alone, with local"
            raise refused("not-an-option", what, "/scheduler", "--for pytorch --on local, or neither of both",
                          "Change one of them.", where="--on")  # fmt: skip


def _refused(option: str, value: str, allowed: str) -> Refused:
    where = f"--{option.replace('_', '-')}"
    return refused("bad-pattern", f"{value[:60]!r} cannot be the {option.replace('_', ' ')}", f"/{option}", allowed,
                   "Give another value.", where=where)  # fmt: skip
