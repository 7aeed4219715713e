"""How the traffic travels: flows, the choice made for every communicator, and what each link then carries."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from models.base import (
    Bytes,
    Count,
    Frozen,
    JoinedName,
    Name,
    PositiveCount,
    PositiveFraction,
    Rate,
    Ratio,
    TotalSeconds,
)
from models.cluster import LoadBalancing, Tier

Dimension = Literal["tp", "cp", "ep", "pp", "dp"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
Algorithm = Literal["ring", "tree", "pat", "hierarchical", "direct", "direct_hierarchical"]
Reliability = Literal["go_back_n", "selective_repeat", "selective_repeat_nack", "erasure_code", "tcp"]
Price = Annotated[float, Field(ge=0, json_schema_extra={"unit": "s/GB"})]


class TransportChoice(Frozen):
    """The transport of one communicator on one tier, with the reason."""

    dimension: Dimension = Field(description="Parallel dimension of the communicator.", examples=["dp"])
    collective: Collective = Field(description="What it does.", examples=["all_reduce"])
    tier: Tier = Field(description="Widest tier that it crosses.", examples=["cross_building"])
    num_ranks: PositiveCount = Field(description="Members of one communicator.", examples=[64])
    message_bytes: Bytes = Field(description="Size of one operation per member.", examples=[5.4e8])
    algorithm: Algorithm = Field(description="Collective algorithm.", examples=["hierarchical"])
    chunk_bytes: Bytes = Field(description="Size of one chunk on the wire.", examples=[1048576])
    num_queue_pairs: PositiveCount = Field(description="Queue pairs per connection.", examples=[16])
    num_outstanding: PositiveCount = Field(description="Chunks in flight per queue pair.", examples=[32])
    load_balancing: LoadBalancing = Field(description="How flows are spread over planes.", examples=["spray"])
    reliability: Reliability = Field(description="Loss recovery.", examples=["selective_repeat"])
    expected_s: TotalSeconds = Field(
        description="Time of one operation by itself, by which options were weighed: of an all_reduce of gradients "
        "that of the largest stage, its parts inside and between places one after another. The iteration waits for "
        "`exchanges`: chunks overlap both parts there, and each stage has its own size.",
        examples=[0.012],
    )
    effective_bytes_per_s: Rate = Field(description="Rate that one member sees.", examples=[4.2e10])
    num_slices: PositiveCount = Field(
        1, description="Slices that a hierarchical algorithm pipelines over its two levels.", examples=[8]
    )
    reason: str = Field(
        max_length=600, description="Why this choice won, with the numbers.", examples=["spray: no collisions"]
    )


class LinkStep(Frozen):
    """One link of a path, in one direction."""

    link: JoinedName = Field(
        description="Link id, or `uplink:PLACE` for an uplink of the tree.", examples=["east-west"]
    )
    reverse: bool = Field(description="Direction: false is from_place to to_place, or up.", examples=[False])


class MessagePath(Frozen):
    """One of several paths of a message."""

    steps: tuple[LinkStep, ...] = Field(
        min_length=1, max_length=256, description="Links in order.", examples=[[{"link": "far", "reverse": False}]]
    )
    part: PositiveFraction = Field(description="Part of every message that takes it.", examples=[0.75])


class MessageSplit(Frozen):
    """Stage messages from one place to another, split over paths: a message is there when its last part is."""

    from_place: Name = Field(description="Place that sends.", examples=["b0"])
    to_place: Name = Field(description="Place that receives.", examples=["b1"])
    paths: tuple[MessagePath, ...] = Field(min_length=1, max_length=256, description="Its paths.", examples=[[{}]])


class Connection(Frozen):
    """How every connection of a communicator sends on one way between places."""

    num_connections: PositiveCount = Field(
        description="Connections that share what the way can carry as equals, those of other replicas included.",
        examples=[64],
    )
    load_balancing: LoadBalancing = Field(description="How flows are spread over planes.", examples=["spray"])
    reliability: Reliability = Field(description="Loss recovery.", examples=["selective_repeat"])
    num_queue_pairs: PositiveCount = Field(description="Queue pairs per connection.", examples=[16])
    chunk_bytes: Annotated[int, Field(ge=1, json_schema_extra={"unit": "B"})] = Field(
        description="Size of one chunk on the wire.", examples=[1048576]
    )
    num_outstanding: PositiveCount = Field(description="Chunks in flight per queue pair.", examples=[32])


class MessageTransport(Frozen):
    """How stage messages travel from one pool to another in another place."""

    from_pool: Name = Field(description="Pool that sends.", examples=["p0"])
    to_pool: Name = Field(description="Pool that receives.", examples=["p1"])
    route: Name | None = Field(
        None,
        description="Route whose replicas have time slots here, with the connections of a slot; null: all at once.",
        examples=[None],
    )
    connection: Connection = Field(description="How each GPU of a stage group sends.", examples=[{}])


class ExchangeStep(Frozen):
    """How a step of a ring of places travels: the narrowest of its tier stands for all of that tier."""

    from_place: Name = Field(description="Place that sends.", examples=["b0"])
    to_place: Name = Field(description="Place that receives.", examples=["b1"])
    connection: Connection = Field(description="How each GPU of the place with fewest replicas sends.", examples=[{}])


class ExchangeRing(Frozen):
    """The ring of places that the exchanges of some stages travel, one copy of the gradients per place."""

    stages: tuple[Count, ...] = Field(min_length=1, description="Stages whose exchange takes it.", examples=[[0, 1]])
    steps: tuple[MessageSplit, ...] = Field(
        min_length=2,
        description="From each place to the next, in a circle from the first by name.",
        examples=[[{}, {}]],
    )
    transports: tuple[ExchangeStep, ...] = Field(
        min_length=1, description="The narrowest step of every tier that the ring crosses.", examples=[[{}]]
    )
    num_at_once: Annotated[int, Field(ge=1, le=64)] = Field(
        1,
        description="So many exchanges have room on its links at once: if above 1, each sends as slowly as that takes.",
        examples=[1],
    )


class TransportPolicy(Frozen):
    """What the plan fixes in advance about sharing links; every time between places follows from it."""

    num_exchange_chunks: Annotated[int, Field(ge=1, le=1024)] = Field(
        8, description="Chunks of an exchange, pipelined over the cards inside places and the links.", examples=[8]
    )
    exchange_share: Annotated[float, Field(ge=0.01, le=0.99, json_schema_extra={"unit": "1"})] = Field(
        0.5,
        description="Of a link that carries both, what stage messages leave to the exchange of gradients.",
        examples=[0.5],
    )


class LinkFlow(Frozen):
    """What one cause puts on one direction of one link during an iteration."""

    cause: Dimension = Field(description="Parallel dimension that sends.", examples=["pp"])
    bytes_per_iteration: Bytes = Field(description="Bytes over the iteration.", examples=[5.5e11])
    price_s_per_gb: Price = Field(
        0.0,
        description="Dual of this direction in the routing of the cause: seconds of iteration per further gigabyte.",
        examples=[6.25e-4],
    )


class LinkLoad(Frozen):
    """Load of one direction of one link over the iteration."""

    link: JoinedName = Field(
        description="Link id, or `uplink:PLACE` for an uplink of the tree.", examples=["east-west"]
    )
    reverse: bool = Field(description="Direction: false is from_place to to_place, or up.", examples=[False])
    usable_bytes_per_s: Rate = Field(
        description="Capacity after failures, oversubscription and background.", examples=[1e13]
    )
    flows: tuple[LinkFlow, ...] = Field(
        description="Bytes by cause.", examples=[[{"cause": "pp", "bytes_per_iteration": 1e9}]]
    )
    mean_utilisation: Ratio = Field(description="Bytes over usable capacity times iteration time.", examples=[0.12])
    peak_utilisation: Ratio = Field(description="Highest instantaneous rate over usable capacity.", examples=[1.0])
    num_background_flows: Count = Field(0, description="Flows of others that the request states.", examples=[0])
    headroom_bytes_per_s: Rate = Field(0.0, description="Usable capacity less the peak rate.", examples=[2.5e12])
    bottleneck: tuple[Dimension, ...] = Field(
        (), description="Causes whose pace this direction sets, hidden behind compute or not.", examples=[["dp"]]
    )
    price_s_per_gb: Price = Field(
        0.0,
        description="Iteration time that one more gigabyte on it costs, the dearest of its flows; 0 where compute or"
        " another link sets the pace.",
        examples=[6.25e-4],
    )

    @property
    def total_bytes(self) -> float:
        """Bytes of all causes over the iteration."""
        return sum(flow.bytes_per_iteration for flow in self.flows)

    def bytes_of(self, cause: Dimension) -> float:
        """Bytes of one cause over the iteration."""
        return sum(flow.bytes_per_iteration for flow in self.flows if flow.cause == cause)
