"""What memory says of even pipelines, whatever the layers of their ends: against every share of the layers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from models.outcome import Infeasible, NotFound
from models.request import PlanRequest
from solver.bounds.even_memory import capacity_for_other_shares
from solver.configurations.enumerate import enumerate_space
from solver.configurations.pricing import StageCosts, kinds
from solver.context import Context
from solver.planner import plan, validate
from tests.build_job import ARCHITECTURE, job

NUM_LAYERS = 9
MOE = {"num_experts": 4, "experts_per_token": 2, "expert_ffn_hidden_size": 8192, "first_moe_layer": 2}


def request_of(pp: int, memory_bytes: float, **model: Any) -> PlanRequest:
    """A pipeline of so many ranks of one GPU each, with a vocabulary that outweighs some layers."""
    allowed = {"tp": [1], "cp": [1], "pp": [pp], "dp": [1], "vpp": [1], "micro_batch_sequences": [1]}
    architecture = {**ARCHITECTURE, "num_layers": NUM_LAYERS, "vocab_size": 200_000, **model}
    document = job(
        hosts=(2,),
        batch=2,
        allowed={**allowed, "sharding": ["zero1"], "recompute": ["full"]},
        workload={"architecture": architecture},
        constraints={"memory_headroom_fraction": 0.0},
        options={"time_limit_s": 2.0, "reproducible": True},
    ).model_dump(mode="json")
    document["cluster"]["pools"][0]["gpu"]["memory_bytes"] = memory_bytes
    return PlanRequest.model_validate(document)


def least_bytes(pp: int, **model: Any) -> float:
    """Memory that the fullest rank needs with the share of the layers that needs least, of all there are."""
    context = Context.of(request_of(pp, 8e10, **model))
    price = StageCosts(context, next(iter(context.gpu_classes.values())), enumerate_space(context.request).columns)

    def needs(stage: int, start: int, stop: int) -> float:
        ends = {"embedding": float(stage == 0), "logits": float(stage == pp - 1)}
        cost = price.of(*kinds(context, start, stop), **ends)
        static = price.static_bytes(cost.parameters, cost.expert_parameters, has_logits=ends["logits"])
        return float(static[0] + cost.activation_bytes[0])

    cuts = itertools.combinations(range(1, NUM_LAYERS + 1), pp - 1)  # the last stage may have none
    shares = ([0, *cut, NUM_LAYERS] for cut in cuts)
    return min(max(needs(stage, *part) for stage, part in enumerate(itertools.pairwise(share))) for share in shares)


def has_room(request: PlanRequest) -> bool:
    context, space = Context.of(request), enumerate_space(request)
    prices = [StageCosts(context, one, space.columns) for one in context.gpu_classes.values()]
    return bool(np.any(capacity_for_other_shares(prices, space.family)))


@pytest.mark.parametrize("pp", [2, 3, 4, 9])
def test_room_is_where_some_share_of_the_layers_fits(pp: int) -> None:
    least = least_bytes(pp)
    assert has_room(request_of(pp, least))
    assert not has_room(request_of(pp, 0.9999 * least))


@pytest.mark.parametrize("pp", [2, 3, 4])
def test_room_is_there_for_every_share_of_layers_of_two_kinds_that_fits(pp: int) -> None:
    least = least_bytes(pp, moe=MOE)
    assert has_room(request_of(pp, least, moe=MOE))
    assert not has_room(request_of(pp, 0.8 * least, moe=MOE))


def test_memory_that_other_ends_fit_into_is_not_infeasible() -> None:
    """The first rank has 7 layers by the rule of even splits and needs more than with 6, which the judge takes too."""
    least = least_bytes(2)
    tried, beyond = plan(request_of(2, least)), plan(request_of(2, 0.9999 * least))
    assert isinstance(tried, NotFound)
    assert "first or the last stage" in tried.detail
    assert validate(request_of(2, least)) == ()
    assert isinstance(beyond, Infeasible)
    assert validate(request_of(2, 0.9999 * least))[0].code == "memory-too-small"


def test_a_model_that_one_rank_has_no_room_for_is_infeasible() -> None:
    """There is one share of the layers."""
    outcome = plan(request_of(1, 1e9))
    assert isinstance(outcome, Infeasible)
    assert outcome.reasons[0].code == validate(request_of(1, 1e9))[0].code == "memory-too-small"
