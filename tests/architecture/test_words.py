"""Names of classes are words that a newcomer knows or can look up: no private language."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, name_of, python_files, tree_of

PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")
# Terms of operations research, networking, computing and deep learning that need no entry in the glossary.
FIELD = set(
    re.findall(
        r"\w+",
        """
        boundary chain clock column commodity communicator connection cost curve defect delay dispatch
        distance efficiency estimate event gemm goal graph history hook init instance interval job layer
        level list loss memo memory minimum model neighbourhood node option order param path phase placement policy
        problem
        programme protocol rate release reservation routing scheduler segment server shape solution static steady
        stream sum synchronisation table tail technology tick timing topology traffic validation var window wire
        """,
    )
)
# Plain English.
PLAIN = set(
    re.findall(
        r"\w+",
        """
        alike at bounded break broken builder building case changed compared comparison contradictory count
        decision derived done effort empty error evaluate expected fact few found given improve kind leaving
        known named no on once one pooled prediction priced pricing publisher reading record report
        returned round run sent setting share shared sharing short side skip spanning split stated
        step summary tie timed too type unfinished unknown unpriced use wait way work
        """,
    )
)
# Words of our own that terms of the field replaced: no name and no label of the solver has them any more.
RETIRED = set(
    re.findall(
        r"\w+",
        """
        border bench corridor crew dive errand hopeless kept lattice news outlook polish promise regime rehearsal room
        seeker sharpen stay turn upkeep
        """,
    )
)
# The same in docstrings, comments and messages, where their plain meaning is not needed either. `exchange-turns` is the
# name of a rule, which verdicts state.
RETIRED_IN_TEXT = re.compile(
    rf"(?<![\w-])(?:{'|'.join(sorted(RETIRED - {'kept', 'promise', 'room', 'stay', 'turn'}))}|stays|turns)(?![\w-])",
    re.I,
)
# Words of two meanings: the names that may have one of them, and the folders where the other is meant.
AMBIGUOUS = {
    "line": re.compile(
        r"_?line_(bytes_per_s|fraction|gigabits|s)|\w*line_rate\w*", re.IGNORECASE
    ),  # a cable; never ranks, messages or rows
    "machine": re.compile(r"solver/pipeline/.*"),  # does one thing at a time; never a computer or a GPU
}
PYTHON_FILE = re.compile(r"`([\w/]+\.py)`")


@cache
def glossary() -> frozenset[str]:
    """Words of the first column of the tables, and those in italics, which the same row explains."""
    rows = [line for line in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    text = " ".join(row.split("|")[1] + " " + " ".join(re.findall(r"\*([^*]+)\*", row)) for row in rows)
    return frozenset(singular(word) for word in re.findall(r"[a-z]+", text.lower()))


def singular(word: str) -> str:
    """Without the ending of a plural."""
    if word.endswith("ies") and word != "series":
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def parts_of_public_classes() -> dict[str, str]:
    """Every word in the name of a public class of the solver, and a class with it."""
    found = {}
    for path in python_files("solver"):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found |= {singular(part.lower()): f"{name_of(path)}: {node.name}" for part in PART.findall(node.name)}
    return found


def test_every_public_class_of_the_solver_is_named_in_known_words() -> None:
    coined = {
        part: where for part, where in parts_of_public_classes().items() if part not in glossary() | FIELD | PLAIN
    }
    assert coined == {}, "use a term of the field, or explain the word in docs/glossary.md"


TWICE = {"Frontier"}  # of plans of which none is better, as the API calls it, and of a search


def test_a_public_class_shares_its_name_with_no_other() -> None:
    files: dict[str, list[str]] = {}
    for path in python_files("models", "solver"):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files.setdefault(node.name, []).append(name_of(path))
    assert {name for name, found in files.items() if len(found) > 1} == TWICE


def test_every_listed_word_is_needed() -> None:
    assert parts_of_public_classes().keys() >= FIELD | PLAIN
    assert not (FIELD | PLAIN) & glossary(), "explained in the glossary already"


def retired_words(tree: ast.Module) -> set[str]:
    """Retired words in names of functions, classes, variables, fields and arguments, and as labels of one word."""
    parts = {part for name in names_in(tree) for part in name.lower().split("_")}
    return (parts | {singular(part) for part in parts}) & RETIRED


def names_in(tree: ast.Module) -> set[str]:
    """Names of functions, classes, variables, fields and arguments, and labels of one word."""
    found = set[object]()
    for node in ast.walk(tree):
        found |= {getattr(node, field, None) for field in ("id", "attr", "name", "arg")}
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)
    return {name for name in found if isinstance(name, str)}


@pytest.mark.parametrize("path", python_files("solver"), ids=name_of)
def test_no_name_of_the_solver_has_a_retired_word(path: Path) -> None:
    assert retired_words(tree_of(path)) == set(), "use the term of the field"


@pytest.mark.parametrize("path", python_files("solver"), ids=name_of)
def test_no_text_of_the_solver_has_a_retired_word(path: Path) -> None:
    assert RETIRED_IN_TEXT.findall(path.read_text(encoding="utf-8")) == [], "use the term of the field"


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_a_docstring_says_what_is_done_and_not_who_owns_it(path: Path) -> None:
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    told = [ast.get_docstring(node) or "" for node in ast.walk(tree_of(path)) if isinstance(node, nodes)]
    assert [text for text in told if re.search(r"(^|[.:] |\n)Owns ", text)] == []


@pytest.mark.parametrize("path", python_files("solver"), ids=name_of)
def test_an_ambiguous_word_is_used_in_one_sense(path: Path) -> None:
    assert ambiguous_names(tree_of(path), name_of(path)) == set(), "use the term of the field"


def ambiguous_names(tree: ast.Module, file: str) -> set[str]:
    """Names with a word of `AMBIGUOUS`, in which it means something else than it may."""
    return {
        name
        for name in names_in(tree)
        for word, meant in AMBIGUOUS.items()
        if word in map(singular, name.lower().split("_")) and not (meant.fullmatch(name) or meant.fullmatch(file))
    }


def test_ambiguous_words_convict() -> None:
    tree = ast.parse("def line_bound_s(line_rate, machines): ...")
    assert ambiguous_names(tree, "solver/bounds/work.py") == {"line_bound_s", "machines"}
    assert ambiguous_names(tree, "solver/pipeline/bounds.py") == {"line_bound_s"}


def test_retired_words_convict() -> None:
    told = "Replicas take turns at the border, says `exchange-turns`."
    assert RETIRED_IN_TEXT.findall(told) == ["turns", "border"]
    convicted = retired_words(ast.parse('def polish_gain(stays: int) -> str:\n    ROOM = 1\n    return "news"\n'))
    assert convicted == {"polish", "stay", "room", "news"}


@pytest.mark.parametrize("path", python_files("solver"), ids=name_of)
def test_a_file_that_a_docstring_names_exists(path: Path) -> None:
    """As a path in the repository, in the package, or beside the file that names it."""
    named = PYTHON_FILE.findall(path.read_text(encoding="utf-8"))
    gone = [one for one in named if not any((root / one).exists() for root in (ROOT, ROOT / "solver", path.parent))]
    assert gone == []
