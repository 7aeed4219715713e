"""Tables as CSV, read and written: a header, then one row a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

MAX_COLUMNS = 1000  # of a table; the known columns of measured runs are some forty, others pass
FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # the wide forms count in East Asian spreadsheets


def rows_of(text: str) -> Iterator[dict[str, str]]:
    """The rows under the header, without blanks around cells.

    Blank lines are left out, and what is no table is a `csv.Error` with its line.

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


def harmless(text: str) -> str:
    """The text, marked as text where a spreadsheet would compute it.

    >>> harmless("=1+1"), harmless("node-1")
    ("'=1+1", 'node-1')
    """
    return "'" + text if text[:1] in FORMULA_STARTS else text


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]], *, quoted: bool = False) -> str:
    """A header and its rows, as they are.

    `quoted` puts every text into quotes: a semicolon or a tab in one is then no separator, whatever the spreadsheet's
    language.

    >>> csv_text(["name", "ranks"], [["east;1", 8]], quoted=True)
    'name,ranks\\n"east;1",8\\n'
    """
    sheet = io.StringIO()
    csv.writer(sheet, lineterminator="\n").writerow(header)
    writer = csv.writer(sheet, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL)
    writer.writerows(rows)
    return sheet.getvalue()
