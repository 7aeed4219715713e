"""The folder through which the launcher and its processes talk: cases in, results out."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field

from app.exporters.replay_case import ReplayCase
from app.replay.delay_line import reserve
from models.base import Count, Frozen, PositiveCount

POLL_S = 0.05


class ReplayJob(Frozen):
    """Cases that the same processes execute one after another."""

    cases: tuple[ReplayCase, ...] = Field(min_length=1, description="What to execute.", examples=[[]])
    num_warm_ups: Count = Field(1, description="Steps before the first measured one.", examples=[1])
    num_repetitions: PositiveCount = Field(3, description="Measured steps.", examples=[3])

    def write(self, folder: Path) -> None:
        """Everything that the processes read."""
        (folder / "job.json").write_text(self.model_dump_json())
        for number, case in enumerate(self.cases):
            for at, pipeline in enumerate(case.pipelines):
                case_csv(folder, number, at).write_text(pipeline.comms_csv or pipeline.schedule_csv)
            reserve(case_table(folder, number), case, self.num_warm_ups + self.num_repetitions)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The job as the launcher wrote it."""
        return cls.model_validate_json((folder / "job.json").read_bytes())

    @property
    def expected_s(self) -> float:
        """Predicted time of all steps."""
        return sum(case.predicted_s for case in self.cases) * (self.num_warm_ups + self.num_repetitions)


def case_csv(folder: Path, number: int, pipeline: int) -> Path:
    """The schedule that PyTorch loads."""
    return folder / f"case-{number}-{pipeline}.csv"


def case_table(folder: Path, number: int) -> Path:
    """When every message was sent."""
    return folder / f"case-{number}.sent"


def result_file(folder: Path, rank: int) -> Path:
    """What one process measured."""
    return folder / f"result-{rank}.json"


def log_file(folder: Path, rank: int) -> Path:
    """What one process has to say, its last words included."""
    return folder / f"log-{rank}.txt"
