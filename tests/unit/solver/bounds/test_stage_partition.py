"""Lines of ranks: the search agrees with trying all of them, and its bound is sharper than the one for all shares."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

import solver.bounds.partition_pipelines
import solver.bounds.stage_partition
from models.plan import Configuration
from solver.bounds.kind_costs import Kind
from solver.bounds.layer_windows import EVERY_END, RankKinds, rank_kinds, rank_windows
from solver.bounds.least_hops import MessageDelays, TypeHops
from solver.bounds.partition_pipelines import partition_pipelines_bound_s
from solver.bounds.rank_costs import RankCosts, ends_worth
from solver.bounds.rank_need_kernel import NEEDS, NUM_SUMS, PartitionProblem
from solver.bounds.rank_needs import rank_needs
from solver.bounds.stage_partition import (
    TOGETHER,
    kinds_of,
    least_time_s,
    partition_problem,
    partition_states,
    partitions_up_to,
    stage_partition_bound_s,
)
from solver.bounds.stage_partition_kernel import least_sums, sums_behind
from solver.bounds.typed_pipelines import PartitionPipelines
from solver.bounds.work import lower_bounds
from solver.configurations.enumerate import BY_GPU_TYPE, FAMILY_CODES, enumerate_space
from solver.context import Context
from solver.cost.columns import columns_of
from solver.cost.stage import StageCost
from solver.evaluation.candidate import configuration_of
from tests.build_job import ARCHITECTURE, three_types

LAYER_S, NUM_MICROBATCHES, NUM_RANKS, NUM_LAYERS = (1.0, 2.5), 8.0, 3, 7
BACK, THROUGH_SHARE, BOTH_SHARE = (1.5, 0.4), 0.9, 2.0
SMALL_SHARE, AFTER_SHARE = 0.25, 0.9
CHUNKS = {"one_way": 1, "loop": 3, "v": 2}
HIGH_S = 1e3


def problem(
    held: tuple[int, int], hop_s: float = 0.0, apart_s: float = 0.0, family: str = "one_way"
) -> PartitionProblem:
    """Three ranks on a fast and a slow type: each works m times, the forward, a third, fills the pipeline.

    Most of the work is done before the last gradient goes back, for which the types take `BACK` forwards. A message
    from rank to rank takes `hop_s`, and `apart_s` more between the types; a loop has three chunks, a V two. In a loop
    the first two chunks of a rank with an odd number of layers have fewer than the last.
    """
    layers = np.arange(NUM_LAYERS + 1.0)
    work_s = np.outer(LAYER_S, layers)
    needs = {name: np.zeros_like(work_s) for name in NEEDS}
    needs |= {"work": NUM_MICROBATCHES * work_s, "first_chunk": work_s / 3.0, "trips": np.ones_like(work_s)}
    needs["through"] = THROUGH_SHARE * needs["work"]
    needs["first_gradient"] = np.array(BACK)[:, None] * work_s / 3.0
    needs["both"] = BOTH_SHARE * work_s
    if family == "loop":
        needs |= {"cycles": np.tile(2.0 * (layers % 2), (2, 1)), "small_chunk": SMALL_SHARE * work_s}
        needs["after_cycles"] = AFTER_SHARE * needs["work"]
    return PartitionProblem(
        kind_r=np.zeros(NUM_RANKS, dtype=np.int64),
        held_c=np.array(held),
        least_r=np.ones(NUM_RANKS, dtype=np.int64),
        num_layers=NUM_LAYERS,
        num_chunks=CHUNKS[family],
        looped=family == "loop",
        needs=np.array([needs[name][None] for name in NEEDS]),
        apart_cc=TOGETHER + (1.0 - np.eye(2)) * apart_s if apart_s else TOGETHER,
        delays=MessageDelays(hop_s=hop_s),
        num_microbatches=int(NUM_MICROBATCHES),
    )


def late_forwards_s(around_s: float, pace_s: float, forward_s: float) -> float:
    """What forwards of a chunk that come one after another add behind the start of the next, from any of them on."""
    number = np.arange(NUM_MICROBATCHES)
    from_each = (NUM_MICROBATCHES - number) * forward_s - np.maximum(around_s - number * pace_s, 0.0)
    return max(float(from_each.max()), 0.0)


def all_partitions(
    held: tuple[int, int], hop_s: float = 0.0, apart_s: float = 0.0, family: str = "one_way"
) -> Iterator[tuple[tuple[int, ...], list[int], float]]:
    """Every order of types with every share of the layers, and what it takes."""
    for types in itertools.product((0, 1), repeat=NUM_RANKS):
        if any(types.count(kind) > most for kind, most in enumerate(held)):
            continue
        for cuts in itertools.combinations(range(1, NUM_LAYERS), NUM_RANKS - 1):
            layers = [end - begin for begin, end in itertools.pairwise((0, *cuts, NUM_LAYERS))]
            work_s = [LAYER_S[kind] * count for kind, count in zip(types, layers, strict=True)]
            heads_s = [sum(work_s[:rank]) / 3.0 for rank in range(NUM_RANKS)]
            backs_s = [np.dot([BACK[kind] for kind in types[:rank]], work_s[:rank]) / 3.0 for rank in range(NUM_RANKS)]
            changes = np.array(types) != np.roll(types, 1)
            ways_s = [rank * hop_s + apart_s * changes[1 : rank + 1].sum() for rank in range(NUM_RANKS)]
            time_s = max(
                way_s + head_s + max(busy_s, way_s + back_s + THROUGH_SHARE * busy_s)
                for way_s, head_s, back_s, busy_s in zip(
                    ways_s, heads_s, backs_s, [NUM_MICROBATCHES * own for own in work_s], strict=True
                )
            )
            passes, ways_home = CHUNKS[family], (CHUNKS[family] - 1) * (family == "loop")
            crossings = passes * changes[1:].sum() + ways_home * changes[0]
            for rank, own_s in enumerate(work_s if family == "loop" else []):
                around_s = SMALL_SHARE * sum(work_s) + apart_s * changes.sum()
                begin_s = 2.0 * (layers[rank] % 2) * around_s + SMALL_SHARE * sum(work_s[:rank]) + ways_s[rank]
                late_s = layers[rank] % 2 * late_forwards_s(around_s, max(work_s) / 3.0, SMALL_SHARE * own_s)
                time_s = max(time_s, begin_s + late_s + AFTER_SHARE * NUM_MICROBATCHES * own_s)
            yield types, layers, max(time_s, BOTH_SHARE * sum(work_s) + 2.0 * apart_s * float(crossings))


MESSAGES = [(0.0, 0.0, "one_way"), (0.7, 0.0, "one_way"), (4.0, 0.0, "one_way"), (0.7, 5.0, "one_way"),
            (0.0, 6.0, "loop"), (0.0, 0.0, "loop"), (0.0, 6.0, "v")]  # fmt: skip


@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("held", [(1, 2), (2, 1), (2, 2), (3, 3)])
def test_no_partition_is_missed(held: tuple[int, int], messages: tuple[float, float, str]) -> None:
    least_s = min(time_s for _, _, time_s in all_partitions(held, *messages))
    found_s = least_time_s(problem(held, *messages), 1.1 * least_s)
    assert found_s <= least_s
    assert found_s == pytest.approx(least_s, rel=0.01)


@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("held", [(1, 2), (2, 1), (2, 2), (3, 3)])
def test_every_partition_within_a_time_is_found(held: tuple[int, int], messages: tuple[float, float, str]) -> None:
    every = list(all_partitions(held, *messages))
    one = problem(held, *messages)
    for times in (0.9, 1.001, 1.3, 2.0, 5.0):
        limit_s = times * min(time_s for _, _, time_s in every)
        found = partitions_up_to(one, partition_states(one), limit_s, len(every) + 1)
        assert found is not None
        expected = {(types, tuple(layers)): time_s for types, layers, time_s in every if time_s <= limit_s}
        rows = zip(map(tuple, found.gpu.tolist()), map(tuple, found.layers.tolist()), found.need_s, strict=True)
        assert {(types, layers): time_s for types, layers, time_s in rows} == pytest.approx(expected)
        assert (np.diff(found.need_s) >= 0).all()


@pytest.mark.parametrize("messages", MESSAGES)
def test_sums_behind_leave_out_what_is_late_with_the_ranks_before(messages: tuple[float, float, str]) -> None:
    one, nothing = problem((2, 2), *messages), np.zeros(NUM_SUMS)
    states, limit_s = partition_states(one), 1.05 * min(time_s for _, _, time_s in all_partitions((2, 2), *messages))
    alone = sums_behind(one, states, limit_s, nothing, np.zeros((0, 1, 1, NUM_SUMS)))
    _, before = least_sums(one, states, nothing, alone, limit_s)
    both = sums_behind(one, states, limit_s, nothing, before)
    assert (both >= alone).all()
    assert np.isinf(both).sum() > np.isinf(alone).sum()


def test_too_many_partitions_are_not_listed() -> None:
    one = problem((3, 3))
    assert partitions_up_to(one, partition_states(one), HIGH_S, 100) is None


def test_there_is_no_partition_where_the_types_hold_too_few_ranks() -> None:
    assert least_time_s(problem((1, 1)), HIGH_S) == HIGH_S


@pytest.fixture(scope="module")
def context() -> Context:
    """Eight GPUs each of three types in three buildings."""
    allowed = {"tp": [2], "pp": [4, 8], "layer_split": ["by_gpu_type"]}
    return three_types(ARCHITECTURE, hosts=1, batch=32, allowed=allowed)


@pytest.fixture(scope="module")
def rows(context: Context) -> list[tuple[Configuration, float]]:
    """Configurations that fit, and their bounds for all shares at once."""
    space = enumerate_space(context.request)
    bounds = lower_bounds(context, space)
    assert set(space.layer_split.tolist()) == {BY_GPU_TYPE}
    return [
        (configuration_of(context, space, row), float(bounds.iteration_s[row]))
        for row in np.flatnonzero(bounds.fits)[::7].tolist()
    ]


def test_partitions_are_sharper_than_all_shares_at_once(
    context: Context, rows: list[tuple[Configuration, float]]
) -> None:
    gains = [stage_partition_bound_s(context, [one], 3.0 * bound_s) / bound_s for one, bound_s in rows]
    assert np.mean(gains) > 1.03
    assert max(gains) > 1.2


def test_pipelines_of_partitions_are_sharper_than_what_ranks_need(
    context: Context, rows: list[tuple[Configuration, float]]
) -> None:
    some = rows[:12]
    ranks = [stage_partition_bound_s(context, [one], 3.0 * bound_s) for one, bound_s in some]
    whole = [partition_pipelines_bound_s(context, [one], 3.0 * bound_s, time.monotonic) for one, bound_s in some]
    assert all(pipelines_s >= alone_s for pipelines_s, alone_s in zip(whole, ranks, strict=True))
    assert np.mean(np.divide(whole, ranks)) > 1.001
    assert max(np.divide(whole, ranks)) > 1.005


def test_with_more_effort_the_bound_is_that_of_more_pipelines(
    context: Context, rows: list[tuple[Configuration, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut short it is lower; never above that of all pipelines."""
    some = rows[:6]

    def bounds_s(effort: int) -> list[float]:
        clock = time.monotonic
        return [partition_pipelines_bound_s(context, [one], 3.0 * high_s, clock, effort=effort) for one, high_s in some]

    whole = bounds_s(1)
    monkeypatch.setattr(solver.bounds.partition_pipelines, "MOST_PIPELINES", 1)
    short, longer = bounds_s(1), bounds_s(64)
    assert all(low <= more <= high for low, more, high in zip(short, longer, whole, strict=True))
    assert max(np.divide(longer, short)) > 1.001


@pytest.mark.parametrize("family", ["loop", "v"])
def test_a_kind_of_rank_costs_the_same_whatever_stands_beside_it(family: str) -> None:
    """Tables of all kinds together are those of each alone."""
    moe = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 14336, "first_moe_layer": 3}
    allowed = {"tp": [2], "cp": [1], "pp": [4], "vpp": [2], "micro_batch_sequences": [1], "recompute": ["none"]}
    context = three_types(ARCHITECTURE | {"moe": moe}, hosts=4, batch=64, allowed=allowed)
    space = enumerate_space(context.request)
    rows = np.flatnonzero((space.layer_split == BY_GPU_TYPE) & (space.family == FAMILY_CODES.index(family)))
    configuration = configuration_of(context, space, int(rows[0]))
    gpus = kinds_of(context, [columns_of(configuration)])
    worths = tuple(max(ends_worth(gpu, at) for gpu in gpus) for at in EVERY_END)
    kinds = rank_kinds(context.job.architecture, configuration.rank_of_stages, worths)
    assert len(kinds.ends) > 2
    size = len(kinds.layers) // len(kinds.ends)
    for gpu in gpus:
        together = rank_needs(RankCosts(gpu, kinds, 16, 2, family == "loop", (0.0, 0.0)))
        for number, at in enumerate(kinds.ends):
            own, rank = slice(number * size, (number + 1) * size), kinds.kind_r.tolist().index(number)
            stages = tuple(configuration.stages_of_rank(rank))
            windows = rank_windows(context.job.architecture, 8, stages, worths[EVERY_END.index(at)])
            alone = RankKinds((at,), windows, np.zeros(1, dtype=np.int64))
            needs = rank_needs(RankCosts(gpu, alone, 16, 2, family == "loop", (0.0, 0.0)))
            for name, table in needs.items():
                np.testing.assert_allclose(together[name][own], table, rtol=1e-12, err_msg=name)


def test_types_that_count_as_one_bound_no_sharper(
    context: Context, rows: list[tuple[Configuration, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = rows[:6]
    apart = [stage_partition_bound_s(context, [one], 3.0 * bound_s) for one, bound_s in some]
    monkeypatch.setattr(solver.bounds.stage_partition, "MOST_CELLS", 1)
    together = [stage_partition_bound_s(context, [one], 3.0 * bound_s) for one, bound_s in some]
    assert all(0.0 < merged <= own * 1.01 for merged, own in zip(together, apart, strict=True))


@dataclass(frozen=True)
class Stages:
    """What the stages of a partition take at least, by the types and layers of its ranks."""

    gpu_r: list[int]
    layers_r: list[int]
    costs: list[StageCost]

    def of_rank(self, configuration: Configuration, rank: int) -> list[StageCost]:
        """Those of one rank."""
        return [self.costs[stage] for stage in configuration.stages_of_rank(rank)]


def random_stages(
    context: Context, configuration: Configuration, gpus: Sequence[Kind], number: int
) -> Iterator[Stages]:
    """Partitions of twelve layers over four ranks, with every cost of a stage at its least on its type."""
    pipelines, random, vpp = (
        PartitionPipelines.of(context, [configuration], gpus),
        np.random.default_rng(1),
        configuration.degrees.vpp,
    )
    num_layers = context.job.num_layers
    for _ in range(number):
        gpu_r = random.integers(len(gpus), size=4).tolist()
        layers_r = (vpp + random.multinomial(num_layers - 4 * vpp, [0.25] * 4)).tolist()
        for layers_s in pipelines.stages(gpu_r, layers_r):
            ends = np.cumsum(layers_s)
            usual_s = context.moe_before[ends] - context.moe_before[ends - layers_s]
            costs = [
                gpus[gpu_r[rank]].least.of(
                    layers_s[stage] - usual_s[stage],
                    usual_s[stage],
                    embedding=float(stage == 0),
                    logits=float(stage == len(layers_s) - 1),
                )
                for stage, rank in enumerate(configuration.rank_of_stages)
            ]
            yield Stages(gpu_r, layers_r, costs)


def experts_in_every_other_layer(vpp: int, family: str | None = None) -> tuple[Context, Configuration]:
    """A configuration with layers by GPU type on three types; stages of one layer may have no experts."""
    moe = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 14336, "moe_layer_stride": 2}
    allowed = {"tp": [2], "cp": [1], "pp": [4], "vpp": [vpp], "micro_batch_sequences": [1], "recompute": ["none"]}
    context = three_types(ARCHITECTURE | {"moe": moe}, hosts=4, batch=64, allowed=allowed)
    space = enumerate_space(context.request)
    is_one = space.layer_split == BY_GPU_TYPE
    if family is not None:
        is_one &= space.family == FAMILY_CODES.index(family)
    return context, configuration_of(context, space, int(np.flatnonzero(is_one)[0]))


@pytest.mark.parametrize("vpp", [1, 2])
def test_usual_layers_in_all_are_shared_out(vpp: int) -> None:
    """Where every other layer has experts, stages of one layer may have none, but not all of them."""
    context, configuration = experts_in_every_other_layer(vpp)
    gpus = kinds_of(context, [columns_of(configuration)])
    found = partition_problem([configuration], gpus, TypeHops.of(context, [configuration]))
    even, plain = (found.needs[NEEDS.index(name)] for name in ("even_both", "both"))
    is_more = []
    for one in random_stages(context, configuration, gpus, 200):
        taken_s = sum(float((cost.forward_s + cost.input_grad_s)[0]) for cost in one.costs)
        at = (found.kind_r, one.gpu_r, one.layers_r)
        assert even[at].sum() <= taken_s * (1.0 + 1e-9)
        is_more.append(even[at].sum() > plain[at].sum() * 1.001)
    assert np.mean(is_more) > 0.5


@pytest.mark.parametrize(("family", "vpp"), [("one_way", 1), ("loop", 2), ("loop", 3), ("v", 2)])
def test_ranks_need_no_more_than_their_stages_take(family: str, vpp: int) -> None:
    """Forwards and input gradients of first chunks, of last ones, and of all others."""
    context, configuration = experts_in_every_other_layer(vpp, family)
    gpus, m = kinds_of(context, [columns_of(configuration)]), configuration.num_microbatches
    found = partition_problem([configuration], gpus, TypeHops.of(context, [configuration]))
    kinds = rank_kinds(
        context.job.architecture,
        configuration.rank_of_stages,
        tuple(max(ends_worth(gpu, at) for gpu in gpus) for at in EVERY_END),
    )
    update_s = [RankCosts(gpu, kinds, m, vpp, family == "loop", (0.0, 0.0)).update_s for gpu in gpus]
    shares = {name: list[float]() for name in ("first_gradient", "last_gradient", "gradient_before_last", "last")}
    for one in random_stages(context, configuration, gpus, 100):
        for rank, (gpu, layers) in enumerate(zip(one.gpu_r, one.layers_r, strict=True)):
            own, kind = one.of_rank(configuration, rank), int(found.kind_r[rank])
            forward = [float(cost.forward_s[0]) for cost in own]
            gradient = [float(cost.input_grad_s[0]) for cost in own]
            need = dict(zip(NEEDS, found.needs[:, kind, gpu, layers].tolist(), strict=True))
            need["last"] -= float(update_s[gpu].reshape(len(kinds.ends), -1)[kind, layers])
            taken = {
                "first_chunk": forward[0],
                "last_chunk": forward[-1],
                "before_last": sum(forward[:-1]),
                "first_gradient": gradient[0],
                "last_gradient": gradient[-1],
                "gradient_before_last": sum(gradient[:-1]),
                "last": m * (forward[-1] + gradient[-1]),
            }
            for name, seconds in taken.items():
                assert need[name] <= seconds * (1.0 + 1e-9), name
            for name, own_shares in shares.items():
                own_shares.append(need[name] / taken[name] if taken[name] else 1.0)
    assert min(np.mean(own) for own in shares.values()) > 0.5
