"""Every configuration that obeys the divisibility rules of a request, as numpy columns.

Whether a configuration fits into memory is the business of `bounds/work.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from models.cluster import GpuType, Pool
from models.plan import LayerSplit, Sharding
from models.request import PlanRequest
from models.schedule import MAX_OPERATIONS
from models.statements import SPACE_LIMITS
from models.workload import Recompute, Workload
from solver.arrays import BoolArray, IntArray
from solver.configurations.nearness import best_type, fits_as_near, fits_uncrossed, ranks_by_type
from solver.configurations.token_splits import token_splits
from solver.cost.columns import DDP, FSDP, HSDP, RECOMPUTE_CODES, SHARDING_CODES, ZERO1, Columns
from solver.cost.compute import strength_of
from solver.network.paths import islands
from solver.network.places import ancestors_of, buildings_of, num_enclosing, usable_gpus, usable_pools
from solver.network.topology import build_topology
from solver.placement.capacity_groups import groups_of

FAMILY_CODES = ("one_way", "loop", "v")
ONE_WAY, LOOP_FAMILY, V_FAMILY = range(3)
LAYER_SPLIT_CODES: tuple[LayerSplit, ...] = ("even", "by_gpu_type")
EVEN, BY_GPU_TYPE = range(2)
USUAL_SHARDING: tuple[Sharding, ...] = ("zero1", "fsdp", "hsdp")
OPERATIONS_EACH = 3  # a forward, an input gradient and a weight gradient, which a schedule may run apart
FEW_BUILDINGS = 8  # or regions, of which pipelines may have one or two ranks in some and none in others
MOST_TENSOR_PARALLEL = 64  # ranks; a GB200 rack of 72 holds no larger power of two
ODD_PIPELINE_RANKS = (3, 5, 6, 10, 12)  # fill fleets of 3 or 5 times a power of two, whatever the layers
ANY_PIPELINE_RANKS = 16  # every number of ranks up to here, where layers are shared out by GPU type


@dataclass(frozen=True)
class Space:
    """Configurations as columns, and the schedule family and the way of sharing out layers of each."""

    columns: Columns
    family: IntArray
    layer_split: IntArray

    def __len__(self) -> int:
        return len(self.family)

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Space:
        """The chosen rows."""
        return Space(self.columns.take(rows), self.family[rows], self.layer_split[rows])

    def pipeline_shapes(self) -> IntArray:
        """One row per configuration: those with equal rows have almost the same pipeline to schedule."""
        one = self.columns
        sizes = (one.tp, one.pp, one.vpp, one.num_gpus, one.num_microbatches)
        return np.stack((*sizes, one.recompute, self.family, self.layer_split), axis=1)

    def num_operations(self) -> IntArray:
        """Operations of one replica's pipeline."""
        one = self.columns
        return _num_operations(one.pp * one.vpp, one.num_microbatches)


def enumerate_space(request: PlanRequest, *, most_operations: float = MAX_OPERATIONS) -> Space:
    """All configurations of the request, tens of thousands of rows at most a few times over."""
    pools = usable_pools(request)
    shapes = _shapes(request, pools)
    rows = _with_batches(request, shapes, most_operations)
    rows = _with_experts(request, rows)
    rows = _with_sharding(request, pools, rows)
    rows = _with_recompute(request, rows)
    rows = _with_layer_splits(request, pools, rows)
    columns = Columns(**{field.name: rows[field.name] for field in fields(Columns)})
    return Space(columns=columns, family=rows["family"], layer_split=rows["layer_split"])


Rows = dict[str, IntArray]


def _powers_of_two(limit: int) -> list[int]:
    return [1 << k for k in range(max(limit, 1).bit_length()) if 1 << k <= limit]


def divisors_of(number: int) -> list[int]:
    """Whole numbers that divide another, the least first."""
    return [d for d in range(1, number + 1) if number % d == 0]


def tensor_degrees(request: PlanRequest, pools: list[Pool]) -> list[int]:
    """Divisors of the heads (and of the key/value heads) that fit into a scale-up domain."""
    attention = request.workload.architecture.attention
    heads = attention.num_kv_heads
    domain = max(pool.gpu.scale_up_domain_gpus for pool in pools)
    wanted = request.constraints.allowed.tp or _powers_of_two(min(domain, MOST_TENSOR_PARALLEL))
    framework = request.constraints.framework
    return [
        tp
        for tp in wanted
        if (framework is None or not any(framework.tensor_limits(request.workload.architecture, tp)))
        and attention.num_heads % tp == 0
        and (heads % tp == 0 or tp % heads == 0)
        and any(pool.gpu.scale_up_domain_gpus % tp == 0 for pool in pools)
    ]


def context_degrees(request: PlanRequest) -> list[int]:
    """Powers of two that leave each GPU enough tokens, in two equal halves of a causal sequence."""
    length = request.workload.sequence_length
    fits = [
        cp
        for cp in _powers_of_two(SPACE_LIMITS.max_context_parallel)
        if cp == 1 or (length % (2 * cp) == 0 and length // cp >= SPACE_LIMITS.least_tokens)
    ]
    return [cp for cp in request.constraints.allowed.cp or fits if length % cp == 0]


def pipeline_degrees(request: PlanRequest, layer_split: int = EVEN) -> list[int]:
    """Powers of two and few times three or five of them, divisors of the layers and of the layers plus two, and one or
    two ranks per building or region.

    Of up to eight buildings or regions with GPUs also those of fewer, so that one more takes none away. Layers by GPU
    type fit any number of ranks: all small ones too. Up to 64 and the layers.
    """
    layers = request.workload.architecture.num_layers
    limit = min(SPACE_LIMITS.max_pipeline_ranks, layers)
    usual = {*_powers_of_two(limit), *ODD_PIPELINE_RANKS, *divisors_of(layers), *divisors_of(layers + 2)}
    for count in num_enclosing(request):
        counts = range(1, count + 1) if count <= FEW_BUILDINGS else (count,)
        usual |= {times * one for one in counts for times in (1, 2)}
    if layer_split == BY_GPU_TYPE:
        usual |= set(range(1, ANY_PIPELINE_RANKS + 1))
    pinned = max((pin.last_pipeline_rank for pin in request.constraints.pins), default=-1)
    wanted = request.constraints.allowed.pp
    degrees = [pp for pp in wanted if pp <= layers] if wanted else [pp for pp in sorted(usual) if pp <= limit]
    return [pp for pp in degrees if pp > pinned]


def expert_degrees(request: PlanRequest) -> list[int]:
    """Powers of two that divide the experts; 1 in dense models."""
    moe, allowed = request.workload.architecture.moe, request.constraints.allowed.ep
    return (
        [1] if moe is None else [ep for ep in allowed or _powers_of_two(moe.num_experts) if moe.num_experts % ep == 0]
    )


def micro_batches(request: PlanRequest) -> list[int]:
    """Sequences per micro-batch: divisors of the global batch."""
    wanted, most = request.constraints.allowed.micro_batch_sequences, SPACE_LIMITS.max_micro_batch
    return list(wanted or (b for b in divisors_of(request.workload.global_batch_sequences)[:64] if b <= most))


def _shapes(request: PlanRequest, pools: list[Pool]) -> Rows:
    """tp x cp x (pp, vpp, family), each with the stage groups that the pools can hold."""
    out: list[tuple[int, ...]] = []
    by_type = types_differ(request, pools) and "by_gpu_type" in _layer_splits(request)
    degrees = pipeline_degrees(request, BY_GPU_TYPE if by_type else EVEN)
    num_gpus = request.constraints.max_gpus or usable_gpus(request)
    joined = pools_by_island(request, _pools_within_reach(request, pools))
    for tp in tensor_degrees(request, pools):
        for cp in context_degrees(request):
            capacity = [[sum(groups_of(one, tp, cp) for one in own) for own in island] for island in joined]
            for pp in degrees:
                largest = max((_most_replicas(request, own, pp) for own in capacity), default=0)
                most = min(num_gpus // (tp * cp * pp), largest)
                out += [(tp, cp, pp, vpp, family, most) for vpp, family in _chunkings(request, pp) if most]
    table = np.array(out, dtype=np.int64).reshape(-1, 6)
    return dict(zip(("tp", "cp", "pp", "vpp", "family", "max_dp"), table.T, strict=True))


def pools_by_island(request: PlanRequest, pools: list[Pool]) -> list[list[list[Pool]]]:
    """Pools of each building, island by island of the link graph."""
    buildings, island = buildings_of(request.cluster), islands(build_topology(request.cluster))
    found: dict[int, dict[str, list[Pool]]] = {}
    for pool in pools:
        found.setdefault(island[pool.place], {}).setdefault(buildings[pool.place], []).append(pool)
    return [list(own.values()) for own in found.values()]


def _pools_within_reach(request: PlanRequest, pools: list[Pool]) -> list[Pool]:
    """Pools of buildings that a replica may be in: where it may not cross, those that every pin of all replicas has."""
    if crossing_allowed(request)[0]:
        return pools
    around, buildings = ancestors_of(request.cluster), buildings_of(request.cluster)
    reached = {buildings[pool.place] for pool in pools}
    for pin in request.constraints.pins:
        if pin.num_replicas is None:
            reached &= {buildings[pool.place] for pool in pools if pin.place in around[pool.place]}
    return [pool for pool in pools if buildings[pool.place] in reached]


def _most_replicas(request: PlanRequest, capacity: list[int], pp: int) -> int:
    """Replicas that fit when a replica, or the replicas of a rank, may not span buildings."""
    pipelines, replicas = crossing_allowed(request)
    most = sum(capacity) // pp if pipelines else sum(groups // pp for groups in capacity)
    if replicas:
        return most
    return min(most, max(capacity)) if pipelines else max(capacity) // pp


def crossing_allowed(request: PlanRequest) -> tuple[bool, bool]:
    """Whether pipelines, and replicas of a rank, may span buildings: neither does without a byte between them."""
    stated = request.constraints
    sent = stated.max_cross_building_bytes_per_iteration != 0.0
    return stated.pipeline_may_cross_buildings and sent, stated.data_parallel_may_cross_buildings and sent


def _chunkings(request: PlanRequest, pp: int) -> list[tuple[int, int]]:
    """(chunks per rank, family): one way, looped, or folded over the ranks, twice unless the request names more."""
    layers, allowed = request.workload.architecture.num_layers, request.constraints.allowed
    chunks = [v for v in allowed.vpp or range(1, SPACE_LIMITS.max_chunks + 1) if v * pp <= layers]
    families = allowed.family or FAMILY_CODES
    out = [(1, 0)] if 1 in chunks and "one_way" in families else []
    if pp > 1 and "loop" in families:
        out += [(v, 1) for v in chunks if v > 1]
    if pp > 1 and "v" in families:
        out += [(v, 2) for v in chunks if v == 2 or (allowed.vpp and v % 2 == 0)]
    return out


def _num_operations(num_stages: IntArray, num_microbatches: IntArray) -> IntArray:
    """Forward, input gradient and weight gradient of every micro-batch on every stage."""
    return OPERATIONS_EACH * num_stages * num_microbatches


def _with_batches(request: PlanRequest, rows: Rows, most_operations: float) -> Rows:
    """Replicas and micro-batches: dp * micro_batch * num_microbatches = the global batch."""
    batch, allowed = request.workload.global_batch_sequences, request.constraints.allowed
    divisors = divisors_of(batch)
    replicas = [dp for dp in allowed.dp or divisors if batch % dp == 0]
    micro = micro_batches(request)
    pairs = [(dp, b, batch // dp // b) for dp in replicas for b in micro if (batch // dp) % b == 0]
    table = np.array(pairs, dtype=np.int64).reshape(-1, 3)
    dp, num_microbatches = table[:, 0], table[:, 2]
    operations = _num_operations((rows["pp"] * rows["vpp"])[:, None], num_microbatches)
    keep = (dp <= rows["max_dp"][:, None]) & (operations <= most_operations)
    framework = request.constraints.framework
    if framework is not None and framework.microbatch_per_rank:
        keep &= (rows["vpp"][:, None] == 1) | (num_microbatches >= rows["pp"][:, None])
    keep &= token_splits(request, rows["tp"], rows["cp"], table[:, 1])
    if request.constraints.use_all_gpus:
        replica = rows["tp"] * rows["cp"] * rows["pp"]
        keep &= (dp + 1) * replica[:, None] > usable_gpus(request)
    rows = {name: column for name, column in rows.items() if name != "max_dp"}
    return _crossed(rows, table, ("dp", "micro_batch", "num_microbatches"), keep)


def _with_experts(request: PlanRequest, rows: Rows) -> Rows:
    """Expert parallelism divides the experts and lies inside cp * dp; dense models have none."""
    table = np.array(expert_degrees(request), dtype=np.int64).reshape(-1, 1)
    return _crossed(rows, table, ("ep",), (rows["dp"] * rows["cp"])[:, None] % table[:, 0] == 0)


def _with_sharding(request: PlanRequest, pools: list[Pool], rows: Rows) -> Rows:
    """Sharding and its groups. Plain DDP is left out unless asked for: zero1 moves no more and keeps less.

    Beside zero1 and fsdp copies of hsdp may be as many as there are places, as those of zero1, so that a place more
    takes no choice away; where either is not allowed, as many as divide the replicas: in groups of one replica nothing
    is gathered over replicas, and fsdp is what keeps least. fsdp and hsdp of one replica without context parallelism
    shard nothing. A framework shares experts inside a group.
    """
    names = request.constraints.allowed.sharding or USUAL_SHARDING
    replicas = np.unique(rows["dp"])
    copies = {"hsdp": list(range(2, max(num_places(pools), 2) + 1)), "zero1": optimizer_copies(request, pools)}
    any_copies = not {"zero1", "fsdp"} <= set(names)
    if any_copies:
        copies["hsdp"] = divisors_of(request.workload.global_batch_sequences)
    options = [
        (SHARDING_CODES.index(name), k) for name in names for k in copies.get(name, [1]) if (replicas % k == 0).any()
    ]
    table = np.array(options, dtype=np.int64).reshape(-1, 2)
    dp, sharding, split = rows["dp"][:, None], table[:, 0], table[:, 1]
    shard_group = np.where(sharding == DDP, 1, dp // np.maximum(split, 1))
    keep = (dp % split == 0) & (shard_group >= 1)
    several = (split > 1) | ((dp == 1) & ("fsdp" not in names)) if any_copies else shard_group > 1
    keep &= np.where(sharding == HSDP, several, (split == 1) | (shard_group > 1))
    if request.constraints.framework is not None:
        keep &= (split == 1) | (shard_group * rows["cp"][:, None] % rows["ep"][:, None] == 0)
    trivial = (dp * rows["cp"][:, None] == 1) & (sharding >= FSDP)
    if any(code == ZERO1 for code, _ in options):
        keep &= ~trivial
    crossed = _crossed(rows, table[:, :1], ("sharding",), keep)
    return {**crossed, "shard_group": shard_group[keep]}


def optimizer_copies(request: PlanRequest, pools: list[Pool]) -> list[int]:
    """Numbers of copies of the optimizer state that zero1 may keep: up to one per place."""
    framework = request.constraints.framework
    several = framework is None or framework.has_copies(request.workload.optimizer.name)
    return list(range(1, num_places(pools) + 1)) if several else [1]


def num_places(pools: list[Pool]) -> int:
    """Places with GPUs to use."""
    return len({pool.place for pool in pools})


def _with_recompute(request: PlanRequest, rows: Rows) -> Rows:
    """Selective recomputation is what fused attention does anyway, so it is tried only without it."""
    usual: tuple[Recompute, ...] = (
        ("none", "full") if request.workload.flash_attention else ("none", "selective", "full")
    )
    names = request.constraints.allowed.recompute or usual
    codes = np.array([RECOMPUTE_CODES.index(name) for name in names], dtype=np.int64)
    crossed = {name: np.repeat(column, len(codes)) for name, column in rows.items()}
    return {**crossed, "recompute": np.tile(codes, len(rows["tp"]))}


def _with_layer_splits(request: PlanRequest, pools: list[Pool], rows: Rows) -> Rows:
    """Even rows, and by GPU type those not left to the even split whose ranks types hold, each rank whole on one type.

    Takes the columns out of `rows` one by one: of millions of rows a second copy would outlast the search, since
    the allocator keeps what lies between columns.
    """
    wanted = _layer_splits(request)
    chosen = {EVEN: np.zeros(0, dtype=np.int64), BY_GPU_TYPE: np.zeros(0, dtype=np.int64)}
    even_degrees = np.isin(rows["pp"], pipeline_degrees(request))
    if "even" in wanted:
        chosen[EVEN] = np.flatnonzero(even_degrees)
    if "by_gpu_type" in wanted and types_differ(request, pools):
        held = ranks_by_type(pools, rows["tp"], rows["cp"], rows["dp"])
        several = (rows["pp"] > 1) & (sum(held.values()) >= rows["pp"])
        chosen[BY_GPU_TYPE] = np.flatnonzero(several & ~left_to_even(request, pools, rows, held))
    row = np.concatenate(list(chosen.values()))
    split = {"layer_split": np.repeat(list(chosen), [len(one) for one in chosen.values()])}
    return {**{name: rows.pop(name)[row] for name in list(rows)}, **split}


def left_to_even(
    request: PlanRequest, pools: Sequence[Pool], rows: Mapping[str, IntArray], held: Mapping[str, IntArray]
) -> BoolArray:
    """Which pipelines are left to an even split, without one by GPU type: those that fit on the best type alone, and
    there into one building where they do on several types, if the request allows even splits of as many ranks.

    `held` are the ranks that each type holds, by row of degrees.

    None where no type is best in everything, nor where pins may keep ranks off it: what another type does sooner, or
    has room for, may then be more than its even share.
    """
    best = best_type(request.workload, pools)
    if "even" not in _layer_splits(request) or best is None or request.constraints.pins:
        return np.zeros(len(rows["pp"]), dtype=np.bool_)
    fits = fits_as_near(request.cluster, pools, best, rows, held[best])
    pipelines, replicas = crossing_allowed(request)
    if not (pipelines and replicas):
        own = [pool for pool in pools if pool.gpu.name == best]
        fits &= fits_uncrossed(request.cluster, own, rows, ranks_may_cross=pipelines, replicas_may_cross=replicas)
    return fits & np.isin(rows["pp"], pipeline_degrees(request))


def _layer_splits(request: PlanRequest) -> Sequence[str]:
    return request.constraints.allowed.layer_split or LAYER_SPLIT_CODES


def types_differ(request: PlanRequest, pools: list[Pool]) -> bool:
    """Some pipeline may have ranks on GPUs of different speed or memory."""
    buildings = buildings_of(request.cluster)
    apart = not request.constraints.pipeline_may_cross_buildings
    kinds: dict[str, set[tuple[object, ...]]] = {}
    for pool in pools:
        kinds.setdefault(buildings[pool.place] if apart else "", set()).add(_kind(request.workload, pool.gpu))
    return any(len(one) > 1 for one in kinds.values())


def _kind(workload: Workload, gpu: GpuType) -> tuple[object, ...]:
    """What times and memory on a type follow from, and what was measured on it, whatever its name."""
    measured = frozenset(one.model_copy(update={"gpu": ""}) for one in workload.layer_profiles if one.gpu == gpu.name)
    return (*strength_of(workload, gpu), gpu.num_multiprocessors or 0, measured)


def _crossed(rows: Rows, table: IntArray, names: tuple[str, ...], keep: npt.NDArray[np.bool_]) -> Rows:
    """Every row with every row of `table` that `keep` (rows x table) allows; the columns of the table get `names`."""
    row, choice = np.nonzero(keep)
    crossed = {name: column[row] for name, column in rows.items()}
    crossed.update({name: table[choice, index] for index, name in enumerate(names)})
    return crossed
