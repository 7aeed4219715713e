"""The index of decisions lists every page by number, with its own title."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"


def test_every_decision_is_in_the_index_under_its_title() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for page in sorted(FOLDER.glob("0*.md")):
        number, title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ").split(" ", 1)
        assert f"| [{number}]({page.name}) | {title} |" in index
