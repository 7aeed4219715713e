"""Every catalogue entry validates, bears the name of its file, states its source and has the published size."""

from __future__ import annotations

from typing import get_args

import pytest

from models.catalogue import Kind, entry_names, named_entry
from models.cluster import Cluster, GpuType
from models.framework import FrameworkProfile
from models.request import PlanRequest
from models.stack import StackProfile
from models.workload import Architecture, LatentAttention

MODEL_OF_KIND = {
    "gpus": GpuType,
    "models": Architecture,
    "clusters": Cluster,
    "stacks": StackProfile,
    "frameworks": FrameworkProfile,
}
NAMED = [(kind, name) for kind in MODEL_OF_KIND for name in entry_names(kind)]

# Billions of parameters as published (the source field of each entry says where), multi-token prediction left out.
PUBLISHED_PARAMETERS = {
    "deepseek-v3": 671e9,
    "gpt-3-175b": 175e9,
    "llama-3.1-405b": 405e9,
    "llama-3.1-70b": 70.6e9,
    "llama-3.1-8b": 8.03e9,
    "llama-4-maverick-like": 400e9,
    "mixtral-8x7b": 46.7e9,
    "nemotron-4-340b": 341.0e9,
    "qwen2.5-32b": 32.5e9,
    "qwen3-235b-a22b": 235e9,
}
PUBLISHED_ACTIVE = {
    "deepseek-v3": 37e9,
    "llama-4-maverick-like": 17e9,
    "mixtral-8x7b": 12.9e9,
    "qwen3-235b-a22b": 22e9,
}
FREE_GPUS = {
    "single-building": 16_384,
    "two-buildings": 16_384,
    "region-5x38": 116_736,
    "two-sites-1000km": 3_072,
    "mixed-h100-b200": 6_144,
    "cloud-zones-nic-per-host": 256,
    "five-cloud-zones": 1_280,
    "h100-b200-one-building": 768,
    "roce-and-tcp-three-sites": 768,
    "uneven-region": 968,
}


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_an_entry_validates_is_named_after_its_file_and_states_its_source(kind: Kind, name: str) -> None:
    document = named_entry(kind, name)
    entry = MODEL_OF_KIND[kind].model_validate(document)
    assert document["name"] == name
    if kind != "stacks":  # every constant of a stack profile has a source of its own
        assert len(entry.model_dump()["source"]) > 10


def test_a_value_that_is_no_name_passes_untouched() -> None:
    assert named_entry("gpus", {"name": "mine"}) == {"name": "mine"}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_an_unknown_name_is_answered_with_the_known_ones(kind: Kind) -> None:
    with pytest.raises(ValueError, match=rf"no {kind} entry is called 'nothing'") as caught:
        named_entry(kind, "nothing")
    assert entry_names(kind)[0] in str(caught.value)


@pytest.mark.parametrize("name", entry_names("examples"))
def test_an_example_is_a_valid_request_on_catalogue_entries(name: str) -> None:
    request = PlanRequest.model_validate(named_entry("examples", name))
    assert request.workload.architecture.name in entry_names("models")
    assert request.cluster.name in entry_names("clusters")


def test_the_promised_entries_exist() -> None:
    assert set(entry_names("models")) == set(PUBLISHED_PARAMETERS)
    assert set(entry_names("clusters")) == set(FREE_GPUS)
    assert {"A100-SXM-80G", "H100-SXM-80G", "H200-SXM-141G", "B200-SXM", "GB200", "MI300X"} <= set(entry_names("gpus"))


@pytest.mark.parametrize(("name", "num_gpus"), FREE_GPUS.items())
def test_a_cluster_has_its_size(name: str, num_gpus: int) -> None:
    assert Cluster.model_validate(named_entry("clusters", name)).num_free_gpus == num_gpus


def test_the_region_is_the_published_one() -> None:
    region = Cluster.model_validate(named_entry("clusters", "region-5x38"))
    levels = [place.level for place in region.places]
    assert (levels.count("building"), levels.count("zone")) == (5, 38)
    assert len(region.links) == 5 * 4 / 2
    assert {link.planes for link in region.links} == {76}
    assert {link.oversubscription for link in region.links} == {2.8}


@pytest.mark.parametrize(("name", "published"), PUBLISHED_PARAMETERS.items())
def test_parameters_agree_with_the_published_count(name: str, published: float) -> None:
    assert parameters(_architecture(name)) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(("name", "published"), PUBLISHED_ACTIVE.items())
def test_active_parameters_agree_with_the_published_count(name: str, published: float) -> None:
    assert parameters(_architecture(name), active=True) == pytest.approx(
        published, rel=0.025
    )  # published in two digits


def _architecture(name: str) -> Architecture:
    return Architecture.model_validate(named_entry("models", name))


def parameters(a: Architecture, *, active: bool = False) -> float:
    """Weights of matrices, counted from the architecture alone: a second opinion on the solver's count."""
    matrices = 3 if a.gated_mlp else 2
    total = a.vocab_size * a.hidden_size * (1 if a.tied_embeddings else 2)
    for layer in range(a.num_layers):
        total += _attention(a)
        if a.moe is None or not a.is_moe_layer(layer):
            total += matrices * a.hidden_size * a.ffn_hidden_size
            continue
        visited = a.moe.experts_per_token if active else a.moe.num_experts
        shared_width = a.moe.shared_expert_ffn_hidden_size or a.moe.expert_ffn_hidden_size
        width = visited * a.moe.expert_ffn_hidden_size + a.moe.num_shared_experts * shared_width
        total += matrices * a.hidden_size * width + a.hidden_size * a.moe.num_experts
    return total


def _attention(a: Architecture) -> int:
    form, hidden = a.attention, a.hidden_size
    if isinstance(form, LatentAttention):
        query_width = form.num_heads * (form.qk_nope_head_dim + form.qk_rope_head_dim)
        rank = form.q_lora_rank
        query = hidden * rank + rank * query_width if rank else hidden * query_width
        latent = hidden * (form.kv_lora_rank + form.qk_rope_head_dim)
        expand = form.kv_lora_rank * form.num_heads * (form.qk_nope_head_dim + form.v_head_dim)
        return query + latent + expand + form.num_heads * form.v_head_dim * hidden
    return 2 * hidden * form.head_dim * (form.num_heads + form.num_kv_heads)
