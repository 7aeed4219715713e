"""What every plan states word for word covers what it has to."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from models.statements import PROVEN, SPACE_LIMITS, bound_in_words, bounds_time
from solver.configurations.enumerate import enumerate_space
from solver.cost.columns import FSDP, HSDP, RECOMPUTE_CODES, ZERO1
from tests.build_job import job


@pytest.mark.parametrize("kind", PROVEN)
def test_every_proof_names_each_limit_of_the_space(kind: str) -> None:
    assert len(PROVEN[kind]) <= 800
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


def test_the_space_leaves_out_what_the_proof_says_and_nothing_else_of_its_kind() -> None:
    hosts = (2, 2, 2)
    columns = enumerate_space(job(hosts=hosts, batch=96, allowed={})).columns
    copies = columns.dp // columns.shard_group
    assert set(columns.sharding.tolist()) == {ZERO1, FSDP, HSDP}, "ddp"
    assert set(copies.tolist()) == set(range(1, len(hosts) + 1)), "beside zero1 more copies than places"
    whole = enumerate_space(job(hosts=hosts, batch=96, allowed={"sharding": ["fsdp", "hsdp"]})).columns
    for dp in np.unique(whole.dp):
        groups = set(whole.shard_group[whole.dp == dp].tolist())
        assert groups == {group for group in range(1, dp + 1) if dp % group == 0}, "any number of copies"
    assert {RECOMPUTE_CODES[code] for code in columns.recompute.tolist()} == {"none", "full"}, "selective"
    unfused = job(hosts=hosts, allowed={}, workload={"flash_attention": False})
    assert {RECOMPUTE_CODES[code] for code in enumerate_space(unfused).columns.recompute.tolist()} == {*RECOMPUTE_CODES}


@pytest.mark.parametrize("kind", PROVEN)
def test_only_where_time_is_minimised_no_plan_is_faster_than_the_bound(kind: str) -> None:
    is_time = kind == "iteration_time"
    assert bounds_time(PROVEN[kind]) is is_time
    assert ("faster" in bound_in_words(PROVEN[kind], "2 s")) is is_time
    assert "2 s" in bound_in_words(PROVEN[kind], "2 s")
