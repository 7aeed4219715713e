"""Predictions beside published runs across sites that nobody fitted: bands over what was not published.

Reads `published_crosssite.csv`, whose column `assumed_fields` names what is not in the source. These rows are sanity
checks and never calibrate anything. Part of `make accuracy`; alone: `python -m benchmarks.cross_site`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.outcome import Planned
from models.request import PlanRequest
from solver.network.connection import Option, Wire, connection_rate_bytes_per_s
from solver.network.topology import build_topology
from solver.planner import plan

ROWS = Path(__file__).parent.parent / "tests" / "published" / "data" / "published_crosssite.csv"
BYTES_PER_GBIT = 1e9 / 8
GPUS_PER_HOST = 8
WORK_S = 4.0  # counted work of a search; one shape is left open to it
SHAPES: Mapping[str, Mapping[str, Sequence[int]]] = {
    "gpt-3-175b": {"tp": [8], "pp": [8]},
    "nemotron-4-340b": {"tp": [8], "pp": [12]},
    "intellect-1": {"tp": [1], "pp": [1]},
}
INTELLECT = {
    "name": "intellect-1",
    "num_layers": 42,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "attention": {"kind": "gqa", "num_heads": 32, "num_kv_heads": 8, "head_dim": 128},
    "vocab_size": 128256,
    "source": "arXiv:2412.01152",
}
HEAD = """Nobody fitted these rows, and most of what a prediction needs is not published: the column "assumed" names
it. A band spans the batches that were assumed, or one to all cards of a host. Efficiency is that of the same GPUs in
one building; only the published split is allowed. One wave down: the exchange is taken to run behind the last
backward, so half of the line costs its exposed part once more. A run that hides all of it and just fills the line
would lose 40 to 50 %, which is what was published, at an efficiency above 95 %; loss and pauses after a break are
not in it.

| run | quantity | split | published | predicted | assumed |
|---|---|---|---:|---:|---|
"""
UNITS = {"efficiency_pct": "efficiency, %", "wave_down_pct": "one wave down, %", "mfu_pct": "MFU, %",
         "chunk_gb_per_s": "GB/s per node"}  # fmt: skip
SPLITS: Mapping[str, Mapping[str, Any]] = {
    "pp": {"data_parallel_may_cross_buildings": False, "use_all_gpus": True},
    "dp": {"pipeline_may_cross_buildings": False, "use_all_gpus": True},
    "none": {"use_all_gpus": True},
}


@dataclass(frozen=True)
class Published:
    """One published figure with what a request for it needs."""

    cells: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.cells[name]

    def number(self, name: str) -> float:
        """A cell as a number."""
        return float(self.cells[name])

    @property
    def batches(self) -> tuple[int, ...]:
        """Global batches that were assumed, in sequences."""
        return tuple(int(one) for one in self.cells["global_batches"].split())

    @property
    def is_modelled(self) -> bool:
        """Whether a synchronous plan says anything of it."""
        return self.cells["split"] != "diloco"


def published(path: Path = ROWS) -> list[Published]:
    """The rows of the file."""
    with path.open(newline="", encoding="utf-8") as lines:
        return [Published(cells) for cells in csv.DictReader(lines)]


def request_of(row: Published, batch: int, *, num_sites: int = 2, failed_waves: int = 0) -> PlanRequest:
    """The run as a request: equal sites in a row of one, or two with a line between them."""
    hosts = int(row.number("num_gpus")) // GPUS_PER_HOST // num_sites
    sites = [f"site-{number}" for number in range(num_sites)]
    pools = [
        {"id": f"{site}-gpus", "place": site, "gpu": row["gpu"], "num_hosts": hosts,
         "nic_bytes_per_s": row.number("nic_gbit_per_s") * BYTES_PER_GBIT}
        for site in sites
    ]  # fmt: skip
    line = {
        "id": "line",
        "from_place": "site-0",
        "to_place": "site-1",
        "distance_km": row.number("distance_km"),
        "capacity_bytes_per_s": row.number("link_gbit_per_s") * BYTES_PER_GBIT,
        "planes": int(row.number("waves")),
        "num_failed_planes": failed_waves,
        "loss_probability": 1e-8,
    }
    return PlanRequest.model_validate(
        {
            "workload": {
                "architecture": INTELLECT if row["model"] == "intellect-1" else row["model"],
                "sequence_length": int(row["sequence_length"]),
                "global_batch_sequences": batch,
            },
            "cluster": {
                "name": row["name"],
                "places": [{"id": site, "level": "building"} for site in sites],
                "pools": pools,
                "links": [line] if num_sites > 1 else [],
            },
            "constraints": {
                "allowed": {**SHAPES[row["model"]], "cp": [1], "vpp": [1], "micro_batch_sequences": [1]},
                **(SPLITS[row["split"]] if num_sites > 1 else {"use_all_gpus": True}),
            },
            "options": {"time_limit_s": WORK_S, "relative_gap": 0.02, "workers": 1, "reproducible": True},
        }
    )


@lru_cache(maxsize=256)
def _metrics(request: PlanRequest) -> tuple[float, float]:
    outcome = plan(request, clock=lambda: 0.0)  # seconds of the search are counted work alone, however busy the machine
    if not isinstance(outcome, Planned):
        raise ValueError(f"{request.cluster.name}: {outcome}")
    return outcome.plan.metrics.iteration_s, outcome.plan.metrics.model_flops_utilisation


def predicted(row: Published) -> tuple[float, float]:
    """Least and largest prediction over what was assumed, in the unit of the row."""
    if row["quantity"] == "chunk_gb_per_s":
        figures = [_chunk_gb_per_s(row, cards) for cards in (1, GPUS_PER_HOST)]
    else:
        figures = [_figure(row, batch) for batch in row.batches]
    return min(figures), max(figures)


def _figure(row: Published, batch: int) -> float:
    if row["quantity"] == "mfu_pct":
        return 100.0 * _metrics(request_of(row, batch, num_sites=1))[1]
    across_s = _metrics(request_of(row, batch))[0]
    if row["quantity"] == "wave_down_pct":
        return 100.0 * (across_s / _metrics(request_of(row, batch, failed_waves=1))[0] - 1.0)
    return 100.0 * _metrics(request_of(row, batch, num_sites=1))[0] / across_s


def _chunk_gb_per_s(row: Published, num_cards: int) -> float:
    """So many cards of a host send one chunk at a time over one queue pair each, between two hosts of one place."""
    cluster = PlanRequest.model_validate(
        {
            "workload": {"architecture": "llama-3.1-8b", "sequence_length": 4096, "global_batch_sequences": 1},
            "cluster": "single-building",
        }
    ).cluster
    place, card = cluster.pools[0].place, row.number("nic_gbit_per_s") * BYTES_PER_GBIT
    path = build_topology(cluster).path_facts(place, place)
    option = Option("ecmp", "go_back_n", 1, int(row["chunk_bytes"]), 1)
    return num_cards * connection_rate_bytes_per_s(option, Wire(path, card, 1, float("inf"))) / 1e9


def _band(low: float, high: float) -> str:
    return f"{low:.1f}" if round(low, 1) == round(high, 1) else f"{low:.1f} to {high:.1f}"


def table(rows: Sequence[Published]) -> str:
    """Published figures and predicted bands, one line per row."""
    lines, notes = [], dict[str, None]()
    for row in rows:
        given = _band(row.number("published_low"), row.number("published_high"))
        ours = _band(*predicted(row)) if row.is_modelled else "not modelled"
        assumed = row["assumed_fields"].replace(" ", ", ").replace("_", " ")
        unit = UNITS[row["quantity"]]
        lines.append(f"| {row['name']} | {unit} | {row['split']} | {given} | {ours} | {assumed} |")
        notes[f"{row['name']}: {row['note']} ({row['source']})."] = None
    return HEAD + "\n".join(lines) + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def main() -> int:
    """Print the table."""
    sys.stdout.write(table(published()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
