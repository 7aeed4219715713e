"""torchtitan trains its own model of a plan's sizes: another one is refused, and what it has instead is told."""

from __future__ import annotations

import pytest

from app.exporters.launch.torchtitan_job import MODELS, losses, titan_model, torchtitan_job
from app.faults import Refused
from models.catalogue import named_entry
from models.definition import SparseAttention
from models.workload import Architecture
from tests.unit.app.exporters.test_bundle import job


def test_torchtitan_takes_its_own_model_of_the_same_sizes_or_none() -> None:
    for name, flavour in (("llama-3.1-8b", "8B"), ("llama-3.1-70b", "70B"), ("llama-3.1-405b", "405B"),
                          ("deepseek-v3", "671B")):  # fmt: skip
        assert titan_model(Architecture.model_validate(named_entry("models", name))).flavour == flavour
    with pytest.raises(Refused, match="no model of the sizes of 'mixtral-8x7b'"):
        titan_model(Architecture.model_validate(named_entry("models", "mixtral-8x7b")))
    assert len({(one.module, one.flavour) for one in MODELS}) == len(MODELS)


@pytest.mark.parametrize(
    ("name", "part", "change"),
    [("llama-3.1-8b", "attention", {"num_kv_heads": 16}), ("llama-3.1-8b", "attention", {"head_dim": 64}),
     ("deepseek-v3", "attention", {"kv_lora_rank": 256}), ("deepseek-v3", "moe", {"expert_ffn_hidden_size": 1024}),
     ("deepseek-v3", "moe", {"num_shared_experts": 2}), ("deepseek-v3", "moe", {"experts_per_token": 4})],
)  # fmt: skip
def test_a_model_that_differs_in_any_size_is_not_torchtitans(name: str, part: str, change: dict[str, int]) -> None:
    """Its registry builds 8 key/value heads, say, whatever the plan has: parameters and times were another model's."""
    entry = named_entry("models", name)
    other = Architecture.model_validate({**entry, part: {**entry[part], **change}})
    with pytest.raises(Refused, match="no model of the sizes"):
        titan_model(other)


def test_sizes_that_are_stated_in_another_way_are_the_same_model() -> None:
    """As a Hugging Face configuration is imported: the width of shared experts goes without saying."""
    entry = named_entry("models", "deepseek-v3")
    other = {**entry, "num_mtp_layers": 0, "moe": {**entry["moe"], "shared_expert_ffn_hidden_size": 0}}
    assert titan_model(Architecture.model_validate(other)).flavour == "671B"


def test_what_torchtitans_model_has_instead_is_told() -> None:
    """DeepSeek-V3.2 has the sizes of V3: its sparse attention would be trained as full attention without a word."""
    plan, request = job("deepseek-v3")
    definition = request.workload.architecture.definition
    assert definition is not None
    sparse = definition.model_copy(
        update={"sparse_attention": SparseAttention(tokens=2048, num_heads=64, head_dim=128)}
    )
    told = {}
    for stated in (definition, sparse):
        architecture = request.workload.architecture.model_copy(update={"definition": stated})
        workload = request.workload.model_copy(update={"architecture": architecture})
        lines = losses(plan, request.model_copy(update={"workload": workload}))
        told[stated] = [line for line in lines if "torchtitan's deepseek_v3 671B has" in line]
    assert told[definition] == ["norm_epsilon 1e-06: torchtitan's deepseek_v3 671B has 1e-05"]
    assert told[sparse][1:] == [
        "sparse_attention tokens 2048, num_heads 64, head_dim 128: torchtitan's deepseek_v3 671B has none"
    ]
    plan, request = job("llama-3.1-8b")
    assert not any("torchtitan's llama3" in line for line in losses(plan, request))


@pytest.mark.parametrize(("name", "longest"), [("llama-3.1-8b", 131072), ("deepseek-v3", 16384)])
def test_torchtitans_models_have_positions_up_to_a_length(name: str, longest: int) -> None:
    """Decoder.Config: "Training sequence length exceeds attention RoPE maximum supported sequence length"."""
    plan, request = job(name)
    for length in (longest, 2 * longest):
        asked = request.model_copy(update={"workload": request.workload.model_copy(update={"sequence_length": length})})
        if length == longest:
            assert "planned" in torchtitan_job(plan, asked)
            continue
        with pytest.raises(Refused, match=f"end at {longest}"):
            torchtitan_job(plan, asked)
