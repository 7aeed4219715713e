"""Network physics against published measurements: collectives, line-rate shares, point to point, long-haul lines.

Nothing is fitted: the constants are packaged, and no measured value of a row is used in its own prediction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from benchmarks import measured_fabrics
from models.cluster import Tier
from models.transport import Collective
from solver.calibration.report import ReportBuilder, ValidationReport
from solver.network import fabrics
from solver.network.collectives import bus_factor
from solver.network.efficiency import FabricProfile
from solver.network.latency import TIER_LADDER, line_s
from solver.network.transfer import windowed_rate_bytes_per_s

Row = Mapping[str, str]


class Sample(NamedTuple):
    """One row that can be predicted: its family and both values in the same unit."""

    family: str
    predicted: float
    measured: float


class Skipped(NamedTuple):
    """One row that cannot, and why."""

    family: str
    reason: str


_SYSTEMS: tuple[tuple[str, str, FabricProfile], ...] = (
    (r"^A100 8-GPU", "a100_node", fabrics.A100_NVLINK),
    (r"^V100 8-GPU", "v100_node", fabrics.V100_NVLINK),
    (r"^8x H[12]00", "h200_node", fabrics.HOPPER_NVLINK),
    (r"^8x B[23]00", "b200_node", fabrics.BLACKWELL_NVLINK),
    (r"^\d+x8 B200", "b200_multi_node", measured_fabrics.EFA),
    (r"^\d+x8 H200", "h200_multi_node", measured_fabrics.EFA),
    (r"MI300X", "mi300x_node", fabrics.MI300X_XGMI),
)
_COLLECTIVES: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_ALGORITHMS = {"NVLSTree": "tree", "Tree": "tree"}
_KILOMETRES = re.compile(r"([\d.]+)\s*km")
_RELATIVE_LATENCY = re.compile(r"relative latency ([\d.]+)x")
_QUEUE_DEPTH = re.compile(r"(\d+) QPs x depth (\d+) x (\d+) KiB")
_NUM_CLIENTS = re.compile(r"(\d+) clients share the link")
_LINE_GIGABITS = re.compile(r"(\d+)G DCI")
_TIERS: dict[str, Tier] = {
    "same rack": "rack",
    "other rack, same AI zone": "zone",
    "other AI zone, same building": "building",
    "other building": "cross_building",
}


def validate_network(rows: Iterable[Row]) -> ValidationReport:
    """Predict every row that a packaged profile covers; count the rest with the reason.

    Rows have the columns kind, system, fabric, ranks, nodes, collective, algo, size_bytes, time_us, busbw_GBps,
    fraction_of_line_rate, distance, rtt_us, notes; empty cells are empty strings.
    """
    builder = ReportBuilder()
    for row in rows:
        outcome = _predict(row)
        if isinstance(outcome, Skipped):
            builder.skip(outcome.family, outcome.reason)
        else:
            builder.add(outcome.family, outcome.predicted, outcome.measured)
    return builder.build()


def _predict(row: Row) -> Sample | Skipped:
    kind = row.get("kind", "")
    predict = _KINDS.get(kind)
    if predict is None:
        return Skipped(kind or "unnamed", "kind of row is unknown")
    try:
        return predict(row)
    except (KeyError, ValueError) as error:
        return Skipped(kind, f"cell is missing or not a number: {type(error).__name__}")


def _collective(row: Row) -> Sample | Skipped:
    name = row["collective"]
    collective = next((one for one in _COLLECTIVES if one == name), None)
    found = next(
        ((family, profile) for pattern, family, profile in _SYSTEMS if re.search(pattern, row["system"])), None
    )
    if found is None or collective is None:
        return Skipped("collective", f"no profile for {row['system']} {name}")
    family, profile = found
    algorithm = "ring" if row["algo"] == "Ring" else _ALGORITHMS.get(row["algo"], "")
    size, ranks, nodes = float(row["size_bytes"]), int(row["ranks"]), int(row["nodes"] or 1)
    seconds = profile.collective_s(collective, size, ranks, num_nodes=nodes, algorithm=algorithm)
    if row["time_us"]:
        return Sample(family, seconds * 1e6, float(row["time_us"]))
    return Sample(family, bus_factor(collective, ranks) * size / seconds / 1e9, float(row["busbw_GBps"]))


def _ratio(row: Row) -> Sample | Skipped:
    exchange = row["collective"].startswith("all_to_all")
    collective: Collective = "all_to_all" if exchange else "all_reduce"
    inside = row["fabric"].startswith("NVLink")
    profile = fabrics.SIMAI_NVLINK if inside else measured_fabrics.ROCE
    family = f"line_rate_{'exchange' if exchange else 'ring'}_{'node' if inside else 'multi_node'}"
    fraction = profile.line_fraction(
        collective, float(row["size_bytes"]), int(row["ranks"]), num_nodes=1 if inside else int(row["nodes"])
    )
    return Sample(family, fraction, float(row["fraction_of_line_rate"]))


def _point_to_point(row: Row) -> Sample | Skipped:
    if "DCI" in row["system"]:
        return _long_haul_throughput(row)
    across = row["distance"].startswith("other region")
    cloud = re.match(r"GCP (\S+)", row["system"])
    profile = measured_fabrics.cloud_vm(cloud.group(1)) if cloud else None
    if profile is None and "Slingshot" in row["fabric"]:
        profile = measured_fabrics.SLINGSHOT
    if profile is None:
        return Skipped("point_to_point", f"no profile for {row['system']}")
    size = float(row["size_bytes"])
    seconds = profile.collective_s("send_recv", size, 2, algorithm="cross_region" if across else "")
    family = "cloud_cross_region" if across else "cloud_region" if cloud else "slingshot"
    if row["time_us"]:
        return Sample(family, seconds * 1e6, float(row["time_us"]))
    return Sample(family, size / seconds / 1e9, float(row["busbw_GBps"]))


def _long_haul_throughput(row: Row) -> Sample | Skipped:
    """Rate of several clients on one long line: min(line rate, windows / RTT), the round trip from the distance."""
    depth = _QUEUE_DEPTH.search(row["notes"])
    gigabits = _LINE_GIGABITS.search(row["fabric"])
    kilometres = _KILOMETRES.search(row["distance"])
    if depth is None or gigabits is None or kilometres is None:
        return Skipped("long_haul_throughput", "queue depth, line rate or distance is not stated")
    clients = _NUM_CLIENTS.search(row["notes"])
    pairs, outstanding, chunk_kib = (int(one) for one in depth.groups())
    window = pairs * outstanding * chunk_kib * 1024 * (int(clients.group(1)) if clients else 1)
    rate = windowed_rate_bytes_per_s(float(gigabits.group(1)) * 1e9 / 8, window, 2 * line_s(float(kilometres.group(1))))
    return Sample("long_haul_throughput", rate / 1e9, float(row["busbw_GBps"]))


def _round_trip(row: Row) -> Sample | Skipped:
    kilometres = _KILOMETRES.search(row["distance"])
    if kilometres is None:
        return Skipped("long_haul_rtt", "distance is not stated in km")
    return Sample("long_haul_rtt", 2e6 * line_s(float(kilometres.group(1))), float(row["rtt_us"]))


def _relative_latency(row: Row) -> Sample | Skipped:
    tier, stated = _TIERS.get(row["distance"]), _RELATIVE_LATENCY.search(row["notes"])
    if tier is None or stated is None:
        return Skipped("relative_latency", "tier or factor is not stated")
    return Sample("relative_latency", TIER_LADDER[tier] / TIER_LADDER["rack"], float(stated.group(1)))


_KINDS: dict[str, Callable[[Row], Sample | Skipped]] = {
    "collective": _collective,
    "ratio": _ratio,
    "p2p": _point_to_point,
    "rtt": _round_trip,
    "relative_latency": _relative_latency,
}
