"""The map of buildings: cards stand clear of each other, however many there are."""

from __future__ import annotations

import itertools

import pytest

from app.exporters.report.buildings import CARD, NARROW
from app.exporters.report.figures import WIDTH
from app.exporters.report.geography import Node, height_of, in_rows, positions

REGION_CARD = (120.0, 26.0)


def _nodes(num_buildings: int, num_regions: int) -> list[Node]:
    buildings = [Node(f"b{index}", True, 8, 8, (index,)) for index in range(num_buildings)]
    return buildings + [Node(f"r{index}", False, 0, None, ()) for index in range(num_regions)]


@pytest.mark.parametrize("num_regions", [0, 1, 2])
@pytest.mark.parametrize("num_buildings", range(1, 25))
def test_cards_stand_inside_the_drawing_and_clear_of_each_other(num_buildings: int, num_regions: int) -> None:
    drawn = _nodes(num_buildings, num_regions)
    height = height_of(drawn)
    radii = WIDTH / 2 - CARD[0] / 2 - 14, height / 2 - CARD[1] / 2 - 8
    placed = positions(drawn, (WIDTH / 2, height / 2), radii)
    building = NARROW if in_rows(drawn) else CARD
    boxes = [(placed[one.name], building if one.is_building else REGION_CARD) for one in drawn]
    for (x, y), (wide, tall) in boxes:
        assert wide / 2 <= x <= WIDTH - wide / 2
        assert tall / 2 <= y <= height - tall / 2
    for ((x, y), (wide, tall)), ((u, v), (broad, high)) in itertools.combinations(boxes, 2):
        assert abs(x - u) >= (wide + broad) / 2 or abs(y - v) >= (tall + high) / 2


def test_neighbours_of_the_pipeline_are_neighbours_on_the_map() -> None:
    drawn = _nodes(24, 0)
    placed = positions(drawn, (WIDTH / 2, 0.0), (0.0, 0.0))
    for one, other in itertools.pairwise(drawn):
        (x, y), (u, v) = placed[one.name], placed[other.name]
        assert (x == u) != (y == v), "one step beside or one step below"
