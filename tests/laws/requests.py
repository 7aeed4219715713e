"""Random planning requests over everything that the vocabulary can say, small enough to be planned in a second."""

from __future__ import annotations

from math import gcd
from typing import Any

from models.request import PlanRequest
from models.stack import DIVISORS, SHARES_OF_A_WIRE, Constant, StackProfile
from models.workload import GroupedQueryAttention
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import framework_reasons, within_framework
from solver.diagnostics.joins import links_missing
from solver.lint import lint
from tests.laws.clusters import cluster
from tests.laws.dice import Dice
from tests.laws.jobs import workload

Json = dict[str, Any]
FRAMEWORKS = ("megatron-core", "torchtitan", "deepspeed")
STACKS = ("megatron-2024", "megatron-2021", "fsdp-2023", "hai-llm-2024", "deepspeed-zero3-2021", "zero-bubble-2024")
MOSTLY = 0.93  # of the time a request avoids what arithmetic alone refuses
MOST_SECONDS = 1e7  # that a target may have
WORK_S = (2.5, 3.0, 4.0, 6.0)  # counted work of a search: 0.2 s a candidate, 1.5 s to begin
DEGREES = {
    "tp": (1, 2, 3, 4, 8, 16),
    "cp": (1, 1, 2, 4, 8),
    "pp": (1, 2, 3, 4, 5, 6, 7, 8, 12, 16),
    "dp": (1, 2, 3, 4, 5, 6, 8, 12, 16, 32),
    "vpp": (1, 1, 2, 3, 4),
    "micro_batch_sequences": (1, 1, 2, 3, 4, 8),
    "ep": (1, 2, 3, 4, 8, 16),
    "sharding": ("ddp", "zero1", "zero1", "fsdp", "hsdp"),
    "recompute": ("none", "selective", "full"),
    "family": ("one_way", "loop", "v"),
    "layer_split": ("even", "by_gpu_type"),
}
ROOMY = (0.0, 0.02, 0.1, 0.3, 0.6, 0.85)


def random_request(seed: str) -> Json:
    """The request of a seed, as the JSON that can be posted; valid by construction."""
    dice = Dice(seed)
    hardware = cluster(dice)
    gpus = sorted({one["gpu"] if isinstance(one["gpu"], str) else one["gpu"]["name"] for one in hardware["pools"]})
    document: Json = {"workload": workload(dice, gpus), "cluster": hardware}
    _soften(dice, document)
    _join(dice, document)
    limits = constraints(dice, document)
    if limits:
        document["constraints"] = limits
    _open_up(dice, document)
    document["options"] = options(dice)
    document["objective"] = objective(dice, document)
    return document


def _soften(dice: Dice, document: Json) -> None:
    """Mostly a precision that every type has: the rest is refused before any search."""
    read = PlanRequest.model_validate(document)
    peak = f"{read.workload.precision}_flops_per_s"
    narrow = read.workload.precision in ("fp8", "fp4")
    lacking = narrow and any(getattr(pool.gpu, peak) is None for pool in read.cluster.pools)
    if lacking and dice.chance(MOSTLY):
        del document["workload"]["precision"]


def _join(dice: Dice, document: Json) -> None:
    """What buildings without links are to each other, mostly where it has to be said, and now and then where not."""
    missing = any(links_missing(PlanRequest.model_validate(document)))
    words = fabric_words(document)
    if words and dice.chance(MOSTLY if missing else 0.05):
        document["cluster"]["fabric"] = dice.pick(words)


def fabric_words(document: Json) -> list[str]:
    """What may be said of buildings without links, so that no link is missing."""
    words = ("one", "separate")
    said = {word: {**document, "cluster": {**document["cluster"], "fabric": word}} for word in words}
    return [word for word in words if not any(links_missing(PlanRequest.model_validate(said[word])))]


def _open_up(dice: Dice, document: Json) -> None:
    """Fewer constraints where they leave no configuration: mostly, for a refusal is soon told."""
    while document.get("constraints") and dice.chance(MOSTLY) and _is_empty(document):
        limits = document["constraints"]
        part = limits["allowed"] if limits.get("allowed") else limits
        del part[dice.pick(sorted(part))]


def _is_empty(document: Json) -> bool:
    read = PlanRequest.model_validate(document)
    refused = lint(read) or framework_reasons(read)
    return bool(refused) or not len(enumerate_space(within_framework(read)))


def constraints(dice: Dice, document: Json) -> Json:
    """What a plan must obey: often a few degrees, now and then a place or an amount."""
    hardware, found = document["cluster"], dict[str, Any]()
    wanted = allowed(dice, PlanRequest.model_validate(document))
    if wanted:
        found["allowed"] = wanted
    places = hardware["places"]
    for name, share, value in (
        ("framework", 0.12, dice.pick(FRAMEWORKS)),
        ("pins", 0.15, [pin(dice, hardware) for _ in range(dice.whole(1, 2))]),
        ("forbidden_places", 0.08, [dice.pick(places)["id"]]),
        ("max_gpus", 0.12, dice.pick((1, 4, 7, 8, 12, 16, 24, 32, 64))),
        ("use_all_gpus", 0.06, True),
        ("memory_headroom_fraction", 0.3, dice.pick(ROOMY)),
        ("max_cross_building_bytes_per_iteration", 0.1, dice.pick((0.0, 1e6, 1e8, 1e9, 1e10, 1e11, 1e12))),
        ("pipeline_may_cross_buildings", 0.1, False),
        ("data_parallel_may_cross_buildings", 0.1, False),
    ):
        if dice.chance(share):
            found[name] = value
    return found


def allowed(dice: Dice, request: PlanRequest) -> Json:
    """Degrees that are fixed or left to a few values, mostly such as divide what they have to."""
    share = dice.pick((0.05, 0.25, 0.4, 0.5))
    divided, found = _divided(request), dict[str, Any]()
    for name, values in DEGREES.items():
        whole = divided.get(name)
        sound = [one for one in values if whole is None or not isinstance(one, int) or whole % one == 0]
        usable = sound if dice.chance(MOSTLY) else list(values)
        if dice.chance(share) and usable:
            number = dice.pick((1, 1, 2, 3))
            found[name] = list(dict.fromkeys(dice.pick(usable) for _ in range(number)))
    layers = request.workload.architecture.num_layers
    if "pp" in found and dice.chance(MOSTLY):
        found["pp"] = list(dict.fromkeys(min(one, layers) for one in found["pp"]))
    return found


def _divided(request: PlanRequest) -> dict[str, int]:
    """What each degree has to divide."""
    model, job = request.workload.architecture, request.workload
    attention = model.attention
    shared = attention.num_kv_heads if isinstance(attention, GroupedQueryAttention) else attention.num_heads
    return {
        "tp": gcd(attention.num_heads, shared, max(pool.gpu.scale_up_domain_gpus for pool in request.cluster.pools)),
        "cp": job.sequence_length,
        "dp": job.global_batch_sequences,
        "micro_batch_sequences": job.global_batch_sequences,
        "ep": model.moe.num_experts if model.moe else 1,
    }


def pin(dice: Dice, hardware: Json) -> Json:
    """Some first ranks, or one further on, in a place that holds GPUs, for all replicas or for some."""
    first = dice.pick((0, 0, 0, 1, 2))
    holder = dice.pick(hardware["pools"])["place"]
    parents = {one["id"]: one.get("parent") for one in hardware["places"]}
    place = parents[holder] if parents[holder] and dice.chance(0.5) else holder
    found: Json = {"first_pipeline_rank": first, "last_pipeline_rank": first + dice.pick((0, 0, 1)), "place": place}
    if dice.chance(0.4):
        found["num_replicas"] = dice.whole(1, 4)
    return found


def options(dice: Dice) -> Json:
    """Counted work and one worker, so that a request always takes the same way."""
    found: Json = {
        "time_limit_s": dice.pick(WORK_S),
        "relative_gap": dice.pick((0.0, 0.0, 0.01)),
        "workers": 1,
        "seed": dice.whole(0, 9),
        "reproducible": True,
    }
    if dice.chance(0.2):
        found["stack_profile"] = dice.pick(STACKS)
    elif dice.chance(0.2):
        found["stack_profile"] = stack(dice)
    return found


def stack(dice: Dice) -> Json:
    """A profile with constants away from the usual, some of them at legal extremes."""
    found: Json = {"name": "own"}
    for flag in ("sequence_parallel", "dropout", "scatter_gather_pipeline", "context_parallel_ring"):
        if dice.chance(0.25):
            found[flag] = dice.chance(0.5)
    for name, field in StackProfile.model_fields.items():
        if field.annotation is Constant and dice.chance(0.25):
            usual = field.default.value
            found[name] = {"value": constant(dice, name, usual), "origin": "guessed"}
    return found


def constant(dice: Dice, name: str, usual: float) -> float:
    """Another value of a constant: shares may reach 1 and most of them more, times and traffic may vanish."""
    if name == "framework_bytes":
        return dice.pick((0.0, 1e8, 3e9, 1e10))
    if name.endswith("overlap"):
        return dice.pick((0.0, 0.3, 0.9, 1.0))
    if name.endswith("_s"):
        return dice.pick((0.0, 1e-6, usual * 3, 0.05))
    if name in SHARES_OF_A_WIRE:
        return dice.pick((0.05, 0.3, 0.6, 1.0, 1.0))
    if "efficiency" in name or name == "expert_gemm_share":
        return dice.pick((0.05, 0.3, 0.6, 1.0, 1.0, 1.6))
    least = 0.05 if name in DIVISORS else 0.0
    return float(f"{dice.pick((least, 0.25, 0.9, 1.0, 1.5, 4.0)) * (usual or 0.2):.3g}")


def objective(dice: Dice, document: Json) -> Json:
    """What is to be least; targets lie from near what light allows to far above what is likely."""
    kind = dice.pick(("iteration_time",) * 5 + ("cost_per_token",) * 2 + ("fewest_gpus",) * 2)
    kind = "least_cross_building_traffic" if dice.chance(0.15) else kind
    if kind == "iteration_time" and dice.chance(0.15):
        return {"kind": "time_at_confidence", "confidence": dice.pick((0.5, 0.8, 0.9, 0.99))}
    found: Json = {"kind": kind}
    if kind in ("fewest_gpus", "least_cross_building_traffic"):
        target_s = min(_light_s(document) * dice.log(3.0, 3e4), MOST_SECONDS)  # without usable GPUs it is any number
        found["target_iteration_s"] = float(f"{target_s:.3g}")
    return found


def _light_s(document: Json) -> float:
    """Six FLOPs per parameter and token over the peak of all GPUs, very roughly."""
    request = PlanRequest.model_validate({key: document[key] for key in ("workload", "cluster")})
    model = request.workload.architecture
    width = model.ffn_hidden_size if model.moe is None else model.moe.expert_ffn_hidden_size * 2
    size = model.num_layers * model.hidden_size * (4 * model.hidden_size + 3 * width)
    size += model.vocab_size * model.hidden_size
    peak = sum(pool.num_free_gpus * pool.gpu.bf16_flops_per_s for pool in request.cluster.pools)
    return 6.0 * size * request.workload.tokens_per_iteration / max(peak, 1.0) or 1e-3
