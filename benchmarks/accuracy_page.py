"""docs/accuracy.md as the data of the desk's accuracy page: headings with their paragraphs and tables.

Nothing is computed: every figure is text of the document.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "app" / "web" / "static" / "desk" / "accuracy.json"


def page_data(document: str) -> str:
    """The JSON that the page reads, a line for each row of a table."""
    parts = [_part(text) for text in ("\n" + document).split("\n## ")[1:]]
    shown = [_text(one) for one in parts if one["words"] or one["tables"]]
    return "[\n" + ",\n".join(shown) + "\n]\n"


def _text(part: dict[str, Any]) -> str:
    heading, words = _json(part["heading"]), _json(part["words"])
    tables = [
        f'{{"heads": {_json(one["heads"])}, "rows": [\n' + ",\n".join(map(_json, one["rows"])) + "\n]}"
        for one in part["tables"]
    ]
    return f'{{"heading": {heading}, "words": {words}, "tables": [{", ".join(tables)}]}}'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _part(text: str) -> dict[str, Any]:
    heading, _, body = text.partition("\n")
    part: dict[str, Any] = {"heading": heading.strip(), "words": [], "tables": []}
    for kind, found in groupby(body.split("\n"), _kind):
        lines = list(found)
        if kind == "table":
            heads, _, *rows = map(_cells, lines)
            part["tables"].append({"heads": heads, "rows": rows})
        elif kind == "words":
            part["words"].append(" ".join(lines))
    return part


def _kind(line: str) -> str:
    return "table" if line.startswith("|") else "words" if line.strip() else "empty"


def _cells(line: str) -> list[str]:
    """The cells of a row.

    >>> _cells("| a | 1.00 |  |")
    ['a', '1.00', '']
    """
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
