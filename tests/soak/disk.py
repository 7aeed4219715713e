"""A small disk of its own for the database, which can be filled: as root, where the system lets one be mounted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE = "64m"  # the database of a thousand plans with its logs needs a third of it


class Disk:
    """A mounted folder, and the file that fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no room."""
        with suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while file.write(b"\0" * 65_536):
                pass

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk | None]:
    """A disk below this folder, or None where none can be mounted."""
    place = folder / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        yield None
        return
    try:
        yield Disk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
