"""Names of classes are words that a newcomer knows or can look up: no private language."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.architecture.sources import ROOT, name_of, python_files, tree_of

PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")
# Terms of operations research, networking, computing and deep learning that need no entry in the glossary.
FIELD = set(
    re.findall(
        r"\w+",
        """
        boundary cell clock column commodity communicator connection cost curve defect delay demand dispatch
        distance efficiency estimate event gemm goal graph heap history hook init instance interval job layer
        level memory minimum model node option order param path phase placement plan policy problem product
        programme protocol rate reservation routing sample scheduler segment server shape solution static steady
        synchronisation table tail technology tick timing topology traffic validation var window wire
        """,
    )
)
# Plain English.
PLAIN = set(
    re.findall(
        r"\w+",
        """
        alike at bounded break broken builder building case changed compared comparison contradictory count
        decision derived done effort empty error evaluate expected fact feature few found improve kind
        known need no on once one pooled prediction priced pricing publisher reading record recovery report
        returned rival round run sent setting share shared sharing short side skip skipped slot split stated
        step summary tie timed too type unfinished unpriced use wait way work
        """,
    )
)


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


def test_every_listed_word_is_needed() -> None:
    assert parts_of_public_classes().keys() >= FIELD | PLAIN
    assert not (FIELD | PLAIN) & glossary(), "explained in the glossary already"
