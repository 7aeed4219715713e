"""A search that goes on where an earlier one had ended: what its child is given, and which program has kept it.

Owns when a kept state holds: bounds are only as good as the program that proved them, so another program begins anew
with the plan alone. Never searches.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from app.storage.searches import KeptSearch

ANOTHER_PROGRAM = "they were proven by another version of the program"
NOT_KEPT = "they are not kept any more"
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


def documents_of(kept: KeptSearch | None, best: bytes | None = None) -> tuple[bytes, ...]:
    """What the child of a search is given beside its request: outcome, state, and why there is no state; or nothing.

    `best` is the outcome of an attempt of the same search, which is newer than what it began with.

    >>> documents_of(None), documents_of(KeptSearch(b"{}", b"state", "an older one"))[2]
    ((), b'they were proven by another version of the program')
    """
    if kept is None:
        return ()
    outcome = best or kept.outcome or b""
    if kept.state is None:
        return outcome, b"", NOT_KEPT.encode()
    if kept.program != program():
        return outcome, b"", ANOTHER_PROGRAM.encode()
    return outcome, kept.state, b""
