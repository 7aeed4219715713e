"""No file names a package host, a path of somebody's machine or a place outside the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import name_of, tracked_files

# Written with one-letter classes, so that this file does not match itself.
HOSTS = re.compile(r"py[p]i\.[o]rg|python[h]osted|npm[j]s\.|deb[i]an\.org|--(?:extra-)?index-[u]rl")
MACHINE = re.compile(r"(?<![\w.])/(?:h[o]me|r[o]ot|w[o]rk|Us[e]rs)/|\.\./sh[a]red")
LARGEST_BYTES = 1_000_000


def _texts() -> list[Path]:
    return [path for path in tracked_files() if path.stat().st_size <= LARGEST_BYTES]


@pytest.mark.parametrize("pattern", [HOSTS, MACHINE], ids=["hosts", "machine paths"])
def test_no_file_names(pattern: re.Pattern[str]) -> None:
    found = []
    for path in _texts():
        for number, line in enumerate(path.read_bytes().decode("utf-8", errors="replace").splitlines(), 1):
            if pattern.search(line) and not (path.name == "Makefile" and line.startswith("DATA ?=")):
                found.append(f"{name_of(path)}:{number}: {line.strip()[:120]}")
    assert found == []


@pytest.mark.parametrize("line", ["https://py" + "pi.org/simple", "/ho" + "me/me/x", "see ../sh" + "ared/data"])
def test_the_patterns_convict(line: str) -> None:
    assert HOSTS.search(line) or MACHINE.search(line)
