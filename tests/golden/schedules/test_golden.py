"""The text form of every generator on one small case of its layout. A change here must be explained in its commit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.first_schedules import quick_schedule
from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.problem import shape_of
from tests.pipelines import budget, cut, pipeline

CASES = Path(__file__).parent / "cases"
PROBLEMS = {
    "one_way": pipeline(4, 6, hops=[cut(1, 2.0, 0.25, "A-B")]),
    "v": pipeline(3, 6, chunks=2, hops=[cut(0, 1.0, 0.25, "A-B"), cut(4, 1.0, 0.25, "A-B")]),
    "loop": pipeline(3, 6, chunks=2, layout="loop", hops=[cut(0, 1.0, 0.25, "A-B"), cut(3, 1.0, 0.25, "A-B")]),
}
PAIRS = [(layout, name) for layout in PROBLEMS for name in GENERATORS if GENERATORS[name](shape_of(PROBLEMS[layout]))]
FULL = "full_loop"  # a loop whose memory is too little for most: what `paced` is for
PROBLEMS[FULL] = PROBLEMS["loop"].model_copy(update={"ranks": pipeline(3, 6, ranks=budget(3, 1.5)).ranks})
PAIRS.append((FULL, "paced"))


@pytest.mark.parametrize(("layout", "name"), PAIRS)
def test_the_order_is_the_golden_one(layout: str, name: str) -> None:
    schedule = quick_schedule(PROBLEMS[layout], (name,))
    written = f"{schedule.text}\nmakespan {schedule.makespan_s:.6f}\n"
    path = CASES / f"{layout}-{name}.txt"
    if os.environ.get("ISTHMUS_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(written)
    assert path.read_text() == written


def test_every_generator_has_a_golden() -> None:
    assert {name for _, name in PAIRS} == set(GENERATORS)
