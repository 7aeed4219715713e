"""A valid lower bound of the iteration time of every configuration, and which of them can fit into memory at all.

The bounds hold for every placement, transport and schedule: layers are split as in `configurations/layers.py`,
gradients are exchanged after the last weight gradient less the stack's overlap. Stage messages across places are free
here; what distance costs at least, exchanges or messages, is `network_cut.py`. Proofs: docs/bounds.md, "Work, memory
and slower types".
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from models.cluster import GpuType
from models.stack import StackProfile
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.bounded import Bounds, merged
from solver.bounds.crossing_messages import CrossingDelay
from solver.bounds.cuts import cuts
from solver.bounds.even_memory import RankMemory, capacity_for_other_shares, ends_of, ranks_in_memory
from solver.bounds.even_pipelines import even_pipelines, even_pipelines_s, with_ends
from solver.bounds.gradient_exchange import smallest_stages
from solver.bounds.lightest import Seconds, backward, both, forward, inner_rank_s, lightest_rank_s, total_s
from solver.bounds.network_cut import CutCase, distance_cases, with_distance_s
from solver.bounds.synchronisation import SynchronisationTail, average_rank_exchanges_s, rank_cards_s, tail_of
from solver.bounds.unequal_layers import unequal_bounds, unequal_work_s
from solver.configurations.enumerate import BY_GPU_TYPE, Space
from solver.configurations.pricing import Shares, StageCosts, kinds, least_of
from solver.context import Context, GpuClass
from solver.cost.columns import FSDP, ZERO1, Columns
from solver.cost.compute import fastest_flops_per_s
from solver.cost.stage import StageCost
from solver.estimates.iteration import guess_s
from solver.estimates.params import ESTIMATES

ROWS_AT_ONCE = 8_192  # of a space whose memory is asked for: few enough that the columns of their costs stay small


def speed_of_light_s(context: Context) -> float:
    """Model-independent bound: model FLOPs over the peak of every GPU that may be used."""
    peaks = sorted(
        ((fastest_flops_per_s(m.gpu, context.job.precision), m.num_gpus) for m in context.gpu_classes.values()),
        reverse=True,
    )
    left, rate = context.usable_gpus, 0.0
    for peak, count in peaks:
        rate += min(left, count) * peak
        left -= min(left, count)
    return context.job.model_flops / rate


def light_bound_s(context: Context) -> float:
    """The speed of light as a bound; zero where the caller measured layers or states constants, which may exceed it."""
    request = context.request
    measured = request.workload.layer_profiles or isinstance(request.options.stack_profile, StackProfile)
    return 0.0 if measured else speed_of_light_s(context)


def lower_bounds(context: Context, space: Space) -> Bounds:
    """Bounds of all configurations, however they share out their layers."""
    by_type = space.layer_split == BY_GPU_TYPE
    if not by_type.any():
        return _even_bounds(context, space)
    some = space.take(by_type)
    unequal = unequal_bounds(context, some)
    return unequal if by_type.all() else merged(by_type, unequal, _even_bounds(context, space.take(~by_type)))


def shape_bounds_s(context: Context, space: Space) -> FloatArray:
    """The work of the ranks and the way of a micro-batch through them, without exchange, memory and distance.

    One row stands for all that `work_sharding` makes equal. Proof: gathers only add to the time of a stage.
    """
    sharding, shard_group = work_sharding(space)
    space = replace(space, columns=replace(space.columns, sharding=sharding, shard_group=shard_group))
    bound_s, by_type = np.empty(len(space)), space.layer_split == BY_GPU_TYPE
    if by_type.any():
        bound_s[by_type] = unequal_work_s(context, space.take(by_type))
    if not by_type.all():
        bound_s[~by_type] = _even_work_s(context, space.take(~by_type))
    return bound_s


def _even_work_s(context: Context, space: Space) -> FloatArray:
    """The same of rows that share out their layers evenly, on whatever types they are."""
    prices = [StageCosts(context, gpu_class, space.columns) for gpu_class in context.gpu_classes.values()]
    shares, price = Shares.of(prices[0], space.family), least_of(prices)
    parts = _work_parts(price, shares, ends_of(price, shares), price.whole)
    ways_s = even_pipelines_s(even_pipelines(price, shares), CrossingDelay.none(len(space)))
    lightest = [float(_lightest_s(one, shares, ends_of(one, shares)).sum()) for one in prices]
    fast_first = [prices[number] for number in np.argsort(lightest, kind="stable")]
    slower_s = _slower_types_s(fast_first, shares, price)
    bound_s: FloatArray = np.maximum.reduce([*(one.seconds for one in parts), ways_s, slower_s])
    return bound_s


def work_sharding(space: Space) -> tuple[IntArray, IntArray]:
    """Sharding and shard group as far as they matter to the work of ranks: where gathers move the shares of layers.

    The even split weighs the ends in layers, gathers included; bounds of shares by type hold for all of them.
    """
    columns = space.columns
    matters = (columns.sharding >= FSDP) & (space.layer_split != BY_GPU_TYPE)
    return np.where(matters, columns.sharding, ZERO1), np.where(matters, columns.shard_group, 1)


def memory_needs(context: Context, space: Space) -> tuple[BoolArray, FloatArray]:
    """Per configuration: whether it can fit, and the least bytes of a GPU that its fullest rank needs; no times.

    The same two figures as in `lower_bounds`, for a question about memory alone.
    """
    fits, need_bytes = np.empty(len(space), dtype=np.bool_), np.empty(len(space))
    by_type = space.layer_split == BY_GPU_TYPE
    if by_type.any():
        unequal = unequal_bounds(context, space.take(by_type))
        fits[by_type], need_bytes[by_type] = unequal.fits, unequal.least_memory_bytes
    if not by_type.all():
        even = space.take(~by_type)
        of_each_gpu: dict[GpuType, GpuClass] = {}
        for gpu_class in context.gpu_classes.values():
            of_each_gpu.setdefault(gpu_class.gpu, gpu_class)  # the first one: layers are split by its prices
        prices = [StageCosts(context, gpu_class, even.columns) for gpu_class in of_each_gpu.values()]
        memory = RankMemory.of(prices, Shares.of(prices[0], even.family))
        fits[~by_type], need_bytes[~by_type] = memory.fits, memory.need_bytes
    return fits, need_bytes


def other_shares_fit(context: Context, space: Space) -> bool:
    """Whether some even configuration may fit into memory with other layers per stage than the even split gives."""
    even = np.flatnonzero((space.layer_split != BY_GPU_TYPE) & (space.columns.pp > 1))
    for first in range(0, len(even), ROWS_AT_ONCE):
        some = space.take(even[first : first + ROWS_AT_ONCE])
        prices = [StageCosts(context, gpu_class, some.columns) for gpu_class in context.gpu_classes.values()]
        if capacity_for_other_shares(prices, some.family).any():
            return True
    return False


def _even_bounds(context: Context, space: Space) -> Bounds:
    """Bounds that hold whatever GPU type each rank of each replica is on, and what slower types cost where needed.

    Every cost is the least over the types, every capacity for activations the largest, so ranks on different types are
    covered. The guess is that of the best single type, or of the slowest that is needed.
    """
    prices = [StageCosts(context, gpu_class, space.columns) for gpu_class in context.gpu_classes.values()]
    shares = Shares.of(prices[0], space.family)
    tail = tail_of(prices, shares)
    whole = _bounds_on(prices, space, shares, tail)
    alone = [whole]
    if len(prices) > 1:
        alone = [_bounds_on([one], space, shares, tail_of([one], shares), with_ways=False) for one in prices]
    guess = np.minimum.reduce([one.guess_s for one in alone])
    order = sorted(range(len(prices)), key=lambda number: float(alone[number].lightest_s.sum()))
    left = np.zeros(len(space.columns), dtype=np.int64)
    for number in order:
        needed = space.columns.num_gpus > left
        own = np.where(alone[number].fits, alone[number].guess_s, ESTIMATES.unlikely * alone[number].guess_s)
        guess = np.where(needed, np.maximum(guess, own), guess)
        left = left + prices[number].gpu_class.num_gpus
    fast_first = [prices[number] for number in order]
    slower_s = _slower_types_s(fast_first, shares, least_of(prices))
    slower_s = np.where(slower_s > 0.0, slower_s + tail.exposed_s + tail.update_s, slower_s)
    slower_s[_beyond_slower(fast_first, shares)] = np.inf
    return replace(whole, iteration_s=np.maximum(whole.iteration_s, slower_s), guess_s=guess)


def even_cases(context: Context, space: Space) -> tuple[Iterator[Iterable[CutCase]], FloatArray]:
    """How even pipelines may lie over every cut, on whatever GPU types, and the least update after all of it."""
    prices = [StageCosts(context, gpu_class, space.columns) for gpu_class in context.gpu_classes.values()]
    shares, price = Shares.of(prices[0], space.family), least_of(prices)
    tail, costs = tail_of(prices, shares), [cost for _, cost in ends_of(price, shares)]
    return distance_cases(price, shares, tail.overlap_s, costs, jointly=True), tail.update_s


def _slower_types_s(fast_first: list[StageCosts], shares: Shares, least: StageCosts) -> FloatArray:
    """What configurations with more GPUs than the faster types have take on the others; 0 where they need none.

    Some replica has so many ranks there: m times the work of one of them, or all of it that follows the first forward
    through all stages, or that way there and back.
    """
    columns, m = least.columns, least.columns.num_microbatches
    bound_s, left = np.zeros(len(columns)), np.zeros(len(columns), dtype=np.int64)
    if len(fast_first) == 1:
        return bound_s
    whole, least_ends = least.whole, [cost for _, cost in ends_of(least, shares)]
    for place in range(1, len(fast_first)):
        left = left + fast_first[place - 1].gpu_class.num_gpus
        num_ranks, price = _ranks_on_slower(columns, left), least_of(fast_first[place:])
        own_ends = [cost for _, cost in ends_of(price, shares)]
        most_s = partial(_heaviest_s, price, shares, own_ends, num_ranks)
        more_s = partial(_least_more_s, (price, own_ends), (least, least_ends), shares)
        late_s = whole.forward_s + num_ranks * more_s(forward) + m * most_s(backward)
        there_and_back_s = whole.forward_s + whole.input_grad_s + num_ranks * more_s(both)
        slowest_s = np.maximum.reduce([m * most_s(total_s), late_s, there_and_back_s])
        bound_s = np.where(num_ranks > 0, np.maximum(bound_s, slowest_s), bound_s)
    return bound_s


def _heaviest_s(
    price: StageCosts, shares: Shares, ends: list[StageCost], num_ranks: IntArray, of: Seconds
) -> FloatArray:
    """One micro-batch on the heaviest of so many ranks, whichever they are; `ends` are the first and the last rank."""
    columns = price.columns
    at_ends, inner = [of(one) for one in ends], inner_rank_s(price, shares, of)
    lightest = np.minimum.reduce([inner, *at_ends])
    average = of(price.of(*kinds(price.context, 0, shares.num_layers))) / columns.pp
    heaviest: FloatArray = np.maximum.reduce([average, *at_ends])
    most = np.where(num_ranks >= columns.pp, heaviest, lightest)
    most = np.where((num_ranks > 2) & (columns.pp > 2), np.maximum(most, inner), most)
    light, heavy, num_light = shares.inner_ranks()
    heavier = (num_ranks - 2 > num_light) & (columns.pp > 2)
    return np.where(heavier, np.maximum(most, inner * heavy / light), most)


def _least_more_s(
    slower: tuple[StageCosts, list[StageCost]], least: tuple[StageCosts, list[StageCost]], shares: Shares, of: Seconds
) -> FloatArray:
    """By how much longer one micro-batch takes at least on a rank of slower types, whichever rank: prices and ends."""
    (price, ends), (least_price, least_ends) = slower, least
    layers = zip(price.layer_of_each_kind(), least_price.layer_of_each_kind(), strict=True)
    each_s = np.minimum.reduce([of(one) - of(other) for one, other in layers])
    inner = np.where(shares.columns.pp > 2, shares.inner_ranks()[0] * each_s, np.inf)
    at_ends = [of(one) - of(other) for one, other in zip(ends, least_ends, strict=True)]
    more_s: FloatArray = np.maximum(np.minimum.reduce([inner, *at_ends]), 0.0)
    return more_s


def _ranks_on_slower(columns: Columns, num_faster: IntArray) -> IntArray:
    """Ranks that have a replica beyond so many GPUs: (GPUs beyond) / (GPUs of a rank with its replicas), rounded up."""
    beyond = np.maximum(columns.num_gpus - num_faster, 0)
    return np.asarray(-(-beyond * columns.pp // columns.num_gpus))


def _beyond_slower(fast_first: list[StageCosts], shares: Shares) -> BoolArray:
    """Where more ranks have a replica on slower types than these have memory for."""
    columns = fast_first[0].columns
    impossible, num_faster = np.zeros(len(columns), dtype=np.bool_), np.zeros(len(columns), dtype=np.int64)
    for place in range(1, len(fast_first)):
        num_faster = num_faster + fast_first[place - 1].gpu_class.num_gpus
        most = ranks_in_memory(fast_first[place:], shares)
        impossible |= _ranks_on_slower(columns, num_faster) > most
    return impossible


def _bounds_on(
    prices: list[StageCosts], space: Space, shares: Shares, tail: SynchronisationTail, *, with_ways: bool = True
) -> Bounds:
    """Bounds where every rank is on one of these GPU types, and ends as `tail` says."""
    price = least_of(prices)
    context, columns = price.context, price.columns
    memory = RankMemory.of(prices, shares)
    ends, capacities, whole = memory.ends, memory.capacities, price.whole
    parts = _work_parts(price, shares, ends, whole)
    parts += [
        _memory_seconds_s(price, shares, rank, capacity)
        for (rank, _), capacity in zip(ends, (capacities[0], capacities[-1]), strict=True)
    ]
    costs = [cost for _, cost in ends]

    around_s = _around_queue_s(prices, shares, costs[-1], tail) if cuts(context) else np.zeros(len(columns))

    def pipeline_s(delay: CrossingDelay) -> FloatArray:
        longest = np.maximum.reduce([one.with_delay(delay) for one in parts]) + tail.exposed_s
        queued_s = delay.queued_s(columns.num_microbatches * columns.vpp, longest - around_s) + around_s
        return np.asarray(np.maximum(longest, np.where(delay.num_replicas > 0, queued_s, 0.0)))

    ways_s = _ways(prices, shares, memory, tail) if with_ways else None
    nowhere = CrossingDelay.none(len(columns))
    usual_s = pipeline_s(nowhere)
    bound_s = usual_s if ways_s is None else ways_s(nowhere)
    for cut in distance_cases(price, shares, tail.overlap_s, costs):  # those of all cuts at once fill the memory
        cases = list(cut)
        usual_s = with_distance_s(usual_s, [cases], pipeline_s)
        if ways_s is not None:
            bound_s = with_distance_s(
                np.maximum(bound_s, usual_s), [cases], lambda delay: np.maximum(pipeline_s(delay), ways_s(delay))
            )
    usual_s = np.maximum(usual_s, average_rank_exchanges_s(prices, shares, whole, tail.overlap_s)) + tail.update_s
    bound_s = np.maximum(usual_s, bound_s + tail.update_s)
    guess = guess_s(context, space, ends[0][1], whole, bound_s=usual_s, capacity=capacities[0])
    return Bounds(
        iteration_s=bound_s,
        guess_s=guess,
        lightest_s=_lightest_s(price, shares, ends),
        fits=memory.fits,
        least_memory_bytes=memory.need_bytes,
    )


def _around_queue_s(
    prices: list[StageCosts], shares: Shares, last_rank: StageCost, tail: SynchronisationTail
) -> FloatArray:
    """What comes before the first and after the last of the messages between two ranks, of which one stage each.

    Stages before and behind them run once, and the last rank exchanges all its chunks.
    """
    price = least_of(prices)
    once_s = np.minimum.reduce([np.minimum(one.forward_s, one.input_grad_s) for one in smallest_stages(price, shares)])
    around_s: FloatArray = price.columns.pp * once_s + rank_cards_s(prices, last_rank) - tail.overlap_s
    return around_s


def _ways(
    prices: list[StageCosts], shares: Shares, memory: RankMemory, tail: SynchronisationTail
) -> Callable[[CrossingDelay], FloatArray]:
    """What the ways through every rank take with the delays of replicas that cross."""
    price = least_of(prices)
    cards_s = rank_cards_s(prices, memory.last_but_one)
    ways = with_ends(even_pipelines(price, shares), memory.capacities, tail, cards_s)
    alone_s = even_pipelines_s(ways, CrossingDelay.none(len(price.columns)))
    return lambda delay: even_pipelines_s(ways, delay, alone_s)


@dataclass(frozen=True)
class _Part:
    """A bound without distance, and the passes in it, and ways home, where a replica crosses on every one of them."""

    seconds: FloatArray
    num_passes: FloatArray | float = 0.0
    num_ways_home: FloatArray | float = 0.0

    def with_delay(self, delay: CrossingDelay) -> FloatArray:
        """The bound with these delays."""
        return self.seconds + delay.passes_s(self.num_passes, self.num_ways_home)


def _lightest_s(price: StageCosts, shares: Shares, ends: list[tuple[IntArray, StageCost]]) -> FloatArray:
    """The work of the lightest rank over the iteration."""
    return price.columns.num_microbatches * lightest_rank_s(price, shares, [cost for _, cost in ends])


def _work_parts(
    price: StageCosts, shares: Shares, ends: list[tuple[IntArray, StageCost]], whole: StageCost
) -> list[_Part]:
    """What the work alone takes: that of an average rank, the way of a micro-batch there and back, and both ends."""
    columns = price.columns
    passes = 2.0 * columns.vpp.astype(np.float64)
    average = _Part(columns.num_microbatches * whole.total_s / columns.pp)
    there_and_back = _Part(whole.forward_s + whole.input_grad_s, passes, passes - 2.0)
    return [average, there_and_back, *(_rank_s(price, shares, rank, cost) for rank, cost in ends)]


def _rank_s(price: StageCosts, shares: Shares, rank: IntArray, cost: StageCost) -> _Part:
    """The first forward reaches a rank through all stages before it, its gradients go back through them.

    T >= head + max(m w, m (f + i) + tail): weight gradients may run while the tail does. Some crossing of the first
    pass lies before the last rank, and the head has its delay.
    """
    before = shares.start(rank)
    lead = price.of(*kinds(price.context, 0, before), embedding=np.where(rank > 0, 1.0, 0.0))
    m = price.columns.num_microbatches
    through = m * (cost.forward_s + cost.input_grad_s) + lead.input_grad_s
    bound: FloatArray = lead.forward_s + np.maximum(m * cost.total_s, through)
    return _Part(bound, np.where(rank > 0, 1.0, 0.0))


def _memory_seconds_s(price: StageCosts, shares: Shares, rank: IntArray, capacity: FloatArray) -> _Part:
    """A rank holds bytes for seconds, and has `capacity` bytes for T seconds: T >= m sum_j a_j life_j / capacity.

    Stage j holds its activation from its forward to its input gradient, while it and all later stages run both, and
    while both cross on every later pass; on the first rank also on its own.
    """
    context, columns, total = price.context, price.columns, shares.num_layers
    held, crossed = np.zeros(len(columns)), np.zeros(len(columns))
    for chunk in range(int(columns.vpp.max(initial=1))):
        stage = np.minimum(shares.stage_of(chunk, rank), columns.pp * columns.vpp - 1)
        begin, end = shares.start(stage), shares.start(stage + 1)
        later = price.of(*kinds(context, begin, total), logits=1.0)
        life = later.forward_s + later.input_grad_s
        own = price.of(*kinds(context, begin, end)).activation_bytes
        held = held + np.where(chunk < columns.vpp, own * life, 0.0)
        passes = columns.vpp - chunk - np.where(stage == chunk * columns.pp, 0, 1)
        crossed = crossed + np.where(chunk < columns.vpp, own * 2.0 * passes, 0.0)
    per_byte = columns.num_microbatches / np.maximum(capacity, 1.0)
    return _Part(per_byte * held, per_byte * crossed)
