"""Tables as CSV in which no cell is a formula to a spreadsheet: names come from users."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # the wide forms count in East Asian spreadsheets


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
