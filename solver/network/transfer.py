"""One message on one path: cutting it into chunks, windows, and the rate of a TCP stream."""

from math import sqrt


def chunked_pipeline_s(wire_s: float, fill_s: float) -> float:
    """Transfer cut into the best number of chunks: W + 2 sqrt(f W).

    With q chunks the wire time W is followed by a fill of W/q and preceded by q chunk overheads of f:
    W + W/q + q f, least at q = sqrt(W/f). The shape behind the slow rise of measured rates with size.
    >>> chunked_pipeline_s(1.0, 0.01)
    1.2
    """
    return wire_s + 2.0 * sqrt(fill_s * wire_s)


def windowed_rate_bytes_per_s(line_bytes_per_s: float, in_flight_bytes: float, round_trip_s: float) -> float:
    """Rate that a window allows: min(line, in flight / RTT). No round trip, no limit.

    >>> windowed_rate_bytes_per_s(5e10, 4 * 2**20, 10e-3)
    419430400.0
    """
    if round_trip_s <= 0:
        return line_bytes_per_s
    return min(line_bytes_per_s, in_flight_bytes / round_trip_s)


def mathis_rate_bytes_per_s(segment_bytes: float, round_trip_s: float, loss_probability: float) -> float:
    """Upper bound of one loss-driven TCP stream: 1.22 MSS / (RTT sqrt(p)).

    Source: Mathis et al., CCR 1997. Without loss or delay there is no bound.
    >>> round(mathis_rate_bytes_per_s(1448, 0.02, 1e-4))
    8832800
    """
    if loss_probability <= 0 or round_trip_s <= 0:
        return float("inf")
    return 1.22 * segment_bytes / (round_trip_s * sqrt(loss_probability))
