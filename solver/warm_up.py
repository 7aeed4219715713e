"""One small piece of every kind of work, so that what is compiled once on a computer is compiled.

Together the pieces call every compiled function that a search calls, with arrays of the same
kind. Its result is what the compiler leaves on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

from models.catalogue import named_entry
from models.request import PlanRequest
from models.schedule import Layout, PipelineHop, PipelineOptions, PipelineProblem, PipelineRank, PipelineStage
from solver.clock import WorkClock
from solver.pipeline.solve import finish, search_pipeline
from solver.planner import plan

PATIENCE_S = 600.0  # of the clock: compiling must not end a piece
WORK_S = 0.5  # counted, because the time that compiling takes must not end a piece
REFINING_S = 5.0  # counted, of a plan that goes on to every kind of bound
DEGREES = {"tp": [8], "cp": [1], "pp": [8], "vpp": [1, 2], "sharding": ["zero1"]}
FIRST_PLAN = {"time_limit_s": PATIENCE_S, "relative_gap": 0.99, "workers": 1, "reproducible": True}
REFINED = {**FIRST_PLAN, "time_limit_s": REFINING_S, "relative_gap": 0.01}


def warm_up(part: int = 0, num_parts: int = 1) -> None:
    """Time small pipelines of several kinds, and plan examples up to their first judged plans and one beyond.

    All of it, or every `num_parts`-th piece: parts that run side by side compile less twice than they save.
    """
    small, span, many, folded = (
        partial(_solve, problem)
        for problem in (_pipeline(6), _pipeline(6, objective="span"), _pipeline(40), _pipeline(6, layout="v"))
    )
    slow_links = partial(_solve, _pipeline(6, layout="loop", transfer_s=2.0))
    for piece in (small, _plan_examples, many, span, folded, slow_links)[part::num_parts]:
        piece()


def _solve(problem: PipelineProblem) -> None:
    finish(search_pipeline(problem, clock=WorkClock(lambda: 0.0, PATIENCE_S)))


def _plan_examples() -> None:
    for request in _requests():
        plan(request, clock=lambda: 0.0)  # counted work alone ends it


def _requests() -> Iterator[PlanRequest]:
    """GPUs of one kind, up to the first plan; two kinds under layers of different costs, on to the bounds after it."""
    alike, mixed = (named_entry("examples", name) for name in ("llama-405b-two-buildings", "llama-70b-mixed-gpus"))
    uneven = {**mixed, "workload": {**mixed["workload"], "architecture": "deepseek-v3"}}
    by_type = {**DEGREES, "dp": [8], "ep": [8, 16, 32], "layer_split": ["by_gpu_type"]}
    for example, allowed, options in ((alike, {**DEGREES, "dp": [256]}, FIRST_PLAN), (uneven, by_type, REFINED)):
        yield PlanRequest.model_validate({**example, "constraints": {"allowed": allowed}, "options": options})


def _pipeline(
    num_microbatches: int,
    *,
    objective: Literal["makespan", "span"] = "makespan",
    layout: Layout = "one_way",
    transfer_s: float = 0.5,
) -> PipelineProblem:
    """Unequal stages, cuts that share a link, little memory: nothing that a bound settles at once."""
    stages = tuple(
        PipelineStage(
            forward_s=forward_s,
            input_grad_s=1.25 * forward_s,
            weight_grad_s=0.75 * forward_s,
            activation_bytes=1.0,
            weight_grad_context_bytes=0.5,
        )
        for forward_s in (1.0, 1.5, 1.0, 1.25)
    )
    hops = tuple(
        PipelineHop(from_stage=stage, to_stage=stage + 1, latency_s=1.5, transfer_s=transfer_s, link="between")
        for stage in (0, 1, 2)
    )
    return PipelineProblem(
        num_microbatches=num_microbatches,
        ranks=(PipelineRank(activation_budget_bytes=4.0),) * (len(stages) if layout == "one_way" else len(stages) // 2),
        stages=stages,
        layout=layout,
        hops=hops,
        objective=objective,
        options=PipelineOptions(time_limit_s=WORK_S, workers=1),
    )
