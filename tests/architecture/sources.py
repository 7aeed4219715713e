"""The files of the project as version control sees them."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("models", "solver", "app", "isthmus")
IGNORED = {".git", ".venv", "node_modules", "__pycache__", "build", "dist"}


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file under version control, or every file where there is none (an unpacked archive)."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        paths = (ROOT / name for name in listed.stdout.split("\0") if name)
        return tuple(sorted(path for path in paths if path.is_file()))
    return tuple(sorted(p for p in ROOT.rglob("*") if p.is_file() and not IGNORED & set(p.relative_to(ROOT).parts)))


def python_files(*tops: str) -> list[Path]:
    """Tracked Python files below the given top folders (all when none is given)."""
    found = [path for path in tracked_files() if path.suffix == ".py"]
    return [path for path in found if not tops or path.relative_to(ROOT).parts[0] in tops]


def name_of(path: Path) -> str:
    """Path from the top of the project."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """Syntax tree of one file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def modules_imported(path: Path) -> set[str]:
    """Absolute names that a file imports."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names
