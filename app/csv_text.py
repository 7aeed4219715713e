"""Tables as CSV: a header, then one row a line; every cell is text without blanks around it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

MAX_COLUMNS = 1000  # of a table; the known columns of measured runs are some forty, others pass


def rows_of(text: str) -> Iterator[dict[str, str]]:
    """The rows under the header; blank lines are left out, and what is no table is a `csv.Error` with its line.

    >>> list(rows_of("gpu, tp\\nH100, 8\\n"))
    [{'gpu': 'H100', 'tp': '8'}]
    """
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    lines = ([cell.strip() for cell in cells] for cells in reader if any(cell.strip() for cell in cells))
    header = next(lines, [])
    if len(header) > MAX_COLUMNS:
        raise csv.Error(f"the header has more than {MAX_COLUMNS} columns")
    repeated = next((name for number, name in enumerate(header) if name in header[:number]), None)
    if repeated is not None:
        raise csv.Error(f"the header has the column {repeated[:60]!r} twice")
    for cells in lines:
        if len(cells) != len(header):
            raise csv.Error(f"line {reader.line_num} has {len(cells)} cells under {len(header)} columns")
        yield dict(zip(header, cells, strict=True))
