"""Time for an empty message: fibre, long-haul equipment and the switches of each tier.

Every latency constant of the network.
"""

from itertools import pairwise
from math import ceil

from models.cluster import LEVELS, PlaceLevel, Tier

FIBRE_S_PER_KM = 4.9e-6  # group index 1.468 of standard single-mode fibre
LONG_HAUL_KM = 40.0  # beyond this, coherent transponders with error correction replace plain optics
TERMINAL_S = 70e-6  # both transponders of a long-haul line, one way
AMPLIFIER_SPAN_KM = 80.0  # usual span between in-line amplifiers
AMPLIFIER_S = 11e-6  # one in-line amplifier site with its compensation, one way

# Idle round trip of 22 us inside an AI zone, whose tier is 7 times the rack's (RoCE at Meta scale, SIGCOMM'24; NCCLX).
RACK_S = 22e-6 / 2 / 7
TIER_LADDER: dict[Tier, float] = {
    "scale_up": 0.6,
    "rack": 1.0,
    "zone": 7.0,
    "building": 15.0,
    "cross_building": 30.0,
}
DEFAULT_CROSS_REGION_KM = 1000.0  # where a request states neither delay nor length
# Tier at which two GPUs of a place meet.
MEETING_TIER: dict[PlaceLevel, Tier] = {
    "rack": "rack",
    "zone": "zone",
    "building": "building",
    "region": "cross_building",
}
# Half of the ladder lies on either side of the meeting point, so the hops of a path add up to the tier's latency.
ACCESS_LADDER = {level: TIER_LADDER[tier] / 2 for level, tier in MEETING_TIER.items()}
UPLINK_LADDER = {inner: ACCESS_LADDER[outer] - ACCESS_LADDER[inner] for outer, inner in pairwise(LEVELS)}


def fibre_s(distance_km: float) -> float:
    """One-way delay of light in fibre: 4.9 us per km.

    >>> round(fibre_s(100.0), 9)
    0.00049
    """
    return distance_km * FIBRE_S_PER_KM


def num_amplifier_sites(distance_km: float) -> int:
    """In-line amplifiers of a long-haul line: one between every two spans of 80 km.

    >>> [num_amplifier_sites(km) for km in (50, 100, 500)]
    [0, 1, 6]
    """
    return max(0, ceil(distance_km / AMPLIFIER_SPAN_KM) - 1)


def line_s(distance_km: float) -> float:
    """One-way delay of a line with its equipment: fibre, and beyond 40 km transponders and amplifiers.

    Constants fitted once to the TWAMP round trips of a 100G DCI test bed, 50-500 km (HPE Networking, 2026).
    >>> round(2 * line_s(500.0), 6)
    0.005172
    """
    if distance_km <= LONG_HAUL_KM:
        return fibre_s(distance_km)
    return fibre_s(distance_km) + TERMINAL_S + num_amplifier_sites(distance_km) * AMPLIFIER_S


def tier_s(tier: Tier) -> float:
    """Default one-way delay between two GPUs that meet at this tier: the ladder 1 / 7 / 15 / 30.

    Source: NCCLX, arXiv 2510.20171. Across regions there is no ladder; a line of 1,000 km is assumed.
    >>> round(tier_s("zone") * 1e6, 3)
    11.0
    """
    if tier == "cross_region":
        return line_s(DEFAULT_CROSS_REGION_KM) + tier_s("cross_building")
    return TIER_LADDER[tier] * RACK_S


def access_s(level: PlaceLevel) -> float:
    """Default one-way delay from a GPU to the top switch of its place.

    >>> round(2 * access_s("zone") * 1e6, 3)
    11.0
    """
    return ACCESS_LADDER[level] * RACK_S


def uplink_s(level: PlaceLevel) -> float:
    """Default one-way delay from the top switch of a place to that of its parent.

    >>> round((access_s("rack") + uplink_s("rack") - access_s("zone")) * 1e12)
    0
    """
    if level == "region":
        return line_s(DEFAULT_CROSS_REGION_KM) / 2
    return UPLINK_LADDER[level] * RACK_S


def link_s(latency_s: float | None, distance_km: float | None, *, cross_region: bool) -> float:
    """One-way delay of a link as described: stated, else from its length, else the tier's default.

    >>> link_s(2e-3, 100.0, cross_region=False)
    0.002
    """
    if latency_s is not None:
        return latency_s
    if distance_km is not None:
        return line_s(distance_km)
    if cross_region:
        return line_s(DEFAULT_CROSS_REGION_KM)
    return (TIER_LADDER["cross_building"] - 2 * ACCESS_LADDER["building"]) * RACK_S
