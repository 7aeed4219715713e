"""What a launch needs beside the plan: trainer, scheduler, and the site's own words for queues, accounts and images.

Their names and their form are checked, because they end in a shell and in YAML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Literal

from app.faults import Refused, refused

TrainerName = Literal["megatron-core", "torchtitan", "nemo", "pytorch"]
SchedulerName = Literal["slurm", "kubernetes", "ssh", "local"]
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,250}")
DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
MAX_MINUTES = 525_600  # a year


@dataclass(frozen=True)
class LaunchOptions:
    """Who trains, who starts, and under which names of the site; None leaves a word to the site's default."""

    trainer: TrainerName
    scheduler: SchedulerName
    name: str = "isthmus"
    time_limit_minutes: int | None = None
    partition: str | None = None
    account: str | None = None
    block_topology: bool = False
    queue: str = "training"
    image: str = "registry.example/trainer:latest"

    def __post_init__(self) -> None:
        """Refuse what a shell or a manifest could take for something else."""
        if not DNS_LABEL.fullmatch(self.name):
            raise _refused("name", self.name, "at most 40 lower-case letters, digits and dashes, a letter first")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str) and not WORD.fullmatch(value):
                raise _refused(field.name, value, "letters, digits and . _ : / @ + -")
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
