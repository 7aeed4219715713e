"""What an export is made for, who may read a launch folder, and the comment that says so at the top of a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

TrainerName = Literal["megatron-core", "torchtitan", "nemo", "pytorch"]
SchedulerName = Literal["slurm", "kubernetes", "ssh", "local"]


@dataclass(frozen=True)
class Target:
    """The tool that reads an export: which versions, and what the user has to bring."""

    tool: str
    versions: str
    needs: tuple[str, ...] = ()


def header(target: Target, losses: Iterable[str]) -> str:
    """Comment lines for formats whose comments begin with #: versions, needs, and what is lost."""
    lines = [f"for {target.tool} {target.versions}"]
    lines += [f"needs: {need}" for need in target.needs]
    lines += [f"not expressed: {loss}" for loss in losses]
    return "".join(f"# {one_line(line)}\n" for line in lines)


def one_line(text: str) -> str:
    r"""The text without anything that could end a line or hide: a comment stays a comment.

    >>> one_line("east\u2028--evil\x85")
    'east\\u2028--evil\\x85'
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
