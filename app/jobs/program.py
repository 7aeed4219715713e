"""Which program this is, without importing any of it: what was proven by another one need not hold."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PROVERS = ("models", "solver")  # the packages that bounds depend on, with the catalogue


@cache
def program() -> str:
    """A digest of the running program, as far as bounds depend on it; the same on every machine."""
    digest = hashlib.sha256()
    for package in PROVERS:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        for path in sorted((*root.rglob("*.py"), *root.rglob("*.json"))):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()
