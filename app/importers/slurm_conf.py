"""Slurm's topology.conf: one switch or block a line, keywords in any case, comments after `#`.

Source: topology.conf(5) of Slurm 26.11; blanks around `=` and lines that go on in the next as in Slurm's
src/common/parse_config.c (keyvalue_pattern, _get_next_line). Include lines are refused: an import reads the files it is
given and no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.importers.fabric import Fabric, common_name
from app.importers.slurm_tree import Switch, block_fabric, tree_fabric
from app.importers.source import decoded, place_of, refused, repeated
from app.yaml_values import Spot

MAX_BYTES = 64 * 1024 * 1024
FORMS = "SwitchName=... Nodes=... or Switches=..., BlockName=... Nodes=..., BlockSizes=..."
_PAIR = re.compile(r'(?<![A-Za-z])([A-Za-z]++)\s*+=\s*("[^"]*"|\S*)')
_FIELDS = {
    "switchname": {"switchname", "nodes", "switches", "linkspeed"},
    "blockname": {"blockname", "nodes"},
    "blocksizes": {"blocksizes"},
}


@dataclass(frozen=True)
class _Line:
    kind: str
    values: dict[str, str]
    where: str


def slurm_conf(files: Sequence[tuple[str, bytes]]) -> Fabric:
    """The fabric of one or more topology.conf files."""
    lines = [line for name, data in files for line in _lines(name, decoded(name, data, max_bytes=MAX_BYTES))]
    name, first = common_name(name for name, _ in files), files[0][0]
    has_speed = any("linkspeed" in line.values for line in lines)
    notes = ["LinkSpeed is not used, as in Slurm: the overlay states rates"] if has_speed else []
    switches = [_switch(line) for line in lines if line.kind == "switchname"]
    blocks = [_switch(line) for line in lines if line.kind == "blockname"]
    sizes = [line for line in lines if line.kind == "blocksizes"]
    if switches and (blocks or sizes):
        raise refused((blocks or [_switch(line) for line in sizes])[0].where, "switches and blocks in one topology",
                      code="contradiction", allowed="SwitchName lines, or BlockName lines",
                      remedy="Keep the lines of the plugin in use.")  # fmt: skip
    if blocks:
        where = sizes[0].where if sizes else first
        return block_fabric(blocks, _sizes(sizes), name=name, where=where, notes=notes)
    if not switches:
        raise refused(first, "has neither switches nor blocks", allowed=FORMS, remedy="Give a topology.conf.")
    return tree_fabric(switches, name=name, notes=notes)


def _lines(name: str, text: str) -> Iterator[_Line]:
    """The lines that say something; a backslash at the end is left out and the next line follows it at once."""
    parts: list[str] = []
    start = 1
    for number, raw in enumerate(text.split("\n"), 1):
        start = number if not parts else start
        content = raw.split("#", 1)[0].rstrip()
        parts.append(content.removesuffix("\\"))
        if content.endswith("\\"):
            continue
        whole, parts = "".join(parts).strip(), []
        if whole:
            yield _parsed(whole, place_of(name, Spot(start)))
    if whole := "".join(parts).strip():
        yield _parsed(whole, place_of(name, Spot(start)))


def _parsed(text: str, where: str) -> _Line:
    values: dict[str, str] = {}
    at = 0
    for found in _PAIR.finditer(text):
        if text[at : found.start()].strip():
            break
        key, at = found[1].lower(), found.end()
        if key in values:
            raise repeated(where, f"{found[1]} is repeated", "keyword", code="invalid-request")
        values[key] = found[2].strip('"')
    rest = text[at:].strip()
    if rest or not values:
        raise refused(where, f"{rest[:60]!r} is no KEYWORD=VALUE", allowed=FORMS, remedy="Correct the line.")
    kind = next(iter(values))
    strange = sorted(set(values) - _FIELDS.get(kind, set()))
    if strange:
        raise refused(where, f"{strange[0]!r} is not known here", code="unknown-field", allowed=FORMS,
                      remedy="Remove it, or import the tree or block topology that Slurm uses.")  # fmt: skip
    return _Line(kind, values, where)


def _switch(line: _Line) -> Switch:
    return Switch(line.values[line.kind], line.values.get("nodes", ""), line.values.get("switches", ""), line.where)


def _sizes(lines: Sequence[_Line]) -> list[int]:
    if len(lines) > 1:
        raise refused(lines[1].where, "BlockSizes is repeated", allowed="one line", remedy="Remove one of the two.")
    parts = [part for line in lines for part in line.values["blocksizes"].split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,6}", part) for part in parts):
        raise refused(lines[0].where, f"BlockSizes={','.join(parts)[:60]!r} is no list of sizes", code="wrong-type",
                      allowed="whole numbers from 1, separated by commas", remedy="Correct the sizes.")  # fmt: skip
    return [int(part) for part in parts]
