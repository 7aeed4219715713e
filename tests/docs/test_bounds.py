"""The proofs of the bounds name files, functions and rows of tables that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from solver.bounds.rank_need_kernel import NEEDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/bounds.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## [^\n]*: `(\S+\.py)`\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)


def test_every_section_has_a_file() -> None:
    assert len(SECTIONS) == 25
    assert all((ROOT / path).is_file() for path, _ in SECTIONS)


@pytest.mark.parametrize(("path", "text"), SECTIONS, ids=[path for path, _ in SECTIONS])
def test_a_file_with_a_proof_leads_to_it_and_has_what_it_names(path: str, text: str) -> None:
    code = (ROOT / path).read_text(encoding="utf-8")
    assert "docs/bounds.md" in code
    headings = [name for line in re.findall(r"^### (.*)$", text, re.M) for name in re.findall(r"`(\w+)`", line)]
    assert [name for name in headings if f"def {name}(" not in code and f"class {name}:" not in code] == []


def test_the_page_names_rows_of_the_partition_bound() -> None:
    section = dict(SECTIONS)["solver/bounds/stage_partition.py"]
    named = set(re.findall(r" {2}(\w+)[:;,] ", section))
    assert {"work", "through", "late", "last", "early", "early_back", "home", "trips"} <= named & set(NEEDS)
