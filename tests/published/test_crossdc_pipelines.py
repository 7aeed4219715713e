"""Two-site pipelines as measured by CrossPipe (USENIX ATC 2025, arXiv:2507.00217, Table 5), predicted.

Seconds per micro-batch of a 70B model, 8 ranks in two sites, F = 38 ms; delays in units of F. The profile comes from
the rows without delay alone. Here are the static schedules, CrossPipe's one-way greedy and 1F1B with recomputation.
"""

from __future__ import annotations

import pytest

from benchmarks.first_schedules import quick_schedule
from benchmarks.measured_pipelines import PipelineReport, validate_pipeline
from models.schedule import PipelineProblem, PipelineSchedule

MEASURED = [
    (0.0, 0.0, {"1F1B": 0.151, "ZBH1": 0.133, "ZBV": 0.118, "CrossUDSub": 0.137}),
    (0.25, 0.25, {"1F1B": 0.168, "ZBH1": 0.150, "ZBV": 0.148, "CrossUDSub": 0.149}),
    (0.25, 2.0, {"1F1B": 0.241, "ZBH1": 0.230, "ZBV": 0.315, "CrossUDSub": 0.181}),
    (2.0, 0.25, {"1F1B": 0.242, "ZBH1": 0.229, "ZBV": 0.314, "CrossUDSub": 0.160}),
    (2.0, 2.0, {"1F1B": 0.321, "ZBH1": 0.309, "ZBV": 0.473, "CrossUDSub": 0.198}),
]


RECOMPUTED_1F1B = [(0.0, 0.0, 0.174), (0.25, 0.25, 0.193), (0.25, 2.0, 0.262), (2.0, 0.25, 0.262), (2.0, 2.0, 0.333)]


def rows() -> list[dict[str, str]]:
    whole = [
        _row(latency, transfer, schedule, measured_s, microbatches=16, recompute="none")
        for latency, transfer, cells in MEASURED
        for schedule, measured_s in cells.items()
    ]
    return whole + [
        _row(*delays, "1F1B", measured_s, microbatches=32, recompute="layerwise")
        for *delays, measured_s in RECOMPUTED_1F1B
    ]


def _row(
    latency: float, transfer: float, schedule: str, measured_s: float, *, microbatches: int, recompute: str
) -> dict[str, str]:
    return {
        "n_dc": "2",
        "pp": "8",
        "t_fwd_s": "0.038",
        "lat_over_tf": str(latency),
        "bw_over_tf": str(transfer),
        "microbatches": str(microbatches),
        "act_mem_budget": "1.0x 1F1B",
        "recompute": recompute,
        "schedule": schedule,
        "runtime_per_microbatch_s": str(measured_s),
    }


def one_greedy(problem: PipelineProblem) -> PipelineSchedule:
    """Cells are not what is tested here, so one quick generator makes them."""
    return quick_schedule(problem, ("greedy",))


@pytest.fixture(scope="module")
def report() -> PipelineReport:
    return validate_pipeline(rows(), schedule=one_greedy)


def test_static_schedules_without_delay_are_within_3_percent_and_the_greedy_within_5(report: PipelineReport) -> None:
    families = report.errors.families
    assert families["1F1B zero delay"].mean_abs_pct <= 3
    assert families["ZBH1 zero delay"].mean_abs_pct <= 3
    assert families["CrossUDSub zero delay"].mean_abs_pct <= 5
    assert families["ZBV zero delay"].mean_abs_pct <= 3


def test_static_schedules_with_delay_are_within_8_percent_each(report: PipelineReport) -> None:
    """Their runtime waits for what it has sent: with asynchronous sends the V alone is 25 % too fast on average."""
    for schedule in ("1F1B", "ZBH1", "ZBV"):
        assert abs(report.errors.families[f"{schedule} delayed"].worst_pct) <= 8


def test_schedules_are_ranked_as_measured(report: PipelineReport) -> None:
    assert report.pairs >= 20
    assert report.ranking_share >= 0.9


def test_asynchronous_schedules_are_within_5_percent_unless_messages_take_two_forwards(report: PipelineReport) -> None:
    assert {name: one.rows for name, one in report.by_message.items()} == {"0": 1, "0.25": 2, "2": 2}
    assert report.by_message["0.25"].mean_abs_pct <= 5
    assert report.by_message["2"].bias_pct == -report.by_message["2"].mean_abs_pct, "faster than measured"


def test_a_row_that_cannot_be_predicted_is_counted_with_its_reason() -> None:
    odd = [{**rows()[0], "schedule": "Other"}, {**rows()[0], "pp": ""}]
    skipped = validate_pipeline(rows() + odd, schedule=one_greedy).errors.total.skipped
    assert skipped == {"schedule Other is not known": 1, "column pp is missing or empty": 1}


def test_without_a_row_to_take_the_profile_from_nothing_is_predicted() -> None:
    delayed = [row for row in rows() if row["lat_over_tf"] != "0.0"]
    report = validate_pipeline(delayed)
    assert report.errors.total.rows == 0
    assert report.profile is None
