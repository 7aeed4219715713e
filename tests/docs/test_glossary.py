"""The glossary leads to places that exist, and explains every word once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(
    r"^\| ([^|]+) \| .* \| (?:`(\S+)`)? ?\|$", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.M
)


def _plain(text: str) -> str:
    """Without case and separators: a word stands in prose, as a class or as a field."""
    return re.sub(r"[\s_-]+", "", text).lower()


def test_there_are_words() -> None:
    assert len(ROWS) > 40


@pytest.mark.parametrize(("words", "place"), [row for row in ROWS if row[1]])
def test_a_word_lives_where_the_glossary_says(words: str, place: str) -> None:
    path = ROOT / place
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    text = _plain(" ".join(file.read_text(encoding="utf-8") for file in files))
    assert _plain(re.split(r", | of ", words)[0]) in text


def test_a_word_is_explained_once() -> None:
    words = [word for names, _ in ROWS for word in names.split(", ")]
    assert len(words) == len(set(words))
