"""The random family of pipelines that benchmarks run: reproducible from size and number alone.

Unequal stages (F within 20 %, B and W in proportion), 0 to 3 cuts, latency 0 to 8 F, transfer 0 to 2 F, half of the
cuts on one shared link, budgets of 1 to 2 times 1F1B's; times in milliseconds as a profiler gives them. The same as a
V: every stage in two chunks, each cut crossed on the way down and back up, and 0.6 to 1 times 1F1B's memory.
"""

from __future__ import annotations

import numpy as np

from models.schedule import PipelineHop, PipelineOptions, PipelineProblem, PipelineRank, PipelineStage

CHUNK_FIELDS = ("forward_s", "input_grad_s", "weight_grad_s", "activation_bytes", "weight_grad_context_bytes")


def random_case(num_ranks: int, num_microbatches: int, number: int, time_limit_s: float) -> PipelineProblem:
    """Case `number` of the family at this size."""
    random = np.random.default_rng([num_ranks, num_microbatches, number])
    stages = []
    for _ in range(num_ranks):
        forward_s = random.uniform(0.8, 1.2)
        stages.append(
            PipelineStage(
                forward_s=round(forward_s, 3),
                input_grad_s=round(forward_s * random.uniform(0.9, 1.2), 3),
                weight_grad_s=round(forward_s * random.uniform(0.6, 1.0), 3),
                activation_bytes=1.0,
                weight_grad_context_bytes=0.5,
            )
        )
    cuts = sorted(random.choice(num_ranks - 1, int(random.integers(0, 4)), replace=False).tolist())
    hops = [
        PipelineHop(
            from_stage=at,
            to_stage=at + 1,
            latency_s=round(random.uniform(0, 8), 3),
            transfer_s=round(random.uniform(0, 2), 3),
            link="shared" if random.random() < 0.5 else None,
        )
        for at in cuts
    ]
    budget = round(random.uniform(1, 2) * num_ranks, 2)
    return PipelineProblem(
        num_microbatches=num_microbatches,
        ranks=(PipelineRank(activation_budget_bytes=budget),) * num_ranks,
        stages=tuple(stages),
        hops=tuple(hops),
        options=PipelineOptions(time_limit_s=time_limit_s, relative_gap=0.0),
    )


def random_v_case(num_ranks: int, num_microbatches: int, number: int, time_limit_s: float) -> PipelineProblem:
    """Case `number` of the family as a V: half of a stage on the way down, half on the way up, half the transfers."""
    random = np.random.default_rng([num_ranks, num_microbatches, number, 1])
    flat = random_case(num_ranks, num_microbatches, number, time_limit_s)
    halves = [
        stage.model_copy(update={name: round(getattr(stage, name) / 2, 6) for name in CHUNK_FIELDS})
        for stage in flat.stages
    ]
    last = 2 * num_ranks - 1
    down = [hop.model_copy(update={"transfer_s": hop.transfer_s / 2, "link": hop.link_name}) for hop in flat.hops]
    up = [hop.model_copy(update={"from_stage": last - hop.to_stage, "to_stage": last - hop.from_stage}) for hop in down]
    rank = PipelineRank(activation_budget_bytes=round(random.uniform(0.6, 1.0) * num_ranks, 2))
    return PipelineProblem(
        num_microbatches=num_microbatches,
        ranks=(rank,) * num_ranks,
        layout="v",
        stages=(*halves, *halves[::-1]),
        hops=(*down, *up),
        options=flat.options,
    )


def random_loop_case(num_ranks: int, num_microbatches: int, number: int, time_limit_s: float) -> PipelineProblem:
    """Case `number` of the family as a loop: two chunks of a rank one after the other, twice over the same cuts."""
    random = np.random.default_rng([num_ranks, num_microbatches, number, 2])
    flat = random_case(num_ranks, num_microbatches, number, time_limit_s)
    halves = [
        stage.model_copy(update={name: round(getattr(stage, name) / 2, 6) for name in CHUNK_FIELDS})
        for stage in flat.stages
    ]
    once = [hop.model_copy(update={"transfer_s": hop.transfer_s / 2, "link": hop.link_name}) for hop in flat.hops]
    again = [
        hop.model_copy(update={"from_stage": hop.from_stage + num_ranks, "to_stage": hop.to_stage + num_ranks})
        for hop in once
    ]
    rank = PipelineRank(activation_budget_bytes=round(random.uniform(1.0, 2.0) * num_ranks, 2))
    return PipelineProblem(
        num_microbatches=num_microbatches,
        ranks=(rank,) * num_ranks,
        layout="loop",
        stages=(*halves, *halves),
        hops=(*once, *again),
        options=flat.options,
    )
