"""Where the job may run: the place tree, the GPU pools in it and the links between its places."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from models.base import (
    Bytes,
    BytesPerSecond,
    CapacityBytes,
    Count,
    FlopsPerSecond,
    Frozen,
    Kilometres,
    LossProbability,
    Name,
    PositiveCount,
    PositiveFraction,
    Rate,
    Seconds,
    Usd,
    Watts,
    check_unique,
)
from models.catalogue import named_entry

PlaceLevel = Literal["region", "building", "zone", "rack"]
LEVELS: tuple[PlaceLevel, ...] = get_args(PlaceLevel)
Tier = Literal["scale_up", "rack", "zone", "building", "cross_building", "cross_region"]
LinkTechnology = Literal["roce", "infiniband", "tcp"]
LoadBalancing = Literal["ecmp", "ecmp_qp_scaling", "spray", "dqplb"]
PlaceId = Name
Latency = Annotated[Seconds, Field(le=10)]  # a geostationary satellite is 0.25 s away: more is a wrong unit
Oversubscription = Annotated[float, Field(ge=1, le=1e4, json_schema_extra={"unit": "1"})]
MAX_GPUS = 4_194_304
MOST_NAMED = 8  # names of places that a message lists; the rest is an ellipsis
MOST_DOMAIN_GPUS = 65_536  # seven times the largest scale-up domain on offer; sizes up to it are tried one by one


class GpuType(Frozen):
    """One accelerator type: peaks, memory and scale-up domain."""

    name: Name = Field(description="Name used in pools and plans.", examples=["H100-SXM-80G"])
    bf16_flops_per_s: FlopsPerSecond = Field(description="Dense BF16/FP16 peak.", examples=[9.89e14])
    fp32_flops_per_s: FlopsPerSecond | None = Field(
        None,
        description="Dense peak of FP32 matrix products, TF32 where the type has it; null: half the 16-bit peak.",
        examples=[4.945e14],
    )
    fp8_flops_per_s: FlopsPerSecond | None = Field(
        None, description="Dense FP8 peak; null if absent.", examples=[1.979e15]
    )
    fp4_flops_per_s: FlopsPerSecond | None = Field(None, description="Dense FP4 peak; null if absent.", examples=[9e15])
    memory_bytes: CapacityBytes = Field(description="HBM capacity.", examples=[8.0e10])
    memory_bytes_per_s: BytesPerSecond = Field(description="HBM bandwidth.", examples=[3.35e12])
    scale_up_bytes_per_s: BytesPerSecond = Field(
        description="Scale-up (NVLink or alike) bandwidth per GPU and direction.", examples=[4.5e11]
    )
    scale_up_domain_gpus: Annotated[int, Field(ge=1, le=MOST_DOMAIN_GPUS)] = Field(
        description="GPUs in one scale-up domain.", examples=[8]
    )
    scale_up_full_mesh: bool = Field(
        False,
        description="Each pair of a domain has a link of its own in place of a switch: n GPUs use n - 1 of them.",
        examples=[False],
    )
    best_gemm_fraction: PositiveFraction | None = Field(
        None,
        description="Best measured dense BF16 matrix rate over the peak, for readers alone: no time follows from it, "
        "stack profiles state what software reaches; null if unknown.",
        examples=[0.803],
    )
    num_multiprocessors: PositiveCount | None = Field(
        None,
        description="Units that output tiles of matrix products are dealt to in waves; null: waves are not counted.",
        examples=[132],
    )
    board_power_w: Watts | None = Field(
        None, description="Highest power of the board by its data sheet; null if unknown.", examples=[700.0]
    )
    usd_per_gpu_hour: Usd | None = Field(None, description="Price of one GPU-hour; null if unknown.", examples=[2.5])
    source: str = Field(
        "", max_length=400, description="Where these numbers were published.", examples=["vendor datasheet"]
    )


class Uplink(Frozen):
    """How a place reaches its parent: the shared capacity above it."""

    oversubscription: Oversubscription = Field(
        1.0, description="NIC rate below over capacity above; 1 means full bisection.", examples=[2.8]
    )
    latency_s: Latency | None = Field(
        None, description="One-way delay to the parent's switch; null takes the tier's default.", examples=[5e-6]
    )
    planes: PositiveCount = Field(1, description="Equal parallel paths that flows are spread over.", examples=[16])
    loss_probability: LossProbability = Field(0.0, description="Probability that a packet is lost.", examples=[0.0])
    technology: LinkTechnology = Field("roce", description="Transport technology.", examples=["roce"])
    load_balancing: tuple[LoadBalancing, ...] = Field(
        ("ecmp", "ecmp_qp_scaling"), min_length=1, description="Load balancing on offer.", examples=[["ecmp", "spray"]]
    )


class Place(Frozen):
    """A node of the place tree: region > building > zone > rack."""

    id: PlaceId = Field(description="Unique name of the place.", examples=["east-1"])
    level: PlaceLevel = Field(description="Level in the tree.", examples=["building"])
    parent: PlaceId | None = Field(None, description="Enclosing place; null for a root.", examples=["campus"])
    uplink: Uplink = Field(
        default_factory=Uplink, description="Shared capacity towards the parent.", examples=[{"oversubscription": 2.8}]
    )


GpuTypeOrName = Annotated[
    GpuType, BeforeValidator(lambda value: named_entry("gpus", value), json_schema_input_type=GpuType | str)
]


class Pool(Frozen):
    """GPUs of one type in one place."""

    id: Name = Field(description="Unique name of the pool.", examples=["east-1-h100"])
    place: PlaceId = Field(description="Place that holds the pool.", examples=["east-1"])
    gpu: GpuTypeOrName = Field(description="GPU type, or its catalogue name.", examples=["H100-SXM-80G"])
    num_hosts: Annotated[int, Field(ge=1, le=10_000_000)] = Field(description="Hosts in the pool.", examples=[1024])
    gpus_per_host: Annotated[int, Field(ge=1, le=1024)] = Field(8, description="GPUs of one host.", examples=[8])
    nics_per_gpu: Annotated[float, Field(gt=0, le=64, json_schema_extra={"unit": "1"})] = Field(
        1.0, description="Network cards per GPU (0.5: two GPUs share one).", examples=[1.0]
    )
    nic_bytes_per_s: BytesPerSecond = Field(description="Rate of one network card per direction.", examples=[5.0e10])
    flow_bytes_per_s: BytesPerSecond | None = Field(
        None,
        description="Most that the flow of one GPU gets through the network cards, however idle they are; null: its "
        "share of the cards.",
        examples=[2.5e9],
    )
    num_reserved_gpus: Count = Field(0, description="GPUs that other jobs hold.", examples=[0])
    num_unhealthy_gpus: Count = Field(0, description="GPUs out of service.", examples=[16])
    host_names: tuple[Name, ...] = Field(
        (),
        max_length=1_000_000,
        description="Hosts in rank order, those with GPUs that are reserved or out of service last: plans take "
        "GPUs from the first on. Empty if not known.",
        examples=[["node-0001", "node-0002"]],
    )

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        missing = self.num_reserved_gpus + self.num_unhealthy_gpus
        if missing > self.num_hosts * self.gpus_per_host:
            raise ValueError(
                f"{missing} GPUs are reserved or unhealthy but the pool has {self.num_hosts * self.gpus_per_host}: "
                "lower num_reserved_gpus or num_unhealthy_gpus"
            )
        if self.host_names and len(self.host_names) != self.num_hosts:
            raise ValueError(
                f"host_names has {len(self.host_names)} entries for num_hosts {self.num_hosts}: give all or none"
            )
        if len(set(self.host_names)) != len(self.host_names):
            raise ValueError("host_names repeats a name: every host is listed once")
        return self

    @property
    def num_free_gpus(self) -> int:
        """GPUs that a plan may use."""
        return self.num_hosts * self.gpus_per_host - self.num_reserved_gpus - self.num_unhealthy_gpus

    @property
    def nic_bytes_per_s_per_gpu(self) -> float:
        """Scale-out rate that one GPU has to itself, per direction: its share of the cards, at most its flow's."""
        return min(self.card_bytes_per_s_per_gpu, self.flow_bytes_per_s or float("inf"))

    @property
    def card_bytes_per_s_per_gpu(self) -> float:
        """Share of the network cards per GPU, per direction."""
        return self.nics_per_gpu * self.nic_bytes_per_s


class Link(Frozen):
    """A cable or route between two places. Both directions exist; the reverse takes the same numbers unless given."""

    id: Name = Field(description="Unique name of the link.", examples=["east-west"])
    from_place: PlaceId = Field(description="One end.", examples=["east-1"])
    to_place: PlaceId = Field(description="Other end.", examples=["west-1"])
    capacity_bytes_per_s: BytesPerSecond = Field(
        description="Capacity of all planes together, from_place to to_place.", examples=[1.0e13]
    )
    reverse_capacity_bytes_per_s: BytesPerSecond | None = Field(
        None, description="Capacity to_place to from_place; null means the same.", examples=[1.0e13]
    )
    latency_s: Latency | None = Field(
        None, description="One-way delay; null derives it from distance_km and the tier.", examples=[5e-4]
    )
    distance_km: Kilometres | None = Field(
        None, description="Length of the fibre, used where latency_s is null.", examples=[100.0]
    )
    loss_probability: LossProbability = Field(0.0, description="Probability that a packet is lost.", examples=[1e-6])
    flow_bytes_per_s: BytesPerSecond | None = Field(
        None,
        description="Most that one flow, a queue pair or TCP stream of one GPU, gets on the link; null: no limit.",
        examples=[6.0e8],
    )
    planes: Annotated[int, Field(ge=1, le=4096)] = Field(
        1, description="Equal parallel paths of the link.", examples=[76]
    )
    num_failed_planes: Count = Field(0, description="Planes that are down.", examples=[1])
    oversubscription: Oversubscription = Field(
        1.0, description="The usable capacity is capacity over this, when all GPUs send.", examples=[2.8]
    )
    background_bytes_per_s: Rate = Field(0.0, description="Traffic of others, from_place to to_place.", examples=[0.0])
    reverse_background_bytes_per_s: Rate | None = Field(
        None, description="Traffic of others in the other direction; null means the same.", examples=[0.0]
    )
    technology: LinkTechnology = Field("roce", description="Transport technology.", examples=["roce"])
    load_balancing: tuple[LoadBalancing, ...] = Field(
        ("ecmp", "ecmp_qp_scaling"), min_length=1, description="Load balancing on offer.", examples=[["ecmp", "spray"]]
    )
    out_of_order_receivers: bool = Field(
        False, description="Receivers place packets that arrive out of order, which spraying needs.", examples=[True]
    )
    mtu_bytes: Annotated[int, Field(ge=256, le=65536, json_schema_extra={"unit": "B"})] = Field(
        4096, description="Packet size.", examples=[4096]
    )
    switch_buffer_bytes: Bytes | None = Field(
        None, description="Buffer of the switch at the end of the link; null if unknown.", examples=[6.4e7]
    )
    usd_per_gb: Usd | None = Field(None, description="Egress price per 1e9 bytes; null means free.", examples=[0.02])

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        if self.from_place == self.to_place:
            raise ValueError(f"link {self.id!r} joins {self.from_place!r} with itself: give two different places")
        if self.num_failed_planes >= self.planes:
            raise ValueError(
                f"link {self.id!r}: {self.num_failed_planes} of {self.planes} planes failed leaves none: "
                "remove the link instead"
            )
        for direction, background, capacity in (
            ("", self.background_bytes_per_s, self.usable_bytes_per_s(reverse=False, background=0.0)),
            ("reverse_", self.background(reverse=True), self.usable_bytes_per_s(reverse=True, background=0.0)),
        ):
            if background >= capacity:
                raise ValueError(
                    f"link {self.id!r}: {direction}background {background:g} B/s leaves nothing of {capacity:g} B/s"
                )
        return self

    def background(self, *, reverse: bool) -> float:
        """Traffic of others in one direction (B/s)."""
        if reverse and self.reverse_background_bytes_per_s is not None:
            return self.reverse_background_bytes_per_s
        return self.background_bytes_per_s

    def usable_bytes_per_s(self, *, reverse: bool, background: float | None = None) -> float:
        """Capacity left in one direction after failed planes, oversubscription and background (B/s)."""
        capacity = self.capacity_bytes_per_s
        if reverse and self.reverse_capacity_bytes_per_s is not None:
            capacity = self.reverse_capacity_bytes_per_s
        alive = (self.planes - self.num_failed_planes) / self.planes
        used = self.background(reverse=reverse) if background is None else background
        return capacity * alive / self.oversubscription - used


class Cluster(Frozen):
    """Places, pools and links; consistent by construction."""

    name: Name = Field(description="Name used in plans and reports.", examples=["two-buildings"])
    places: tuple[Place, ...] = Field(
        min_length=1, max_length=20_000, description="The place tree.", examples=[[{"id": "b1", "level": "building"}]]
    )
    pools: tuple[Pool, ...] = Field(
        min_length=1,
        max_length=20_000,
        description="GPUs by type and place.",
        examples=[[{"id": "p1", "place": "b1", "gpu": "H100-SXM-80G", "num_hosts": 128, "nic_bytes_per_s": 5.0e10}]],
    )
    links: tuple[Link, ...] = Field(
        (),
        max_length=20_000,
        description="Links between places beside the tree's uplinks.",
        examples=[[{"id": "l1", "from_place": "b1", "to_place": "b2", "capacity_bytes_per_s": 1e13}]],
    )
    fabric: Literal["linked", "one", "separate"] = Field(
        "linked",
        description="What joins buildings beside stated links and uplinks. linked: nothing, so these are needed. "
        "one: the buildings of a region are inside one fabric of full bisection. separate: nothing, on purpose; a plan "
        "stays among buildings that are joined.",
        examples=["linked"],
    )
    source: str = Field("", max_length=1000, description="Where these numbers come from.", examples=["site survey"])

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for kind, parts in (("place", self.places), ("pool", self.pools), ("link", self.links)):
            check_unique((one.id for one in parts), f"{kind} id {{!r}} occurs twice: ids are unique")
        _check_tree(self.places)
        _check_size(self.pools)
        _check_gpu_types(self.pools)
        known = {place.id for place in self.places}
        for pool in self.pools:
            _check_known(f"pool {pool.id!r}.place", pool.place, known)
        for link in self.links:
            _check_known(f"link {link.id!r}.from_place", link.from_place, known)
            _check_known(f"link {link.id!r}.to_place", link.to_place, known)
        return self

    @property
    def num_free_gpus(self) -> int:
        """GPUs over all pools that a plan may use."""
        return sum(pool.num_free_gpus for pool in self.pools)


def places_around(places: Iterable[Place]) -> dict[PlaceId, tuple[Place, ...]]:
    """Every place with itself and all that encloses it, innermost first."""
    by_id = {place.id: place for place in places}

    def chain(place: Place) -> tuple[Place, ...]:
        return (place,) if place.parent is None else (place, *chain(by_id[place.parent]))

    return {name: chain(place) for name, place in by_id.items()}


def _check_size(pools: tuple[Pool, ...]) -> None:
    total = sum(pool.num_hosts * pool.gpus_per_host for pool in pools)
    if total > MAX_GPUS:
        raise ValueError(
            f"the pools have {total:,} GPUs together, more than the {MAX_GPUS:,} this version plans for: "
            "check num_hosts and gpus_per_host, or leave pools out"
        )


def _check_gpu_types(pools: tuple[Pool, ...]) -> None:
    """One name, one GPU type: plans and prices go by the name."""
    seen: dict[str, GpuType] = {}
    for pool in pools:
        if seen.setdefault(pool.gpu.name, pool.gpu) != pool.gpu:
            raise ValueError(
                f"pool {pool.id!r} has a GPU type {pool.gpu.name!r} with other numbers than an earlier pool: "
                "give different types different names"
            )


def _check_known(where: str, place: str, known: AbstractSet[str]) -> None:
    if place not in known:
        raise ValueError(f"{where} names {place!r}, which is not a place: use one of {names_of(known)}")


def names_of(known: AbstractSet[str]) -> str:
    """A few names for a message.

    >>> names_of({"west", "east"})
    'east, west'
    """
    more = ", ..." if len(known) > MOST_NAMED else ""
    return ", ".join(sorted(known)[:MOST_NAMED]) + more


def _check_tree(places: tuple[Place, ...]) -> None:
    """Every parent exists and lies on a higher level, which also rules out cycles."""
    by_id = {place.id: place for place in places}
    for place in places:
        if place.parent is None:
            continue
        _check_known(f"place {place.id!r}.parent", place.parent, by_id.keys())
        above = by_id[place.parent]
        if LEVELS.index(above.level) >= LEVELS.index(place.level):
            raise ValueError(
                f"place {place.id!r} ({place.level}) has parent {above.id!r} ({above.level}): a parent lies on a "
                f"higher level of {' > '.join(LEVELS)}, so the tree has no cycle"
            )
