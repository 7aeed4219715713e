"""Ways before and behind messages between two groups, held against pipelines with any types, layers and groups."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from solver.bounds.crossing_ways import CrossingWays
from solver.bounds.gradient_exchange import SplitLayers
from solver.bounds.layer_limits import LayerLimits, LayerTimes
from solver.bounds.least_hops import least_hops_s
from solver.bounds.type_ranks import Types
from solver.configurations.by_type import chunk_layers, type_costs
from solver.configurations.enumerate import LOOP_FAMILY, enumerate_space
from solver.context import Context
from solver.evaluation.candidate import configuration_of
from tests.build_job import ARCHITECTURE, three_types

NUM_LAYERS = 14
SMALL: dict[str, Any] = {**ARCHITECTURE, "num_layers": NUM_LAYERS, "hidden_size": 2048, "ffn_hidden_size": 8192}
EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 1024}
MODELS: dict[str, dict[str, Any]] = {
    "dense": SMALL,
    "experts in every other layer": {**SMALL, "moe": {**EXPERTS, "moe_layer_stride": 2}},
    "experts in every third layer": {**SMALL, "moe": {**EXPERTS, "moe_layer_stride": 3}},
    "dense layers first": {**SMALL, "moe": {**EXPERTS, "first_moe_layer": 5}},
    "a large vocabulary": {**SMALL, "vocab_size": 1_000_000},
}
INSIDE, OUTSIDE, BOTH = range(3)  # where a rank lies: whole in the first of two groups, in the second, or in both


class Pipelines:
    """Any pipelines of one row: the ways on which `CrossingWays` has a bound, and that bound."""

    def __init__(self, context: Context, types: Types, row: int, random: np.random.Generator) -> None:
        self.context, self.types, self.row, self.random = context, types, row, random
        self.configuration = configuration_of(context, types.space, row)
        self.costs = type_costs(context, self.configuration)
        times = LayerTimes.of(types, LayerLimits.of_work(types))
        self.ways = CrossingWays(times, np.full_like(types.held, types.num_usual))
        self.home_s, self.hop_s = times.limits.home_s[row], least_hops_s(context, types.space.columns)[row]

    def any_stages(self, gpu_r: list[int]) -> list[int]:
        """Any layers for ranks on these types, shared out over their chunks by the rule."""
        pp, vpp = self.configuration.degrees.pp, self.configuration.degrees.vpp
        weights = self.random.dirichlet(np.full(pp, self.random.choice([0.3, 3.0, 100.0])))
        layers_r, layers = vpp + self.random.multinomial(NUM_LAYERS - pp * vpp, weights), [0] * (pp * vpp)
        names = list(dict.fromkeys(pool.gpu.name for pool in self.context.pools))
        for rank, count in enumerate(layers_r.tolist()):
            own, cost = self.configuration.stages_of_rank(rank), self.costs[names[gpu_r[rank]]]
            ends_s = [cost.first_s * (stage == 0) + cost.last_s * (stage == pp * vpp - 1) for stage in own]
            for stage, share in zip(own, chunk_layers(count, cost.layer_s, ends_s), strict=True):
                layers[stage] = share
        return layers

    def mean_way_s(self, times: np.ndarray, where: list[int]) -> float:
        """Before the first message and behind the last, on average of both ways; stages x forward and gradient."""
        first = next(group for group in where if group != BOTH)
        there = where.index(1 - first)
        before = max(rank for rank in range(there) if where[rank] == first)
        pp, forward, gradient = len(where), times[:, 0], times[:, 1]
        stage = np.arange(len(times))
        rank, chunk = np.minimum(stage, len(times) - 1 - stage) if len(times) > pp else stage, stage // pp
        upto, beyond = (rank <= before) & (chunk == 0), rank >= there
        if len(times) == pp:
            out = forward[upto].sum() + forward[beyond].sum() + gradient.sum()
            home = forward.sum() + gradient[beyond].sum() + gradient[upto].sum()
        else:
            out = forward[upto].sum() + gradient[chunk == 0].sum() + gradient[beyond & (chunk == 1)].sum()
            home = forward[chunk == 0].sum() + forward[beyond & (chunk == 1)].sum() + gradient[upto].sum()
        hops = before + (pp - 1 - there) + pp - 1
        return float((out + home) / 2.0 + hops * self.hop_s + self.home_s)

    def bound_s(self, stages: list[int], where: list[int]) -> float:
        """The bound of all pipelines with as many whole ranks in a group, and as much on ranks that span groups."""
        types, row = self.types, self.row
        moe, ends = np.diff(self.context.moe_before).astype(bool), np.cumsum([0, *stages])
        usual = [int((moe[a:b] == bool(self.context.job.num_moe_layers)).sum()) for a, b in itertools.pairwise(ends)]
        spanning = np.array([where[rank] == BOTH for rank in self.configuration.rank_of_stages])
        runs = [list(run) for spans, run in itertools.groupby(range(len(stages)), lambda s: spanning[s]) if spans]
        in_row = max((sum(stages[stage] for stage in run) for run in runs), default=0)
        others = [len(list(run)) for is_usual, run in itertools.groupby(moe == moe.any()) if not is_usual]
        on_spanning = float(np.array(usual)[spanning].sum())
        same = np.ones(len(types.space))
        layers = SplitLayers(on_spanning * same, in_row * same, max(others, default=0))
        whole = max(where.count(INSIDE), where.count(OUTSIDE))
        return float(self.ways.least_s(whole * same.astype(np.int64), layers)[row])


@pytest.mark.parametrize("name", MODELS)
def test_no_pipeline_has_shorter_ways(name: str) -> None:
    allowed = {"pp": [2, 3, 4, 6], "layer_split": ["by_gpu_type"], "tp": [2], "recompute": ["none", "full"]}
    context = three_types(MODELS[name], hosts=4, batch=16, allowed=allowed)
    space, random, num_tried = enumerate_space(context.request), np.random.default_rng(7), 0
    rows = np.flatnonzero((space.family != LOOP_FAMILY) & (space.columns.sharding == space.columns.sharding.min()))
    types = Types.of(context, space.take(random.choice(rows, 12, replace=False)))
    for row in range(len(types.space)):
        pipelines, pp = Pipelines(context, types, row, random), int(types.space.columns.pp[row])
        for _ in range(60):
            gpu_r = random.integers(len(types.prices), size=pp).tolist()
            where = random.choice(3, size=pp, p=[0.4, 0.4, 0.2]).tolist()
            if {INSIDE, OUTSIDE} - set(where) or (np.bincount(gpu_r, minlength=3) > types.held[:, row]).any():
                continue
            stages = pipelines.any_stages(gpu_r)
            ends = np.cumsum([0, *stages])
            times = []
            for stage, (begin, end) in enumerate(itertools.pairwise(ends)):
                moe = context.moe_before[end] - context.moe_before[begin]
                price = types.prices[gpu_r[pipelines.configuration.rank_of_stages[stage]]]
                cost = price.of(
                    end - begin - moe, moe, embedding=float(stage == 0), logits=float(stage == len(stages) - 1)
                )
                times.append((cost.forward_s[row], cost.input_grad_s[row]))
            way_s, bound_s = pipelines.mean_way_s(np.array(times), where), pipelines.bound_s(stages, where)
            assert 0.0 < bound_s <= way_s * (1 + 1e-9), f"{types.space.columns.vpp[row]} chunks: {stages} {where}"
            num_tried += 1
    assert num_tried > 200
