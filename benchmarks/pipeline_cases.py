"""The random family of pipelines that benchmarks run: reproducible from size and number alone.

Unequal stages (F within 20 %, B and W in proportion), 0 to 3 cuts, latency 0 to 8 F, transfer 0 to 2 F, half of the
cuts on one shared link, budgets of 1 to 2 times 1F1B's; times in milliseconds as a profiler gives them. The same as a
V: every stage in two chunks, each cut crossed on the way down and back up, and 0.6 to 1 times 1F1B's memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.schedule import (
    Layout,
    PipelineHop,
    PipelineOptions,
    PipelineProblem,
    PipelineRank,
    PipelineStage,
    layout_placement,
)

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


@dataclass(frozen=True)
class Family:
    """A kind of problem at one size: what its numbers are drawn from.

    `spread`: times of a stage lie within this share of the mean, either way; `num_cuts`: how many hops have a delay, at
    even distances; `latency`, `transfer`, `budget`: ranges in F, in work of a rank (all messages of one way together)
    and in what 1F1B holds, drawn once for all ranks or, with `own_budgets`, for each of them.
    """

    num_ranks: int
    num_microbatches: int
    layout: Layout = "one_way"
    spread: float = 0.04
    num_cuts: tuple[int, int] = (1, 1)
    latency: tuple[float, float] = (1.0, 4.0)
    transfer: tuple[float, float] = (0.0, 0.3)
    budget: tuple[float, float] = (1.0, 1.25)
    context: float = 1.0
    own_budgets: bool = False


FAMILIES = {
    "jittered": Family(16, 64),
    "shared": Family(12, 48, spread=0.2, num_cuts=(2, 3), latency=(0.0, 4.0), transfer=(0.7, 1.1), budget=(1.0, 2.0)),
    "heterogeneous": Family(24, 96, spread=0.35, num_cuts=(1, 3), budget=(1.0, 1.5), context=0.5),
    "loop": Family(8, 32, "loop", spread=0.1, latency=(0.5, 3.0), budget=(1.0, 1.5), context=0.5),
    "v": Family(8, 32, "v", spread=0.1, latency=(0.5, 3.0), budget=(0.6, 1.0), context=0.5),
    "memory": Family(12, 48, spread=0.1, num_cuts=(1, 2), budget=(0.7, 1.5), context=0.5, own_budgets=True),
}


def family_case(name: str, number: int, time_limit_s: float) -> PipelineProblem:
    """Problem `number` of a family: seconds as a profiler gives them, whole microseconds."""
    family = FAMILIES[name]
    random = np.random.default_rng([*name.encode(), number])
    chunks = 1 if family.layout == "one_way" else 2
    num_stages = family.num_ranks * chunks
    stages = [_stage_of(family, random, chunks) for _ in range(num_stages)]
    num_cuts = int(random.integers(family.num_cuts[0], family.num_cuts[1] + 1))
    after = {round(family.num_ranks * (cut + 1) / (num_cuts + 1)) - 1 for cut in range(num_cuts)}
    latency_s = round(random.uniform(*family.latency) * 0.01, 6)
    transfer_s = round(random.uniform(*family.transfer) * 0.0277 / num_cuts / chunks, 6)
    at = [stage for stage in range(num_stages - 1) if _is_crossing(family, stage, after)]
    hops = [
        PipelineHop(from_stage=s, to_stage=s + 1, latency_s=latency_s, transfer_s=transfer_s, link="shared") for s in at
    ]
    num_budgets = family.num_ranks if family.own_budgets else 1
    budgets = [round(random.uniform(*family.budget) * family.num_ranks, 2) for _ in range(num_budgets)]
    ranks = tuple(PipelineRank(activation_budget_bytes=budget) for budget in budgets)
    return PipelineProblem(
        num_microbatches=family.num_microbatches,
        ranks=ranks * (family.num_ranks // num_budgets),
        layout=family.layout,
        stages=tuple(stages),
        hops=tuple(hops),
        options=PipelineOptions(time_limit_s=time_limit_s, relative_gap=0.0),
    )


def _stage_of(family: Family, random: np.random.Generator, chunks: int) -> PipelineStage:
    forward_s, input_s, weight_s = (
        round(mean_s / chunks * random.uniform(1 - family.spread, 1 + family.spread), 6)
        for mean_s in (0.0100, 0.0105, 0.0072)
    )
    return PipelineStage(
        forward_s=forward_s,
        input_grad_s=input_s,
        weight_grad_s=weight_s,
        activation_bytes=1.0 / chunks,
        weight_grad_context_bytes=family.context / chunks,
    )


def _is_crossing(family: Family, stage: int, after: set[int]) -> bool:
    """Whether the hop after a stage lies between ranks with a delay between them, the way round a loop included."""
    ranks = family.num_ranks
    there = layout_placement(family.layout, ranks * (1 if family.layout == "one_way" else 2), ranks)
    low, high = sorted((there[stage], there[stage + 1]))
    return any(low <= rank < high for rank in after)
