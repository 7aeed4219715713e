"""Five schedules of one job over two buildings at three delays: the same work on every rank, whatever the layout.

Four ranks, two in each building, eight micro-batches. A rank holds one stage, or two chunks of half its size. Times are
in units of a forward; the buildings are `delay` apart, and a message takes their link for a quarter.
"""

from __future__ import annotations

from models.schedule import PipelineProblem, PipelineSchedule, layout_placement
from solver.pipeline.assemble import assemble
from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.problem import shape_of
from solver.pipeline.solve import solve_pipeline

DELAYS = (0.0, 2.0, 4.0)
OURS = "ours"
LAYOUTS = {"one_f_one_b": "one_way", "interleaved": "loop", "zb_h1": "one_way", "zbv": "v", OURS: "one_way"}
SIZE_OF_RANK = (1.0, 1.05, 0.95, 1.1)
FORWARD, INPUT_GRAD, WEIGHT_GRAD = 1.0, 1.1, 0.8
NUM_MICROBATCHES = 8
FUSED = frozenset({"one_f_one_b", "interleaved"})  # as published: they send a gradient after the whole backward
BUDGET = 4.5  # whole activations of the largest rank: what 1F1B holds on four ranks, for everybody but interleaved


def problem(name: str, delay: float) -> PipelineProblem:
    """The pipeline that the named schedule runs on."""
    num_ranks, layout = len(SIZE_OF_RANK), LAYOUTS[name]
    chunks = 1 if layout == "one_way" else 2
    placement = layout_placement(layout, num_ranks * chunks, num_ranks)
    sizes = [SIZE_OF_RANK[rank] / chunks for rank in placement]
    stages = [
        {
            "forward_s": FORWARD * size,
            "input_grad_s": INPUT_GRAD * size,
            "weight_grad_s": WEIGHT_GRAD * size,
            "activation_bytes": size,
            "weight_grad_context_bytes": size,
        }
        for size in sizes
    ]
    crossings = [stage for stage in range(len(stages) - 1) if placement[stage] // 2 != placement[stage + 1] // 2]
    hops = [
        {"from_stage": one, "to_stage": one + 1, "latency_s": delay, "transfer_s": 0.25, "link": "east-west"}
        for one in crossings
    ]
    budget = {} if name == "interleaved" else {"activation_budget_bytes": BUDGET}
    return PipelineProblem.model_validate(
        {
            "num_microbatches": NUM_MICROBATCHES,
            "ranks": [budget] * num_ranks,
            "layout": layout,
            "stages": stages,
            "hops": hops,
            "backward": "fused" if name in FUSED else "split_allowed",
            "options": {"time_limit_s": 20.0},
        }
    )


def schedule(name: str, asked: PipelineProblem) -> PipelineSchedule:
    """The named schedule: the generator's, or what the search finds."""
    if name == OURS:
        return solve_pipeline(asked)
    order = GENERATORS[name](shape_of(asked))
    assert order is not None
    return assemble(asked, order, generator=name, lower_bound_s=0.0, seconds=0.0)
