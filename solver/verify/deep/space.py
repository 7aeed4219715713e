"""Bounds and pipelines of the judge's own over the whole space of a request, without any of the search."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf
from typing import TypeVar

import numpy as np
from numpy.random import Generator

from models.cluster import Pool
from models.plan import Configuration, Degrees, Route
from solver.cost.columns import RECOMPUTE_CODES, ZERO1, columns_from
from solver.cost.fabric import fabric_of
from solver.cost.layer import Setting
from solver.cost.stage import Counts, PartKind, stage_cost
from solver.network.places import usable_gpus, usable_pools
from solver.verify.case import Case
from solver.verify.deep.trial import Trial
from solver.verify.rules import configuration as rules

Drawn = TypeVar("Drawn")
MOST_MICRO_BATCH = 64  # sequences: four times what the search takes


def bound_of_space_s(case: Case) -> float:
    """No plan is faster than all of its work shared out evenly over all GPUs that may be used.

    A replica of tp x cp GPUs per stage takes t for F, B and W of one micro-batch of b sequences through all layers, the
    best over experts' degrees, recomputation and GPU types. N GPUs do N / (tp cp) of these at once at most:
    T >= min over tp, cp, b of (batch / b) t tp cp / N. Gathering and gradients count as free.
    """
    workload, allowed = case.request.workload, case.request.constraints.allowed
    architecture = workload.architecture
    batch = workload.global_batch_sequences
    experts = 1 if architecture.moe is None else architecture.moe.num_experts
    axes = (
        allowed.tp or _divisors(architecture.attention.num_heads),
        allowed.cp or _divisors(64),
        allowed.ep or _divisors(experts),
        allowed.micro_batch_sequences or [one for one in _divisors(batch) if one <= MOST_MICRO_BATCH],
        [RECOMPUTE_CODES.index(one) for one in allowed.recompute or RECOMPUTE_CODES],
    )
    names = ("tp", "cp", "ep", "micro_batch", "recompute")
    same = {"pp": 1, "dp": 1, "vpp": 1, "num_microbatches": 1, "sharding": ZERO1, "shard_group": 1}
    columns = columns_from([same | dict(zip(names, row, strict=True)) for row in product(*axes)])
    moe = sum(architecture.is_moe_layer(layer) for layer in range(architecture.num_layers))
    least = inf
    for pool in usable_pools(case.request):
        at = Setting.of(case.derived.job, pool.gpu, fabric_of(pool), case.derived.stack, columns)
        parts: dict[PartKind, Counts] = {
            "dense": architecture.num_layers - moe,
            "moe": moe,
            "embedding": 1,
            "logits": 1,
        }
        cost = stage_cost(at, parts, workload.layer_profiles)
        work = cost.total_s - cost.data_parallel_s
        least = min(least, float(np.min(work * batch / columns.micro_batch * columns.tp * columns.cp)))
    return least / usable_gpus(case.request)


def _one_of(random: Generator, values: Sequence[Drawn]) -> Drawn:
    return values[int(random.integers(len(values)))]


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def trials(case: Case, random: Generator, wanted: int) -> Iterator[Trial]:
    """Random configurations inside one pool that obey every rule on configurations; none where pins bind places."""
    constraints = case.request.constraints
    if constraints.pins or constraints.use_all_gpus:
        return
    pools = usable_pools(case.request)
    for _ in range(40 * wanted):
        pool = _one_of(random, pools)
        found = _drawn(case, random, pool)
        if found is None:
            continue
        used = found.degrees
        route = Route(
            id="r0", places=(pool.place,) * used.pp, pools=(pool.id,) * used.pp, num_replicas=used.dp, first_replica=0
        )
        trial = Trial(case.request, case.plan, found, (route,))
        if not any(True for rule in rules.FAMILY.values() for _ in rule(trial.bare)):
            yield trial
            wanted -= 1
        if not wanted:
            return


def _drawn(case: Case, random: Generator, pool: Pool) -> Configuration | None:
    """One configuration of one chunk per rank whose numbers divide, or None."""
    workload, allowed = case.request.workload, case.request.constraints.allowed
    gpus = min(pool.num_free_gpus, case.request.constraints.max_gpus or pool.num_free_gpus)
    layers = workload.architecture.num_layers
    tp = _one_of(random, allowed.tp or [one for one in (1, 2, 4, 8) if one <= pool.gpus_per_host])
    pp = _one_of(random, allowed.pp or [one for one in (1, 2, 4, 8, 16, 32) if one <= layers])
    cp, ep = _one_of(random, allowed.cp or (1,)), _one_of(random, allowed.ep or (1, 2, 4, 8))
    size = _one_of(random, allowed.micro_batch_sequences or (1, 2, 4))
    replicas = [dp for dp in allowed.dp or range(1, gpus + 1) if tp * cp * pp * dp <= gpus]
    replicas = [dp for dp in replicas if workload.global_batch_sequences % (dp * size) == 0]
    if not replicas or layers < pp or 1 not in (allowed.vpp or (1,)):
        return None
    dp = max(replicas)
    sharding = _one_of(random, [one for one in allowed.sharding or ("zero1",) if one in ("zero1", "ddp")] or ["zero1"])
    few, more = divmod(layers, pp)
    spread = [few] * (pp - more) + [few + 1] * more
    return Configuration(
        degrees=Degrees(tp=tp, cp=cp, ep=ep, pp=pp, dp=dp),
        micro_batch_sequences=size,
        num_microbatches=workload.global_batch_sequences // (dp * size),
        sharding=sharding,
        shard_group_replicas=dp if sharding == "zero1" else 1,
        recompute=_one_of(random, allowed.recompute or RECOMPUTE_CODES),
        layers_per_stage=tuple(sorted(spread, reverse=True)),
    )
