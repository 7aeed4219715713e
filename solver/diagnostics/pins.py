"""What pins and rules on crossing leave of a request: the least sizes of a plan, and pins that no plan can obey.

By arithmetic on the places alone. What is said here holds for every plan: where it cannot be said, nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.cluster import PlaceId
from models.outcome import Reason
from models.request import Pin, PlanRequest
from models.statements import SPACE_LIMITS
from solver.diagnostics.rule import forbidden_with_gpus, gpus_by_place, listed
from solver.network.paths import islands
from solver.network.places import ancestors_of, buildings_of, usable_pools
from solver.network.topology import build_topology

Areas = Mapping[PlaceId, frozenset[object]]
Around = Mapping[PlaceId, tuple[PlaceId, ...]]
MOST_TOLD = 8  # pins in a sentence
REPLICA = "pipeline_may_cross_buildings is false, so one building has all ranks of a replica"
RANK = "data_parallel_may_cross_buildings is false, so one building has all replicas of a rank"
WHOLE = "max_cross_building_bytes_per_iteration is 0, so one building has all of a plan"
JOINED = "nothing joins these places, and all of a plan is joined"


@dataclass(frozen=True)
class MinimumDegrees:
    """No plan has less than these, nor more replicas than `most_replicas`."""

    group_gpus: int
    ranks: int
    replicas: int
    most_replicas: int

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole plan."""
        return self.group_gpus * self.ranks * self.replicas

    @classmethod
    def of(cls, request: PlanRequest) -> MinimumDegrees:
        """The least of the degrees that are allowed and leave each pin its ranks and its replicas."""
        allowed, pins = request.constraints.allowed, request.constraints.pins
        group_gpus = min(allowed.tp or (1,)) * min(allowed.cp or (1,))
        pinned = max((pin.last_pipeline_rank + 1 for pin in pins), default=1)
        counted = max((pin.num_replicas or 1 for pin in pins), default=1)
        ranks = min((pp for pp in allowed.pp or () if pp >= pinned), default=pinned)
        replicas = min((dp for dp in allowed.dp or () if dp >= counted), default=counted)
        most = max(allowed.dp) if allowed.dp else request.workload.global_batch_sequences
        return cls(group_gpus, ranks, replicas, most)


def pins_hold(request: PlanRequest) -> Iterator[Reason]:
    """Every place has the GPUs of what is pinned to it, by each pin alone."""
    free_in = gpus_by_place(request)
    for index, pin in enumerate(request.constraints.pins):
        free = free_in[pin.place]
        ranks = pin.last_pipeline_rank - pin.first_pipeline_rank + 1
        allowed = request.constraints.allowed
        replicas = pin.num_replicas or min(allowed.dp or (1,))
        least = ranks * replicas * min(allowed.tp or (1,)) * min(allowed.cp or (1,))
        if free < least:
            yield Reason(
                code="pins-contradict",
                pointer=f"/constraints/pins/{index}",
                detail=f"{ranks} pipeline ranks of {replicas} replicas need at least {least} GPUs in "
                f"{pin.place!r}, which has {free} to use",
                remedies=(
                    "pin fewer ranks or replicas",
                    "pin to a larger place",
                    *filter(None, [forbidden_with_gpus(request, pin.place)]),
                ),
            )


def pinned_ranks_exist(request: PlanRequest) -> Iterator[Reason]:
    """Some allowed pipeline is long enough to have the pinned ranks."""
    wanted, layers = request.constraints.allowed.pp, request.workload.architecture.num_layers
    most = max(wanted) if wanted else min(layers, SPACE_LIMITS.max_pipeline_ranks)
    ranks = f"the allowed pp of {listed(wanted)}" if wanted else f"a pipeline of at most {most} ranks"
    for index, pin in enumerate(request.constraints.pins):
        if most <= pin.last_pipeline_rank:
            yield Reason(
                code="pins-contradict",
                pointer=f"/constraints/pins/{index}/last_pipeline_rank",
                detail=f"pipeline rank {pin.last_pipeline_rank} is pinned, but {ranks} never has it",
                remedies=(
                    f"lower last_pipeline_rank to {most - 1} or less",
                    *((f"allow pp {pin.last_pipeline_rank + 1}",) if pin.last_pipeline_rank < layers else ()),
                ),
            )


def pins_agree(request: PlanRequest) -> Iterator[Reason]:
    """All replicas of a rank cannot be in one place, and some of them in another, of which neither holds the other.

    Of each pin the first contradiction: a thousand pins have half a million pairs.
    """
    around, pins = ancestors_of(request.cluster), request.constraints.pins
    for other, second in enumerate(pins):
        apart = (one for one in range(other) if _contradict(pins[one], second, around))
        one = next(apart, None)
        if one is not None:
            first, rank = pins[one], max(pins[one].first_pipeline_rank, second.first_pipeline_rank)
            yield Reason(
                code="pins-contradict",
                pointer=f"/constraints/pins/{other}/place",
                detail=f"of pipeline rank {rank}, pin {one} wants {first.num_replicas or 'all'} replicas in "
                f"{first.place!r} and pin {other} {second.num_replicas or 'all'} in {second.place!r}, "
                "which do not hold each other",
                remedies=("pin different ranks", "give both pins num_replicas"),
            )


def too_many_replicas(request: PlanRequest) -> Iterator[Reason]:
    """Pins that want more replicas of a rank than there may be, one of them or two in places apart."""
    pins, most = request.constraints.pins, MinimumDegrees.of(request).most_replicas
    around = ancestors_of(request.cluster)
    counted = [index for index, pin in enumerate(pins) if pin.num_replicas is not None]
    for number, index in enumerate(counted):
        own = pins[index].num_replicas or 0
        apart = (one for one in counted[:number] if _compete(pins[one], pins[index], around))
        other = max(apart, key=lambda one: pins[one].num_replicas or 0, default=None)
        both = own + (pins[other].num_replicas or 0 if other is not None else 0)
        if both <= most:
            continue
        named = _told(pins, index) if other is None or own > most else f"{_told(pins, other)}, {_told(pins, index)}"
        yield Reason(
            code="pins-contradict",
            pointer=f"/constraints/pins/{index}/num_replicas",
            detail=f"{named}, but there are at most {most:,} replicas: "
            + ("the largest allowed dp" if request.constraints.allowed.dp else "the sequences of the batch"),
            remedies=(
                "lower num_replicas of the pins",
                f"allow dp {both} or more" if request.constraints.allowed.dp else "raise global_batch_sequences",
            ),
        )


def pins_too_large(request: PlanRequest) -> Iterator[Reason]:
    """Places with fewer GPUs than all ranks that are pinned to them, or inside them, need together."""
    pins, size, around = request.constraints.pins, MinimumDegrees.of(request), ancestors_of(request.cluster)
    pinned, free = {pin.place for pin in pins}, gpus_by_place(request)
    replicas_of: dict[PlaceId, dict[int, int]] = {}
    last_of: dict[PlaceId, list[int]] = {}
    for index, pin in enumerate(pins):
        last = min(pin.last_pipeline_rank, request.workload.architecture.num_layers)
        for place in (one for one in around[pin.place] if one in pinned):
            here = replicas_of.setdefault(place, {})
            last_of.setdefault(place, []).append(index)
            for rank in range(pin.first_pipeline_rank, last + 1):
                here[rank] = max(here.get(rank, 0), pin.num_replicas or size.replicas)
    for place, here in replicas_of.items():
        least, indices = size.group_gpus * sum(here.values()), last_of[place]
        if len(indices) > 1 and 0 < free[place] < least:
            yield Reason(
                code="pins-contradict",
                pointer=f"/constraints/pins/{indices[-1]}",
                detail=f"pins {', '.join(map(str, indices[:MOST_TOLD]))}{' and others' * (len(indices) > MOST_TOLD)} "
                f"want {len(here)} pipeline ranks in {place!r}, with their replicas at least {least:,} GPUs; it has "
                f"{free[place]:,} to use",
                remedies=("pin fewer ranks or replicas", "pin to a larger place"),
            )


def pins_apart(request: PlanRequest) -> Iterator[Reason]:
    """Pins whose ranks would have to meet where they cannot: on one island of the links, or in one building."""
    for indices, areas, why in _meetings(request):
        clash = _without_common(request.constraints.pins, indices, areas)
        if clash:
            told = [_told(request.constraints.pins, index) for index in clash[:3]]
            yield Reason(
                code="pins-contradict",
                pointer=f"/constraints/pins/{clash[-1]}/place",
                detail=f"{', '.join(told)}{' and others' if len(clash) > len(told) else ''}: {why}",
                remedies=(
                    *_ways_out(request),
                    *(("raise max_cross_building_bytes_per_iteration",) if why == WHOLE else ()),
                    *(("state links that join these places",) if why == JOINED else ()),
                    "pin these ranks inside one building",
                ),
            )
            return


def _ways_out(request: PlanRequest) -> Iterator[str]:
    """The rules on crossing that, given up alone, let the pins be obeyed."""
    stated = request.constraints
    for name in ("pipeline_may_cross_buildings", "data_parallel_may_cross_buildings"):
        freed = request.with_constraints(**{name: True})
        if not getattr(stated, name) and not any(pins_apart(freed)):
            yield f"set {name} to true"


def _meetings(request: PlanRequest) -> Iterator[tuple[Sequence[int], Areas, str]]:
    """Pins by number that a plan obeys in one and the same area, with the areas of every pinned place."""
    stated, pools, around = request.constraints, usable_pools(request), ancestors_of(request.cluster)
    buildings, island = buildings_of(request.cluster), islands(build_topology(request.cluster))

    def areas(number: Mapping[str, object]) -> Areas:
        places = {pin.place for pin in stated.pins}
        return {one: frozenset(number[p.place] for p in pools if one in around[p.place]) for one in places}

    every = range(len(stated.pins))
    yield every, areas(island), JOINED
    replicas_cross, ranks_cross = stated.data_parallel_may_cross_buildings, stated.pipeline_may_cross_buildings
    none_crosses = stated.max_cross_building_bytes_per_iteration == 0.0
    if replicas_cross and ranks_cross and not none_crosses:
        return
    inside = areas(buildings)
    if none_crosses:
        yield every, inside, WHOLE
    elif not replicas_cross and not ranks_cross:
        yield every, inside, f"{REPLICA}, and {RANK.replace('false, so', 'too:')}"
    elif not ranks_cross:
        of_all = [index for index in every if stated.pins[index].num_replicas is None]
        yield of_all, inside, REPLICA
        for index in every:
            if stated.pins[index].num_replicas is not None:
                yield [*of_all, index], inside, REPLICA
    else:
        ranks = [range(pin.first_pipeline_rank, pin.last_pipeline_rank + 1) for pin in stated.pins]
        for rank in dict.fromkeys(pin.first_pipeline_rank for pin in stated.pins):
            on_rank = [one for one in every if rank in ranks[one]]
            yield on_rank, inside, RANK


def _without_common(pins: Sequence[Pin], indices: Sequence[int], areas: Areas) -> list[int]:
    """Of pins in no common area two that have none, else the first few that have none together; none where all meet.

    A pin to a place without GPUs is refused for that.
    """
    met: list[int] = []
    common: frozenset[object] | None = None
    for index in indices:
        own = areas[pins[index].place]
        if not own:
            return []
        common = own if common is None else common & own
        if not common:
            other = next((one for one in met if not areas[pins[one].place] & own), None)
            return [*met, index] if other is None else [other, index]
        met.append(index)
    return []


def _contradict(first: Pin, second: Pin, around: Around) -> bool:
    """Whether two pins want replicas of one rank, one of them all, in places that do not hold each other."""
    return (first.num_replicas is None or second.num_replicas is None) and _compete(first, second, around)


def _compete(first: Pin, second: Pin, around: Around) -> bool:
    """Whether no replica can obey both pins, which share a rank."""
    if first.place in around[second.place] or second.place in around[first.place]:
        return False
    last = min(first.last_pipeline_rank, second.last_pipeline_rank)
    return max(first.first_pipeline_rank, second.first_pipeline_rank) <= last


def _told(pins: Sequence[Pin], index: int) -> str:
    pin = pins[index]
    ranks = f"rank {pin.first_pipeline_rank}"
    if pin.last_pipeline_rank > pin.first_pipeline_rank:
        ranks = f"ranks {pin.first_pipeline_rank} to {pin.last_pipeline_rank}"
    return f"pin {index} wants pipeline {ranks} of {pin.num_replicas or 'all'} replicas in {pin.place!r}"
