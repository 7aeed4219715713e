"""How much of a path's rate any allowed transport reaches: an upper limit over balancing, windows and streams.

`choices.py` chooses a transport, and remains below it.
"""

from functools import lru_cache

from models.cluster import LinkTechnology, LoadBalancing
from solver.network.balancing import balanced_efficiency
from solver.network.technology import (
    MAX_IN_FLIGHT_BYTES,
    TECHNOLOGIES,
    largest_window_bytes,
    load_balancing_options,
    payload_fraction,
)
from solver.network.topology import PathFacts
from solver.network.transfer import mathis_rate_bytes_per_s, windowed_rate_bytes_per_s


@lru_cache(maxsize=65_536)
def largest_share(
    technology: LinkTechnology,
    offered: tuple[LoadBalancing, ...],
    *,
    out_of_order_receivers: bool,
    num_planes: int,
    num_connections: int,
) -> float:
    """Largest share of a link's capacity that so many connections carry under any method: with most queue pairs each.

    More flows on the same planes fill them more evenly: of n + 1 flows leave out any one, and the fullest plane keeps
    its part n / (n + 1) on average, so E[max] / n falls with n.

    >>> round(largest_share("tcp", ("ecmp",), out_of_order_receivers=False, num_planes=32, num_connections=16), 3)
    0.209
    """
    pairs = TECHNOLOGIES[technology].max_queue_pairs
    return max(
        balanced_efficiency(method, num_connections=num_connections, queue_pairs=pairs, num_planes=num_planes)
        for method in load_balancing_options(technology, offered, out_of_order_receivers=out_of_order_receivers)
    )


def connection_limit_bytes_per_s(path: PathFacts) -> float:
    """Payload rate that no window, limit of flows or loss-driven stream lets one connection exceed on a path."""
    technology = TECHNOLOGIES[path.technology]
    window = min(technology.max_queue_pairs * largest_window_bytes(path.technology), MAX_IN_FLIGHT_BYTES)
    rate = windowed_rate_bytes_per_s(float("inf"), window, path.round_trip_s)
    rate = min(rate, technology.max_queue_pairs * path.flow_bytes_per_s)
    rate *= payload_fraction(path.technology, path.mtu_bytes)
    if path.technology != "tcp":
        return rate
    stream = mathis_rate_bytes_per_s(path.mtu_bytes, path.round_trip_s, path.loss_probability)
    return min(rate, technology.max_queue_pairs * stream)
