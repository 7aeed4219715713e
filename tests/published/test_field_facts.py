"""What the field agrees on about training across buildings holds in our model, with nothing told to the search.

The facts are ScaleAcross Explorer's (arXiv 2605.24326), CrossPipe's (arXiv 2507.00217) and their arithmetic: volume by
data parallelism grows with all parameters, volume by pipelines with the tokens alone.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from benchmarks.first_schedules import quick_schedule
from models.outcome import Planned
from models.plan import Plan
from models.schedule import PipelineHop, PipelineProblem, PipelineRank, PipelineStage
from solver.planner import plan
from tests.build_job import ARCHITECTURE, job

GAP = 0.02
OPTIONS = {"reproducible": True, "time_limit_s": 8.0, "relative_gap": GAP}
EXPERTS = (2, 8, 32, 128)
SHAPE: dict[str, Any] = {"tp": [2], "cp": [1], "pp": [4], "dp": [8], "vpp": [1], "family": ["one_way"]}
BATCH = 1024  # 4.2 million tokens: as many as such models are trained with
THIN = {"capacity_bytes_per_s": 6e10, "latency_s": 1e-3}


def planned(**changes: Any) -> Plan:
    outcome = plan(job(**{"options": OPTIONS, "link": THIN, "batch": BATCH, **changes}))
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def experts(number: int) -> dict[str, Any]:
    """The small model with so many experts of 1,024 in every layer, two of them active."""
    moe = {"num_experts": number, "experts_per_token": 2, "expert_ffn_hidden_size": 1024}
    return {"architecture": {**ARCHITECTURE, "moe": moe}}


def test_more_experts_flip_dp_out_to_pp_out_exactly_once() -> None:
    """Gradients of all experts cross in DP-out; PP-out sends the same hidden states whatever their number."""
    allowed = {**SHAPE, "ep": [2], "micro_batch_sequences": [1], "sharding": ["zero1"], "recompute": ["full"]}
    found = [planned(workload=experts(number), allowed=allowed).placement.crossing for number in EXPERTS]
    assert found[0] == "dp_out"
    assert found[-1] == "pp_out"
    assert sum(a != b for a, b in itertools.pairwise(found)) == 1, found


@pytest.mark.parametrize("capacity_bytes_per_s", [1e11, 1e12])
def test_hsdp_is_never_worse_than_fsdp_across_buildings(capacity_bytes_per_s: float) -> None:
    """FSDP gathers weights over the link for every layer and micro-batch, HSDP reduces gradients over it once."""
    whole = {"pipeline_may_cross_buildings": False}
    link = {**THIN, "capacity_bytes_per_s": capacity_bytes_per_s}
    times = {
        sharding: planned(allowed={**SHAPE, "sharding": [sharding]}, constraints=whole, link=link).metrics.iteration_s
        for sharding in ("hsdp", "fsdp")
    }
    assert times["hsdp"] <= times["fsdp"] * (1 + GAP)


@pytest.mark.parametrize("capacity_bytes_per_s", [1e11, 4e11])
def test_a_small_dense_model_goes_dp_out(capacity_bytes_per_s: float) -> None:
    """It needs no pipeline, so its gradients cross once per iteration and hide behind the last backward."""
    link = {**THIN, "capacity_bytes_per_s": capacity_bytes_per_s}
    assert planned(allowed={}, link=link).placement.crossing == "dp_out"


def test_the_same_model_on_a_tiny_batch_goes_pp_out() -> None:
    """With a sixteenth of the tokens the hidden states are the smaller volume."""
    assert planned(batch=BATCH // 16, allowed={**SHAPE}).placement.crossing == "pp_out"


def two_sites(transfer_over_forward: float, *, folded: bool) -> PipelineProblem:
    """Eight ranks, four on each of two sites; the same work in one chunk per rank or folded in two."""
    chunks = 2 if folded else 1
    part = 1.0 / chunks
    stages = tuple(
        PipelineStage(
            forward_s=part,
            input_grad_s=part,
            weight_grad_s=part,
            activation_bytes=part,
            weight_grad_context_bytes=0.5 * part,
        )
        for _ in range(8 * chunks)
    )
    boundaries = (3, 11) if folded else (3,)
    hops = tuple(
        PipelineHop(from_stage=s, to_stage=s + 1, latency_s=0.25, transfer_s=transfer_over_forward, link="west-east")
        for s in boundaries
    )
    ranks = (PipelineRank(activation_budget_bytes=10.0),) * 8
    layout = "v" if folded else "one_way"
    return PipelineProblem(num_microbatches=32, ranks=ranks, stages=stages, hops=hops, layout=layout)


def makespan_s(transfer_over_forward: float, *, folded: bool) -> float:
    return quick_schedule(two_sites(transfer_over_forward, folded=folded)).makespan_s


def test_folded_pipelines_lose_where_a_transfer_takes_longer_than_a_forward() -> None:
    """A V crosses the boundary twice: it fills its bubbles where transfers are short and waits where they are long."""
    assert makespan_s(0.0, folded=True) < makespan_s(0.0, folded=False)
    for ratio in (2.0, 3.0):
        assert makespan_s(ratio, folded=True) > makespan_s(ratio, folded=False)
