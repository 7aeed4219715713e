"""PyTorch runs the exported schedules: as fast as predicted, ranked as predicted, with the unpipelined gradients.

Wall times are asserted here and nowhere else, because they are what is claimed: each operation takes tens of
milliseconds, of which a process sleeps most. No operation ends before its planned time and other work on the machine
only adds, so the fastest of the repetitions counts, and more of them never make a slow schedule look fast: what was
disturbed is repeated. The table that is printed shows number and median of the repetitions and the load of the machine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import psutil
import pytest

from app.exporters.replay_case import ReplayCase, replay_case
from app.replay import launch
from app.replay.job import ReplayJob
from app.replay.launch import Measured, ReplayFailed, execute
from tests.replays import together
from tests.torch.cases import DELAYS, LAYOUTS, OURS, problem, schedule

UNIT_S = 0.05  # real time of a planned unit: a forward of a whole stage
TOLERANCE = 0.10
ALIKE = 0.02  # predictions closer than this are no ranking
NUM_REPETITIONS = 5
CALM, MAX_MORE = 1.05, 3  # measured over predicted above which a case is repeated, so many times

Figures = dict[tuple[str, float], Measured]
WITH_MESSAGES = ("ours", "zbv", "interleaved")  # the export with communication, too, at the middle delay
CASES = [(name, delay) for delay in DELAYS for name in LAYOUTS]


@pytest.fixture(scope="module")
def figures(request: pytest.FixtureRequest) -> Figures:
    """Every schedule at every delay, executed by the same four processes."""
    cases = []
    for name, delay in CASES:
        asked = problem(name, delay)
        found = schedule(name, asked)
        spans = [end - start for row in found.ranks for start, end in zip(row.start_s, row.end_s, strict=True)]
        cases.append(replay_case(name, asked, found, UNIT_S * sum(spans) / len(spans)))
    before = os.getloadavg()[0]
    found = dict(zip(CASES, execute(ReplayJob(cases=tuple(cases), num_repetitions=NUM_REPETITIONS)), strict=True))
    for _ in range(MAX_MORE):
        found |= _once_more(found, dict(zip(CASES, cases, strict=True)))
    for line in (
        *_table(found),
        f"load of {os.cpu_count()} cores: {before:.1f} before, {os.getloadavg()[0]:.1f} after",
    ):
        request.config.get_terminal_writer().line(line)
    return found


def _once_more(figures: Figures, cases: dict[tuple[str, float], ReplayCase]) -> Figures:
    """The cases that something seems to have disturbed, with more repetitions."""
    disturbed = [key for key, one in figures.items() if one.ratio > CALM]
    if not disturbed:
        return {}
    again = execute(ReplayJob(cases=tuple(cases[key] for key in disturbed), num_repetitions=NUM_REPETITIONS))
    return {key: together(figures[key], one) for key, one in zip(disturbed, again, strict=True)}


def _table(figures: Figures) -> Iterator[str]:
    yield f"\n{'delay':>5}  {'schedule':12} {'predicted':>9} {'fastest':>9} {'ratio':>6} {'median':>9} {'of':>3}"
    for (name, delay), one in figures.items():
        yield (
            f"{delay:5g}  {name:12} {one.predicted_s:7.3f} s {one.measured_s:7.3f} s {one.ratio:6.3f} "
            f"{one.median_s:7.3f} s {len(one.repetitions_s):3}  off by {one.gradient_difference:.1e}"
        )


@pytest.mark.parametrize(("name", "delay"), CASES)
def test_the_measured_time_is_the_predicted_one(figures: Figures, name: str, delay: float) -> None:
    assert figures[name, delay].ratio == pytest.approx(1.0, abs=TOLERANCE)


@pytest.mark.parametrize(("name", "delay"), CASES)
def test_the_operations_run_in_the_exported_order(figures: Figures, name: str, delay: float) -> None:
    assert figures[name, delay].same_order


@pytest.mark.parametrize(("name", "delay"), CASES)
def test_loss_gradients_and_parameters_are_those_of_the_unpipelined_model(
    figures: Figures, name: str, delay: float
) -> None:
    one = figures[name, delay]
    assert one.same_result, one
    assert one.largest_gradient > 1e-3, "nothing to compare"


@pytest.mark.parametrize("delay", DELAYS)
def test_schedules_rank_as_predicted(figures: Figures, delay: float) -> None:
    for one, other in combinations([figures[name, delay] for name in LAYOUTS], 2):
        faster, slower = sorted((one, other), key=lambda each: each.predicted_s)
        if slower.predicted_s > faster.predicted_s * (1 + ALIKE):
            assert faster.measured_s < slower.measured_s, (faster, slower)


@pytest.mark.parametrize("delay", [delay for delay in DELAYS if delay > 0])
def test_ours_is_the_fastest_where_the_buildings_are_apart(figures: Figures, delay: float) -> None:
    others = [figures[name, delay].measured_s for name in LAYOUTS if name != OURS]
    assert figures[OURS, delay].measured_s < min(others)


@pytest.fixture(scope="module")
def with_messages() -> tuple[Measured, ...]:
    """The same from the export with communication, once each."""
    asked = [problem(name, DELAYS[1]) for name in WITH_MESSAGES]
    cases = [
        replay_case(name, one, schedule(name, one), planned_messages=True)
        for name, one in zip(WITH_MESSAGES, asked, strict=True)
    ]
    return execute(ReplayJob(cases=tuple(cases), num_warm_ups=1, num_repetitions=1))


def test_the_export_with_communication_runs_as_exported_with_the_same_gradients(
    with_messages: tuple[Measured, ...],
) -> None:
    for one in with_messages:
        assert one.same_order, one.name
        assert one.same_result, one


def test_the_delay_is_felt(figures: Figures) -> None:
    assert figures["one_f_one_b", 4.0].measured_s > 1.5 * figures["one_f_one_b", 0.0].measured_s


def test_a_schedule_that_pytorch_cannot_run_fails_with_its_words() -> None:
    one = problem("one_f_one_b", 0.0)
    case = replay_case("broken", one, schedule("one_f_one_b", one))
    first, *others = case.pipelines[0].schedule_csv.splitlines()
    broken = case.pipelines[0].model_copy(update={"schedule_csv": "\n".join([first.replace("0F1", "0Z1"), *others])})
    with pytest.raises(ReplayFailed, match="0Z1"):
        execute(ReplayJob(cases=(case.model_copy(update={"pipelines": (broken,)}),)))


def test_processes_that_do_not_end_are_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SLOWEST", "STARTING_S", "STARTING_S_PER_RANK"):
        monkeypatch.setattr(launch, name, 0.1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one = problem("one_f_one_b", 0.0)
    with pytest.raises(ReplayFailed, match="not finished after"):
        execute(ReplayJob(cases=(replay_case("slow", one, schedule("one_f_one_b", one)),)))
    assert not [pid for pid in psutil.pids() if _runs_in(pid, tmp_path)]


def _runs_in(pid: int, folder: Path) -> bool:
    try:
        return any(str(folder) in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
