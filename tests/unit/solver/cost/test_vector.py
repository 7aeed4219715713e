"""The vector path is the scalar path, row by row."""

from dataclasses import fields

import numpy as np
import pytest

from models.plan import Configuration, Degrees
from solver.cost.columns import columns_of
from solver.cost.estimate import Estimate, iteration_estimate
from solver.cost.job import job_of
from solver.cost.layer import Setting
from tests.unit.solver.cost.samples import A100, STACK, fabric, gpt, mixture, random_columns, workload


@pytest.mark.parametrize("architecture", [gpt(), mixture()], ids=["dense", "moe"])
@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1", "zb_h2", "dualpipe"])
def test_one_row_at_a_time_gives_the_same_numbers(architecture, schedule):
    job = job_of(workload(architecture))
    many = random_columns(60, seed=3)
    whole = iteration_estimate(Setting.of(job, A100, fabric(), STACK, many), schedule=schedule)
    for row in range(len(many)):
        at = Setting.of(job, A100, fabric(), STACK, many.take(np.array([row])))
        single = iteration_estimate(at, schedule=schedule)
        for field in fields(Estimate):
            expected = getattr(whole, field.name)[row]
            assert getattr(single, field.name)[0] == pytest.approx(expected, rel=1e-9, abs=1e-300), field.name


def test_no_estimate_is_negative():
    at = Setting.of(job_of(workload(mixture())), A100, fabric(), STACK, random_columns(200, seed=5))
    estimate = iteration_estimate(at)
    assert all((getattr(estimate, field.name) >= 0).all() for field in fields(Estimate))


def test_a_configuration_becomes_columns_of_length_one():
    configuration = Configuration(
        degrees=Degrees(tp=8, pp=2, dp=4, cp=2, ep=2, vpp=1),
        micro_batch_sequences=3,
        num_microbatches=5,
        sharding="hsdp",
        shard_group_replicas=2,
        recompute="full",
        layers_per_stage=(12, 12),
    )
    columns = columns_of(configuration)
    assert {f.name: int(getattr(columns, f.name)[0]) for f in fields(columns)} == {
        "tp": 8, "cp": 2, "ep": 2, "pp": 2, "dp": 4, "vpp": 1, "micro_batch": 3, "num_microbatches": 5,
        "sharding": 3, "shard_group": 2, "recompute": 2,
    }  # fmt: skip
