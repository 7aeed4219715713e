"""A small disk of its own for the database, which can be filled or closed to writing.

As root, where the system lets one be mounted.
"""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE = "64m"  # the database of a thousand plans with its logs needs a third of it
WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


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

    def close(self) -> None:
        """Let nothing be opened for writing any more, and no file be made: what is open stays so."""
        for one in (*self.folder.iterdir(), self.folder):
            one.chmod(one.stat().st_mode & ~WRITABLE)

    def open(self) -> None:
        """Let its owner write again."""
        for one in (self.folder, *self.folder.iterdir()):
            one.chmod(one.stat().st_mode | stat.S_IWUSR)


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
