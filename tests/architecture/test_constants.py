"""A number that a module fixes says why: a comment on its line or above, or a field of a params dataclass instead."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.sources import name_of, python_files, tree_of

FILES = python_files("solver")


def unexplained(path: Path) -> list[str]:
    """Names of numbers without a comment, of those that a module fixes."""
    lines, found = path.read_text(encoding="utf-8").splitlines(), []
    for node in tree_of(path).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not _is_number(node.value):
            continue
        above = lines[node.lineno - 2] if node.lineno > 1 else ""
        if "  # " not in lines[node.lineno - 1] and not above.startswith("# "):
            found.append(ast.unparse(node))
    return found


def _is_number(value: ast.expr | None) -> bool:
    """A number, or numbers side by side; codes that count up from zero are names, not numbers."""
    if isinstance(value, ast.Tuple):
        return any(map(_is_number, value.elts)) and [getattr(one, "value", None) for one in value.elts] != list(
            range(len(value.elts))
        )
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) or _is_number(value.right)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_number_says_why(path: Path) -> None:
    assert unexplained(path) == []


def test_a_bare_number_is_convicted(tmp_path: Path) -> None:
    bare = tmp_path / "bare.py"
    bare.write_text("LUCK = 0.75\nA, B = 3, 0.5\nNAMES = ('a', 'b')\nCODES = 0, 1\nTOLD = 1e-6  # rounding\n")
    assert unexplained(bare) == ["LUCK = 0.75", "A, B = (3, 0.5)"]
