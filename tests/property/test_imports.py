"""Damaged files never crash an import: a document comes out, or faults that say where and what to do."""

from __future__ import annotations

import json
import random
import re

import pytest

from app.faults import Fault, Refused
from app.importers.huggingface import huggingface
from app.importers.registry import MODEL_KIND, TOPOLOGIES, import_cluster
from models.errors import PlannerError
from tests.unit.app.importers import samples

NUM_FAST, NUM_SLOW = 200, 2000
KINDS = (*TOPOLOGIES, MODEL_KIND, "overlay")
PIECES = (
    b"{", b"}", b"[", b"]", b":", b",", b"\n", b"\t", b" ", b"-", b"#", b"\\", b'"', b"'", b"&a ", b"*a", b"<<: ",
    b"!!int ", b"? ", b"|\n", b"---\n", b"...\n", b"%TAG", b"\x00", b"\xff\xfe", b"\xc3\xa9", b"\xef\xbb\xbf", b"null",
    b"NaN", b"-1", b"1e999", b"9" * 30, b"[1-99999999]", b"[3-1]", b"0x", b"true", b"=", b"..", b"/", b"~", b"\r\n",
    b"\xe2\x80\xa8",
)  # fmt: skip


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The data with a few bytes, lines or tokens cut, repeated, moved or put in."""
    for _ in range(chance.choice((1, 1, 2, 4, 12))):
        at, length = chance.randrange(len(data) + 1), chance.choice((1, 1, 3, 10, 60))
        kind = chance.randrange(6)
        if kind == 0:
            data = data[:at] + data[at + length :]
        elif kind == 1:
            data = data[:at] + chance.choice(PIECES) + data[at:]
        elif kind == 2:
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        elif kind == 3:
            data = data[:at] + data[at : at + length] * chance.randrange(2, 5) + data[at + length :]
        elif kind == 4:
            lines = data.split(b"\n")
            chance.shuffle(lines) if chance.random() < 0.2 else lines.insert(0, lines.pop(chance.randrange(len(lines))))
            data = b"\n".join(lines)
        else:
            data = data[:at]
    return data


def is_useful(fault: Fault) -> bool:
    """Whether a fault says what is wrong, in which file and what to do, in a few lines."""
    is_placed = re.match(r"[a-z]+\.(yaml|json|conf|csv|txt)(:\d+:\d+|$)", fault.where)
    says_what_is_right = fault.allowed or ":" in fault.what or fault.remedy.startswith("use one of ")
    return bool(fault.what and fault.remedy and says_what_is_right and is_placed and len(fault.what) < 1500)


def outcome(kind: str, seed: int) -> str:
    """What an import of a damaged file says; fails on anything but a document or useful faults."""
    chance = random.Random(f"{kind}{seed}")
    try:
        if kind == MODEL_KIND:
            huggingface("config.json", damaged(json.dumps(samples.LLAMA_8B, indent=1).encode(), chance))
        elif kind == "overlay":
            files, (name, overlay) = samples.TOPOLOGIES[chance.choice(list(TOPOLOGIES))]
            import_cluster(_kind_of(files), files, (name, damaged(overlay, chance)))
        else:
            files, overlay_file = samples.TOPOLOGIES[kind]
            hit = chance.randrange(len(files))
            files = [(name, damaged(data, chance) if at == hit else data) for at, (name, data) in enumerate(files)]
            import_cluster(kind, files, overlay_file)
    except Refused as refused:
        return "refused" if all(map(is_useful, refused.faults)) and refused.faults else f"useless: {refused.faults}"
    except PlannerError as error:
        pytest.fail(f"without a place: {error.message}")
    return "read"


def _kind_of(files: list[tuple[str, bytes]]) -> str:
    return next(kind for kind, (known, _) in samples.TOPOLOGIES.items() if known is files)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_never_crash_an_import(kind: str) -> None:
    said = {outcome(kind, seed) for seed in range(NUM_FAST)}
    assert said == {"read", "refused"}, "damage that is never, or always, noticed tests nothing"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_thousand_damaged_files_never_crash_an_import(kind: str) -> None:
    assert {outcome(kind, seed) for seed in range(NUM_FAST, NUM_FAST + NUM_SLOW)} == {"read", "refused"}
