"""Before anything starts: the right PyTorch, a time that one can wait for; and the words of a process that failed."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest

from app.exporters.replay_case import TORCH_VERSION
from app.faults import Refused
from app.replay import launch
from app.replay.job import ReplayJob
from app.replay.launch import Measured, check_torch, execute
from tests.replays import together
from tests.unit.app.replay.test_case import case


def _installed(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    def found(_name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)


@pytest.mark.parametrize(
    ("version", "what"), [(None, "PyTorch is not installed"), ("2.4.1+cpu", "PyTorch 2.4.1 is installed")]
)
def test_another_pytorch_is_refused_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, version: str | None, what: str
) -> None:
    _installed(monkeypatch, version)
    with pytest.raises(Refused, match=what) as caught:
        check_torch()
    assert "isthmus[torch]" in caught.value.faults[0].remedy


def test_any_build_of_the_right_version_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, f"{TORCH_VERSION}+cpu")
    check_torch()


def test_a_job_that_would_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, TORCH_VERSION)
    with pytest.raises(Refused, match="the steps would take") as caught:
        execute(ReplayJob(cases=(case(operation_s=10.0),), num_repetitions=50))
    assert "--operation-ms" in caught.value.faults[0].remedy


def test_the_process_that_failed_first_has_the_word(tmp_path: Path) -> None:
    logs = [tmp_path / name for name in ("own", "0", "1")]
    for log, text, at_s in zip(logs, ("", "ConnectionError: lost\n", "ValueError: why\n"), (3, 2, 1), strict=True):
        log.write_text(text)
        os.utime(log, (at_s, at_s))
    assert launch._last_words(logs) == "ValueError: why"  # noqa: SLF001


def _of(*taken_s: float, loss_difference: float = 0.0) -> Measured:
    spans = [[("0F0", start, start + taken)] for start, taken in enumerate(taken_s)]
    differences = {"loss_difference": loss_difference, "gradient_difference": 0.0, "parameter_difference": 0.0}
    ends_s = [start + taken for start, taken in enumerate(taken_s)]
    result = {"spans": spans, "ends_s": ends_s, "losses": [1.0], "largest_gradient": 1.0} | differences
    pipeline = case().pipelines[0].model_copy(update={"schedule_csv": "0F0\n"})
    one = case().model_copy(update={"pipelines": (pipeline,), "predicted_s": 0.8})
    found: Measured = launch._measured(one, [result])  # noqa: SLF001
    return found


def test_the_fastest_repetition_counts_and_the_median_is_told() -> None:
    found = _of(1.5, 1.0, 1.2)
    assert found.measured_s == pytest.approx(1.0)
    assert found.median_s == pytest.approx(1.2)
    assert found.ratio == pytest.approx(1.25)
    assert found.same_order
    assert found.same_result


def test_a_disturbed_case_may_be_repeated_and_keeps_what_went_wrong() -> None:
    found = together(_of(1.5, 1.4, 1.3, loss_difference=0.5), _of(1.0, 1.2, 1.6))
    assert len(found.repetitions_s) == 6
    assert found.measured_s == pytest.approx(1.0)
    assert found.ratio == pytest.approx(1.25)
    assert not found.same_result
