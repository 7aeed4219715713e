"""The size budget: what is read in one sitting stays small. Limits bind the tail, not the average."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, name_of, python_files, tree_of

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_POSITIONAL = 5
MAX_METHODS = 15
EXCEPTIONS: dict[str, str] = {}
"""Name of a file, or file::function or class, to the reason and the date by which it is gone."""


def test_the_walk_finds_the_code() -> None:
    assert {"models/cluster.py", "models/request.py"} <= {name_of(path) for path in python_files()}


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_a_file_stays_within_the_budget(path: Path) -> None:
    faults = [fault for fault in _oversized(path) if fault.split(":  ")[0] not in EXCEPTIONS]
    assert faults == []


def test_the_budget_convicts(tmp_path: Path) -> None:
    body = "\n".join("    pass" for _ in range(MAX_FUNCTION_LINES))
    filler = "\n" * MAX_FILE_LINES
    long = tmp_path / "long.py"
    long.write_text(f"def f(a, b, c, d, e, g):\n{body}\n{filler}")
    assert len(_oversized(long, name="long.py")) == 3


def test_a_class_of_many_methods_is_convicted_and_no_exception_is_idle(tmp_path: Path) -> None:
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(MAX_METHODS + 1))
    wide = tmp_path / "wide.py"
    wide.write_text(f"class Wide:\n{methods}")
    assert _oversized(wide, name="solver/wide.py") == ["solver/wide.py::Wide:  16 methods, budget 15"]
    assert _oversized(wide, name="tests/wide.py") == []
    found = {fault.split(":  ")[0] for path in python_files() for fault in _oversized(path)}
    assert set(EXCEPTIONS) <= found, "a budget that holds again needs no exception"


def _oversized(path: Path, name: str | None = None) -> list[str]:
    name = name_of(path) if name is None else name
    num_lines = len(path.read_text(encoding="utf-8").splitlines())
    faults = [f"{name}:  {num_lines} lines, budget {MAX_FILE_LINES}"] if num_lines > MAX_FILE_LINES else []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            faults += _oversized_function(node, f"{name}::{node.name}")
        if isinstance(node, ast.ClassDef) and name.split("/")[0] in PACKAGES:
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            if len(methods) > MAX_METHODS:
                faults.append(f"{name}::{node.name}:  {len(methods)} methods, budget {MAX_METHODS}")
    return faults


def _oversized_function(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> list[str]:
    num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
    arguments = [one.arg for one in node.args.posonlyargs + node.args.args if one.arg not in ("self", "cls")]
    faults = [f"{name}:  {num_lines} lines, budget {MAX_FUNCTION_LINES}"] if num_lines > MAX_FUNCTION_LINES else []
    if len(arguments) > MAX_POSITIONAL and not _declares_parameters(node):
        faults.append(f"{name}:  {len(arguments)} positional parameters, budget {MAX_POSITIONAL}")
    return faults


def _declares_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Decorated functions are called by frameworks by name (commands, fixtures, routes, compiled kernels)."""
    return bool(node.decorator_list)
