"""Switch memory that distance asks for: lossless headroom, congestion buffers, and warnings when a link lacks them.

A shortage is a warning with numbers; it refuses no plan.
"""

from models.cluster import Link, LinkTechnology

RESPONSE_S = 1.2e-6  # time a switch takes to stop sending after a pause frame (802.1Qbb allows 614.4 ns plus the port)
PAUSE_FRAME_BYTES = 64.0  # IEEE 802.1Qbb
LONG_HAUL_BUFFER_ROUND_TRIPS = 2.5  # full utilisation without drops, measured at 500 km (HPE Networking, 2026)
SHALLOW_BUFFER_BYTES = 64e6  # what shallow-buffer switch silicon of this generation has at least


def pfc_headroom_bytes(rate_bytes_per_s: float, one_way_s: float, mtu_bytes: float = 4096.0) -> float:
    """Memory per port and priority that absorbs what is under way after a pause: 2 C t + C t_resp + 2 MTU + pause.

    Source: IEEE 802.1Qbb, annex O.
    >>> round(pfc_headroom_bytes(5e10, 100 * 4.9e-6) / 1e6, 1)
    49.1
    """
    under_way = rate_bytes_per_s * (2.0 * one_way_s + RESPONSE_S)
    return under_way + 2.0 * mtu_bytes + PAUSE_FRAME_BYTES


def long_haul_buffer_bytes(rate_bytes_per_s: float, round_trip_s: float) -> float:
    """Buffer of the switch before a long line: 2.5 RTT of its rate.

    >>> long_haul_buffer_bytes(12.5e9, 5.179e-3)
    161843750.0
    """
    return LONG_HAUL_BUFFER_ROUND_TRIPS * rate_bytes_per_s * round_trip_s


def buffer_warnings(link: Link, one_way_s: float) -> tuple[str, ...]:
    """What a person should know about the buffers at the ends of a link; empty when they suffice."""
    plane_rate = link.capacity_bytes_per_s / link.planes
    warnings = [_headroom_warning(link, plane_rate, one_way_s), _congestion_warning(link, plane_rate, one_way_s)]
    return tuple(text for text in warnings if text)


def _headroom_warning(link: Link, plane_rate: float, one_way_s: float) -> str:
    lossless: tuple[LinkTechnology, ...] = ("roce", "infiniband")
    if link.technology not in lossless:
        return ""
    have = SHALLOW_BUFFER_BYTES if link.switch_buffer_bytes is None else link.switch_buffer_bytes
    need = pfc_headroom_bytes(plane_rate, one_way_s, link.mtu_bytes)
    if need <= have:
        return ""
    assumed = " (assumed: give switch_buffer_bytes)" if link.switch_buffer_bytes is None else ""
    name = "Pause headroom" if link.technology == "roce" else "Credit buffer"
    return (
        f"{name} of link {link.id!r}: {need / 1e6:.1f} MB per port and priority at {one_way_s * 1e6:.0f} us one way, "
        f"but the switch has {have / 1e6:.1f} MB{assumed}; run it as a lossy line with selective repeat or a code."
    )


def _congestion_warning(link: Link, plane_rate: float, one_way_s: float) -> str:
    if link.switch_buffer_bytes is None:
        return ""
    need = long_haul_buffer_bytes(plane_rate, 2.0 * one_way_s)
    if need <= link.switch_buffer_bytes:
        return ""
    return (
        f"Congestion buffer of link {link.id!r}: {need / 1e6:.1f} MB (2.5 round trips per plane) keep a shared line "
        f"full without drops, but the switch has {link.switch_buffer_bytes / 1e6:.1f} MB; keep its load below capacity."
    )
