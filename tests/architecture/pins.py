"""Writes the hashes of what requirements files pin: `python -m tests.architecture.pins requirements.txt ...`.

For each platform pip is asked, without installing anything, which wheel it would take; the index states its SHA-256.
A line then takes the wheels of these platforms and nothing else, whatever an index offers later.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

# What a wheel may be tagged with; pip takes the best that is there.
PLATFORMS = {
    "linux, x86_64": tuple(
        f"manylinux{one}_x86_64" for one in ("_2_28", "_2_27", "2014", "_2_12", "2010", "_2_5", "1")
    ),
    "linux, aarch64": tuple(f"manylinux{one}_aarch64" for one in ("_2_28", "_2_27", "2014")),
    "macos, arm64": tuple(f"macosx_{version}_arm64" for version in ("14_0", "13_0", "12_0", "11_0")),
}
ABIS = ("cp311", "abi3", "none")


def pins_of(path: Path) -> dict[str, list[str]]:
    """The pins of a requirements file with their hashes."""
    lines = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines}


def hashes(pins: list[str], platforms: tuple[str, ...]) -> dict[str, str]:
    """The SHA-256 of the wheel of each pin, by its plain name."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        wanted.write_text("\n".join(pins), encoding="utf-8")
        asked = [f"--platform={one}" for one in platforms] + [f"--abi={one}" for one in ABIS]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed",
                   "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", *asked,
                   f"--target={folder}/none", f"--report={report}", f"--requirement={wanted}"]  # fmt: skip
        subprocess.run(command, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {plain(one["metadata"]["name"]): one["download_info"]["archive_info"]["hashes"]["sha256"] for one in found}


def plain(name: str) -> str:
    """A name as indexes compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def main() -> None:
    """Rewrite each file that is named."""
    for path in map(Path, sys.argv[1:]):
        pins, known = list(pins_of(path)), defaultdict(set)
        for platforms in PLATFORMS.values():
            for name, digest in hashes(pins, platforms).items():
                known[name].add(digest)
        lines = [
            " \\\n".join([pin, *(f"    --hash=sha256:{one}" for one in sorted(known[plain(pin.partition("==")[0])]))])
            for pin in pins
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
