"""The page of formulas says what the docstrings say."""

from benchmarks.formulas import PAGE, page


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m benchmarks.formulas --write"
