"""Predictions do not move unnoticed."""

import json

import pytest

from tests.golden.predictions.grid import FROZEN, predictions


def test_predictions_are_the_frozen_ones():
    frozen, now = json.loads(FROZEN.read_text(encoding="utf-8")), predictions()
    assert now.keys() == frozen.keys()
    for name, rows in frozen.items():
        for row, (seconds, peak) in enumerate(rows):
            expected = pytest.approx([seconds, peak], rel=1e-7)
            assert now[name][row] == expected, f"{name}, configuration {row}: a move belongs in the CHANGELOG, Results"
