"""Compiles what is compiled once on a machine before anything is measured: that takes as long as a search."""

from __future__ import annotations

import sys

from app.jobs.warm_up import compile_once
from app.settings import Settings


def compile_first() -> None:
    """Compile unless that was done for the present sources, and say so."""
    compile_once(Settings(), _tell)


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
