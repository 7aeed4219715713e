"""A step that is compiled into its callers has no entry for Python, which would crash on calling it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import name_of, python_files, tree_of


def _is_made_by(node: ast.AST, *decorators: str) -> bool:
    """Whether a function carries one of these decorators."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(one, ast.Name) and one.id in decorators for one in node.decorator_list
    )


def _steps() -> Iterator[tuple[str, str]]:
    """Module and name of every step."""
    for path in python_files("solver"):
        if "@inlined\n" in path.read_text(encoding="utf-8"):
            for one in tree_of(path).body:
                if isinstance(one, ast.FunctionDef) and _is_made_by(one, "inlined"):
                    yield _module(path), one.name


def _module(path: Path) -> str:
    return name_of(path).removesuffix(".py").replace("/", ".")


STEPS = set(_steps())
HOMES = {module.rpartition(".")[2] for module, _ in STEPS}  # of files that name none of these, none names a step


def steps_named(tree: ast.Module, module: str) -> Iterator[str]:
    """Steps that Python names in a module: outside compiled functions, or as a part of a module of kernels."""
    known = {name for home, name in STEPS if home == module}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {one.name for one in node.names if (node.module, one.name) in STEPS}
    names = {name for _, name in STEPS}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if _is_made_by(node, "compiled", "inlined"):
            continue
        if isinstance(node, ast.Name) and node.id in known:
            yield node.id
        if isinstance(node, ast.Attribute) and node.attr in names and "kernel" in ast.unparse(node.value):
            yield ast.unparse(node)
        waiting += ast.iter_child_nodes(node)


def test_python_calls_no_step() -> None:
    found = {}
    for path in python_files("solver", "tests", "benchmarks"):
        text = path.read_text(encoding="utf-8")
        if path.stem in HOMES or any(home in text for home in HOMES):
            found[name_of(path)] = list(steps_named(tree_of(path), _module(path)))
    assert len(found) > len(HOMES)
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(("code", "named"), [
    ("def f(x):\n    return draw(x, 2)", ["draw"]),
    ("@compiled\ndef f(x):\n    return draw(x, 2)", []),
    ("from solver.pipeline.local_search import tabu_kernel\ntabu_kernel.draw(x, 2)", ["tabu_kernel.draw"]),
])  # fmt: skip
def test_a_call_is_seen(code: str, named: list[str]) -> None:
    assert len(STEPS) > 100
    imported = "from solver.pipeline.local_search.tabu_kernel import draw\n"
    assert list(steps_named(ast.parse(imported + code), "solver.other")) == named
