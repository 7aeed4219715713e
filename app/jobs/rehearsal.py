"""One small schedule before the first search, so that compiled kernels are on disk when somebody waits for a plan.

Owns that one task. It runs in a child like any other: nothing of it stays in this process.
"""

from __future__ import annotations

import logging

from app.jobs.child import Task
from app.jobs.children import Limits, run_in_child, warm_up
from app.settings import Settings
from models.schedule import PipelineHop, PipelineOptions, PipelineProblem, PipelineRank, PipelineStage

LOG = logging.getLogger("isthmus.rehearsal")
LIMIT_S = 60.0  # compiling takes seconds on a slow machine, and only the first time


def rehearse(settings: Settings) -> None:
    """Load the solvers and let them compile what they compile; a failure is logged and left to the first search."""
    warm_up()
    stage = PipelineStage(forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0, activation_bytes=1.0)
    problem = PipelineProblem(
        num_microbatches=4,
        ranks=(PipelineRank(activation_budget_bytes=2.0), PipelineRank()),
        stages=(stage, stage),
        hops=(PipelineHop(from_stage=0, to_stage=1, latency_s=0.5, transfer_s=0.25),),
        options=PipelineOptions(time_limit_s=1.0, workers=1),
    )
    task = Task("schedule", settings.solvers.schedule, (problem.model_dump_json().encode(),),
                settings.child_memory_bytes)  # fmt: skip
    limits = Limits(LIMIT_S, settings.soft_grace_s, settings.kill_grace_s, settings.child_memory_bytes)
    ended = run_in_child(task, limits)
    if ended.ending != "answered":
        LOG.warning("the rehearsal ended without an answer", extra={"ending": ended.ending})
