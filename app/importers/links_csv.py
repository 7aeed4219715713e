"""A CSV of links: a header with the names of our link fields, one link a row; its ends are the sites.

Needs `from_place`, `to_place` and `capacity_bytes_per_s`; an empty cell leaves the field out, `load_balancing`
separates its options by `|`, and a row without an `id` is named after its ends.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.importers.fabric import Fabric, FabricBuilder, Part, Unit, common_name, link_name
from app.importers.source import beyond, decoded, place_of, refused, repeated, validated
from app.yaml_values import Spot, plain_value
from models.cluster import Link

MAX_BYTES = 16 * 1024 * 1024
MAX_LINKS = 20_000
LEVEL = "site"
TEXTS = ("id", "from_place", "to_place", "technology", "load_balancing")
NEEDED = ("from_place", "to_place", "capacity_bytes_per_s")
FIELDS = tuple(Link.model_fields)


@dataclass(frozen=True)
class _Row:
    number: int
    line: int
    cells: dict[str, str]


def links_csv(files: Sequence[tuple[str, bytes]]) -> Fabric:
    """The sites and links of one or more tables."""
    builder, links, known = FabricBuilder(levels=(LEVEL,)), [], dict[str, str]()
    for name, data in files:
        for row in _rows(name, decoded(name, data, max_bytes=MAX_BYTES)):
            where = place_of(name, Spot(row.line))
            link = _link(row, where)
            if link.id in known:
                raise refused(where, f"the link id {link.id!r} was already given at {known[link.id]}",
                              code="contradiction", allowed="every id once", remedy="Give each row an id of its own in "
                              "the column id, or join links that run side by side into one.")  # fmt: skip
            known[link.id] = where
            for site in (link.from_place, link.to_place):
                builder.add_unit(Unit(site, LEVEL, None, "the table of links"))
            links.append(Part(link.model_dump(exclude_unset=True), where))
    if not links:
        raise refused(files[0][0], "has a header and no link below it", code="missing-field", allowed="one link a row",
                      remedy="Give a row for each link.")  # fmt: skip
    built = builder.build(common_name(name for name, _ in files))
    return Fabric(built.levels, built.units, (), tuple(links), built.notes, built.name)


def _rows(name: str, text: str) -> Iterator[_Row]:
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        _check_header(name, header)
        for number, cells in enumerate(reader, 1):
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise refused(place_of(name, Spot(reader.line_num)), f"{len(cells)} cells under {len(header)} columns",
                              allowed=f"{len(header)} cells", remedy="Give every row one cell per column.")  # fmt: skip
            if number > MAX_LINKS:
                where = place_of(name, Spot(reader.line_num))
                remedy = "Join links that run side by side into one."
                raise beyond(where, f"more than {MAX_LINKS:,} links", MAX_LINKS, remedy)
            yield _Row(number, reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise refused(place_of(name, Spot(max(1, reader.line_num))), f"not CSV: {error}", allowed="cells in commas",
                      remedy="Correct the quotes of this line.") from None  # fmt: skip


def _check_header(name: str, header: Sequence[str]) -> None:
    where = place_of(name, Spot(1))
    strange = [column for column in header if column not in FIELDS]
    if strange:
        raise refused(where, f"the column {strange[0][:60]!r} is not known", code="unknown-field",
                      allowed=", ".join(FIELDS), remedy="Name the columns like the fields of a link.")  # fmt: skip
    missing = [column for column in NEEDED if column not in header]
    if missing:
        raise refused(where, f"the column {missing[0]!r} is missing", code="missing-field", allowed=", ".join(FIELDS),
                      remedy="Add the column; the first line is the header.")  # fmt: skip
    if len(set(header)) != len(header):
        raise repeated(where, "a column is repeated", "column")


def _link(row: _Row, where: str) -> Link:
    cells = {column: cell.strip() for column, cell in row.cells.items() if cell.strip()}
    fields: dict[str, object] = {
        column: cell if column in TEXTS else plain_value(cell) for column, cell in cells.items()
    }
    if "load_balancing" in fields:
        fields["load_balancing"] = str(fields["load_balancing"]).split("|")
    fields.setdefault("id", link_name(*(fields.get(end, "") for end in NEEDED[:2])))
    return validated(Link, fields, lambda fault: f"{where} ({fault.pointer.lstrip('/') or 'the row'})")
