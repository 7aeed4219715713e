"""Which layers are MoE, how many tokens a step has, and how degrees and chunks count."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from models.plan import Configuration, Degrees
from models.workload import Architecture, Workload


@pytest.mark.parametrize(
    ("name", "moe_layers", "num_layers"),
    [
        ("llama-3.1-8b", [], 32),
        ("mixtral-8x7b", list(range(32)), 32),
        ("deepseek-v3", list(range(3, 61)), 61),
        ("llama-4-maverick-like", list(range(1, 48, 2)), 48),
    ],
)
def test_moe_layers_are_those_of_the_published_model(name: str, moe_layers: list[int], num_layers: int) -> None:
    architecture = _workload(name).architecture
    assert architecture.num_layers == num_layers
    assert [layer for layer in range(num_layers) if architecture.is_moe_layer(layer)] == moe_layers


def test_tokens_per_iteration() -> None:
    assert _workload("llama-3.1-405b").tokens_per_iteration == 2048 * 8192


def test_a_whole_architecture_may_stand_for_a_name() -> None:
    named = _workload("llama-3.1-8b").architecture
    assert Architecture.model_validate(named.model_dump()) == named


def _workload(name: str) -> Workload:
    document = {"architecture": name, "sequence_length": 8192, "global_batch_sequences": 2048}
    return Workload.model_validate(document)


def test_degrees_count_gpus_and_stages() -> None:
    degrees = Degrees(tp=8, cp=2, pp=4, dp=16, vpp=2)
    assert (degrees.num_gpus, degrees.gpus_per_stage_group, degrees.num_stages) == (1024, 16, 8)


@pytest.mark.parametrize("name", ["tp", "cp", "ep", "pp", "dp", "vpp"])
def test_no_degree_is_larger_than_any_batch(name: str) -> None:
    """The judge looks at the members of a group one by one: a billion of them would take it minutes."""
    with pytest.raises(ValidationError, match="1048576"):
        Degrees.model_validate({"tp": 1, "pp": 1, "dp": 1, name: 10**9})


@pytest.mark.parametrize(
    ("family", "ranks"), [("loop", [0, 1, 2, 0, 1, 2, 0, 1, 2]), ("v", [0, 1, 2, 2, 1, 0, 0, 1, 2])]
)
def test_chunks_loop_or_fold_over_the_ranks(family: str, ranks: list[int]) -> None:
    configuration = Configuration.model_validate(
        {
            "degrees": {"tp": 1, "pp": 3, "dp": 1, "vpp": 3},
            "micro_batch_sequences": 1,
            "num_microbatches": 8,
            "sharding": "zero1",
            "recompute": "none",
            "family": family,
            "layers_per_stage": [1] * 9,
        }
    )
    assert [configuration.rank_of_stage(stage) for stage in range(9)] == ranks
