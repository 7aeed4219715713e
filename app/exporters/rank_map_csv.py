"""Where every range of global ranks runs, as CSV.

A cell that a spreadsheet would take for a formula gets a leading apostrophe: names come from users.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from app.exporters.places import building_of
from app.exporters.target import Target
from models.plan import Plan
from models.request import PlanRequest

TARGET = Target("spreadsheets and scripts", "CSV of RFC 4180, UTF-8, line feeds")
COLUMNS = (
    "first_rank", "num_ranks", "pipeline_rank", "route", "building", "place", "pool", "first_gpu", "hosts",
)  # fmt: skip

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # the wide forms count in East Asian spreadsheets


def rank_map_csv(plan: Plan, request: PlanRequest | None = None) -> str:
    """One line per range of ranks, in rank order."""
    places = {route.id: route.places for route in plan.placement.routes}
    sheet = io.StringIO()
    csv.writer(sheet, lineterminator="\n").writerow(COLUMNS)
    # names in quotes: a semicolon or a tab in one is no separator, whatever the spreadsheet's language
    writer = csv.writer(sheet, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    for ranks in sorted(plan.placement.rank_map, key=lambda one: one.first_rank):
        place = places[ranks.route][ranks.pipeline_rank]
        texts = (ranks.route, building_of(place, request), place, ranks.pool)
        safe = [harmless(text) for text in texts]
        numbers = (ranks.first_rank, ranks.num_ranks, ranks.pipeline_rank)
        writer.writerow([*numbers, *safe, ranks.first_gpu, harmless(" ".join(ranks.hosts))])
    return sheet.getvalue()


def harmless(text: str) -> str:
    """The text, marked as text where a spreadsheet would compute it.

    >>> harmless("=1+1"), harmless("node-1")
    ("'=1+1", 'node-1')
    """
    return "'" + text if text[:1] in FORMULA_STARTS else text


def losses(_plan: Plan, _request: PlanRequest | None = None) -> Iterator[str]:
    """What the table does not carry."""
    yield "schedule, transport and memory: the table says where ranks run and nothing else"
    yield "names that a spreadsheet would compute: they get a leading apostrophe"
