"""A clock that jumps for some of a soak's programs, as the clocks of several machines do.

The nursery imports this before anything that reads the time; what it forks has the clock, too. Programs with an odd
process id read the jumped time, the others the true one.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "SOAK_CLOCK"  # names the file that holds the jump in seconds


class Clock:
    """The jump, in a file that every program has mapped."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack("d", 0.0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8)

    @property
    def jump_s(self) -> float:
        """Seconds that some clocks are ahead."""
        found: float = struct.unpack("d", self._shared[:8])[0]
        return found

    def jump(self, seconds: float) -> None:
        """Put those clocks ahead, or back."""
        self._shared[:8] = struct.pack("d", seconds)


def install(path: Path) -> None:
    """Let this program, and what it forks, read the clock."""
    clock, true_time = Clock(path), time.time

    def jumped() -> float:
        return true_time() + (clock.jump_s if os.getpid() % 2 else 0.0)

    time.time = jumped


if VARIABLE in os.environ:
    install(Path(os.environ[VARIABLE]))
