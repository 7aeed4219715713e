"""What every plan states word for word covers what it has to."""

from __future__ import annotations

from dataclasses import fields

import pytest

from models.statements import PROVEN, SPACE_LIMITS, bound_in_words, bounds_time
from solver.configurations.enumerate import enumerate_space
from tests.build_job import job


@pytest.mark.parametrize("kind", PROVEN)
def test_every_proof_names_each_limit_of_the_space(kind: str) -> None:
    assert len(PROVEN[kind]) <= 600
    for limit in fields(SPACE_LIMITS):
        assert f" {getattr(SPACE_LIMITS, limit.name)} " in PROVEN[kind].replace(",", " "), limit.name


def test_the_space_keeps_to_the_limits_that_the_proof_names() -> None:
    columns = enumerate_space(job(allowed={})).columns
    assert columns.pp.max() <= SPACE_LIMITS.max_pipeline_ranks
    assert columns.vpp.max() <= SPACE_LIMITS.max_chunks
    assert columns.cp.max() <= SPACE_LIMITS.max_context_parallel
    assert columns.micro_batch.max() <= SPACE_LIMITS.max_micro_batch
    num_layers = job(allowed={}).workload.architecture.num_layers
    assert (columns.pp * columns.vpp).max() <= num_layers, "each stage has a layer"


@pytest.mark.parametrize("kind", PROVEN)
def test_only_where_time_is_minimised_no_plan_is_faster_than_the_bound(kind: str) -> None:
    is_time = kind == "iteration_time"
    assert bounds_time(PROVEN[kind]) is is_time
    assert ("faster" in bound_in_words(PROVEN[kind], "2 s")) is is_time
    assert "2 s" in bound_in_words(PROVEN[kind], "2 s")
