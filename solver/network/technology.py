"""What each link technology allows: balancing methods, loss recovery, windows and software overhead.

`choices.py` chooses among them.
"""

from dataclasses import dataclass

from models.cluster import LinkTechnology, LoadBalancing
from models.transport import Reliability


@dataclass(frozen=True)
class Technology:
    """The limits of one transport technology."""

    name: LinkTechnology
    step_s: float  # software and network-card time of one step of a collective, on top of the path's latency
    max_queue_pairs: int
    max_outstanding: int
    header_bytes: int  # per packet, on top of the payload
    source: str


# Of one message on a queue pair: 128 KiB to 4 MiB.
CHUNK_BYTES = (131072, 524288, 1048576, 4194304)
OUTSTANDING = (1, 4, 8, 32, 128)  # chunks in flight per queue pair
QUEUE_PAIRS = (1, 2, 4, 8, 16, 32, 64, 128)  # per connection
MAX_IN_FLIGHT_BYTES = 2.0**31  # per connection; 16 QPs x 128 x 1 MiB, the ceiling of a shipped RDMA transport (CTran)

TECHNOLOGIES: dict[LinkTechnology, Technology] = {
    "roce": Technology("roce", 14e-6, 128, 128, 82, "NCCL 2.30 tuning: network ring and tree hop, Simple, 14 us"),
    "infiniband": Technology("infiniband", 14e-6, 128, 128, 66, "NCCL 2.30 tuning: network hop, Simple, 14 us"),
    "tcp": Technology("tcp", 40e-6, 64, 1, 78, "kernel socket transport; one window per stream"),
}


def largest_window_bytes(technology: LinkTechnology) -> float:
    """Most bytes in flight on one queue pair or stream.

    >>> largest_window_bytes("tcp")
    4194304.0
    """
    return float(max(CHUNK_BYTES) * TECHNOLOGIES[technology].max_outstanding)


def load_balancing_options(
    technology: LinkTechnology, offered: tuple[LoadBalancing, ...], *, out_of_order_receivers: bool
) -> tuple[LoadBalancing, ...]:
    """Methods that work on this link: those on offer, less what the receivers cannot take.

    Spraying needs network cards that place packets out of order; segment balancing (DQPLB) orders in software, but
    needs several RDMA queue pairs. A TCP stream is one flow, so streams scale like queue pairs and nothing is sprayed.
    >>> load_balancing_options("roce", ("ecmp", "spray"), out_of_order_receivers=False)
    ('ecmp',)
    """
    allowed: set[LoadBalancing] = {"ecmp", "ecmp_qp_scaling"}
    if technology != "tcp":
        allowed.add("dqplb")
        if out_of_order_receivers:
            allowed.add("spray")
    usable = tuple(method for method in offered if method in allowed)
    return usable or ("ecmp",)


def reliability_options(
    technology: LinkTechnology, balancing: LoadBalancing, *, out_of_order_receivers: bool
) -> tuple[Reliability, ...]:
    """Loss recovery that works with this technology and balancing method.

    A go-back-N receiver drops what arrives out of order, so it excludes spraying; selective repeat and codes need
    receivers that place packets out of order.
    >>> reliability_options("roce", "ecmp", out_of_order_receivers=False)
    ('go_back_n',)
    """
    if technology == "tcp":
        return ("tcp",)
    out_of_order: tuple[Reliability, ...] = ("selective_repeat_nack", "selective_repeat", "erasure_code")
    if balancing == "spray":
        return out_of_order
    return ("go_back_n", *out_of_order) if out_of_order_receivers else ("go_back_n",)


def payload_fraction(technology: LinkTechnology, mtu_bytes: int) -> float:
    """Share of the wire that is payload: MTU / (MTU + headers).

    >>> round(payload_fraction("roce", 4096), 4)
    0.9804
    """
    return mtu_bytes / (mtu_bytes + TECHNOLOGIES[technology].header_bytes)
