"""Where every range of global ranks runs, as CSV."""

from __future__ import annotations

from collections.abc import Iterator

from app.csv_text import csv_text, harmless
from app.exporters.hosts import buildings_of_places, ranges
from app.exporters.target import Target
from models.plan import Plan
from models.request import PlanRequest

TARGET = Target("spreadsheets and scripts", "CSV of RFC 4180, UTF-8, line feeds")
COLUMNS = (
    "first_rank", "num_ranks", "pipeline_rank", "route", "building", "place", "pool", "first_gpu", "hosts",
)  # fmt: skip


def rank_map_csv(plan: Plan, request: PlanRequest | None = None) -> str:
    """One line per range of ranks, in rank order."""
    places = {route.id: route.places for route in plan.placement.routes}
    buildings = buildings_of_places(request)
    rows = []
    for ranks in ranges(plan):
        place = places[ranks.route][ranks.pipeline_rank]
        texts = (ranks.route, buildings.get(place, place), place, ranks.pool)
        safe = [harmless(text) for text in texts]
        numbers = (ranks.first_rank, ranks.num_ranks, ranks.pipeline_rank)
        rows.append([*numbers, *safe, ranks.first_gpu, harmless(" ".join(ranks.hosts))])
    return csv_text(COLUMNS, rows, quoted=True)


def losses(_plan: Plan, _request: PlanRequest | None = None) -> Iterator[str]:
    """What the table does not carry."""
    yield "schedule, transport and memory: the table says where ranks run and nothing else"
    yield "names that a spreadsheet would compute: they get a leading apostrophe"
