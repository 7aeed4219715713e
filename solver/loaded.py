"""Import this where processes are forked from: what every search loads before its first compiled function is there."""

from __future__ import annotations

from solver.compiled import load_compiler

load_compiler()
