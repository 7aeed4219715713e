"""The laws of exports convict: an export that says something else than the plan is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.exporters.registry import EXPORTERS
from app.exporters.replay_case import ReplayCase, iteration_case
from tests.laws import exported
from tests.laws.exported import an_execution_ends_when_the_plan_says, exports_say_the_plans_numbers
from tests.laws.trial import Trial

POOL = {"gpu": "H100-SXM-80G", "num_hosts": 2, "nic_bytes_per_s": 5e10}
TWO_BUILDINGS: dict[str, Any] = {
    "workload": {"architecture": "llama-3.1-8b", "sequence_length": 4096, "global_batch_sequences": 32},
    "cluster": {
        "name": "c",
        "places": [{"id": f"b{number}", "level": "building"} for number in (0, 1)],
        "pools": [{"id": f"p{number}", "place": f"b{number}", **POOL} for number in (0, 1)],
        "links": [{"id": "l", "from_place": "b0", "to_place": "b1", "capacity_bytes_per_s": 1e12, "latency_s": 1e-3}],
    },
    "constraints": {
        "framework": "megatron-core",
        "allowed": {"tp": [8], "cp": [1], "pp": [2], "vpp": [1], "sharding": ["zero1"]},
        "data_parallel_may_cross_buildings": False,
    },
    "options": {"time_limit_s": 3.0, "reproducible": True, "workers": 1},
}


@pytest.fixture(scope="module")
def trial() -> Trial:
    """Pipelines of two ranks over two buildings, two replicas, whole hosts."""
    return Trial(TWO_BUILDINGS, "1/1")


def test_exports_of_a_plan_that_crosses_break_no_law(trial: Trial) -> None:
    assert trial.plan is not None
    assert trial.plan.placement.crossing == "pp_out"
    assert not [*exports_say_the_plans_numbers(trial), *an_execution_ends_when_the_plan_says(trial)]
    assert trial.counts["exports read"] >= 7
    assert trial.counts["iterations executed"] == 1


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        ("slurm-hostfile", lambda text: "".join(sorted(text.splitlines(keepends=True))), "hosts"),
        ("slurm-sbatch", lambda text: text.replace("--nodes=4", "--nodes=3"), "nodes"),
        ("rank-map-csv", lambda text: text.replace("h0-2", "h0-9"), "hosts"),
        ("megatron-args", lambda text: re.sub(r"(?m)^--micro-batch-size \d+", "--micro-batch-size 64", text),
         "micro-batches"),
        ("megatron-args", lambda text: text.replace("|", "t|", 1), "layers"),
        ("torchtitan-args", lambda text: text.replace('"layers.0", ', ""), "layers"),
        ("torch-schedule-csv", lambda text: "\n".join(reversed(text.splitlines())), "order"),
        ("chrome-trace", lambda text: text.replace('"dur":', '"dur":1', 1), "times"),
    ],
)  # fmt: skip
def test_an_export_that_says_something_else_is_convicted(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, kind: Any, change: Callable[[str], str], told: str
) -> None:
    one = EXPORTERS[kind]
    changed = replace(one, export=lambda plan, request: change(one.export(plan, request)))
    monkeypatch.setattr(exported, "EXPORTERS", {**EXPORTERS, kind: changed})
    found = [breach.what for breach in exports_say_the_plans_numbers(trial)]
    assert f"{kind}: {told}" in found
    assert all(what.startswith(kind) for what in found)


@pytest.mark.parametrize("name", ["closing_s", "link"])
def test_an_execution_that_ends_later_is_convicted(trial: Trial, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def slower(*given: Any) -> ReplayCase:
        case = iteration_case(*given)
        if name == "closing_s":
            return case.model_copy(update={"closing_s": case.closing_s * 1.5})
        channels = tuple(
            tuple(one.model_copy(update={"lag_s": one.lag_s + 0.01}) for one in order)
            for order in case.pipelines[0].channels
        )
        pipeline = case.pipelines[0].model_copy(update={"channels": channels})
        return case.model_copy(update={"pipelines": (pipeline, *case.pipelines[1:])})

    monkeypatch.setattr(exported, "iteration_case", slower)
    assert [breach.what for breach in an_execution_ends_when_the_plan_says(trial)] == ["time"]
