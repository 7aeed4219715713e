"""The import contracts hold, and they can convict. Rules that contracts cannot say are read from the syntax tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from importlinter.application.use_cases import read_user_options
from importlinter.cli import lint_imports

from tests.architecture.sources import ROOT, modules_imported, name_of, python_files, tree_of

WORLD = {"os", "socket", "subprocess", "threading", "multiprocessing", "pathlib", "shutil", "tempfile"}
CHANCE = {"datetime", "random"}
READERS = {"solver/compiled.py"}  # says where the compiler keeps its code: a folder named after the texts of kernels


def test_the_contracts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0


def test_a_contract_convicts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rule = tmp_path / "contracts.ini"
    rule.write_text(
        "[importlinter]\nroot_packages =\n    models\n    solver\n    app\n"
        "[importlinter:contract:wrong]\nname = wrong\ntype = forbidden\n"
        "source_modules = solver.verify\nforbidden_modules = models\n"
    )
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=str(rule), no_cache=True) != 0


def test_the_promised_contracts_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ids = {contract["id"] for contract in read_user_options().contracts_options}
    assert ids >= {"roots", "solver", "app", "judge", "world", "vocabulary", "http", "exporters"}


@pytest.mark.parametrize("path", python_files("models", "solver"), ids=name_of)
def test_the_mathematics_reads_neither_clock_nor_disk(path: Path) -> None:
    assert (CHANCE | (WORLD if name_of(path) not in READERS else set())) & modules_imported(path) == set()
    assert not any(name.startswith("time.") for name in modules_imported(path)), "import time, so that its uses show"
    assert _clock_reads(tree_of(path)) == []


@pytest.mark.parametrize(
    ("code", "num_reads"), [("def f(clock=time.monotonic): ...", 0), ("def f():\n    return time.monotonic()", 1)]
)
def test_a_clock_may_be_a_default_but_not_read(code: str, num_reads: int) -> None:
    assert len(_clock_reads(ast.parse(f"import time\n{code}"))) == num_reads


def _clock_reads(tree: ast.Module) -> list[int]:
    """Lines that use `time` other than as the default of an argument, which the caller may replace."""
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    if "time" not in imported:  # a value may be called so
        return []
    defaults: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            defaults |= {one for one in [*node.defaults, *node.kw_defaults] if one is not None}
    uses = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node not in defaults)
    return [node.lineno for node in uses if isinstance(node.value, ast.Name) and node.value.id == "time"]


@pytest.mark.parametrize("path", python_files("models", "solver", "app"), ids=name_of)
def test_only_the_settings_read_the_environment(path: Path) -> None:
    reads = [
        node
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    ]
    assert not reads or name_of(path) == "app/settings.py"
