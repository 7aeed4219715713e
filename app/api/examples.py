"""Bodies that are ready to send, and typical problems, as the OpenAPI document and the example routes show them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from fastapi.openapi.models import Example
from pydantic import BaseModel

from app.api.problems import example_name, problem_body
from app.faults import Fault
from app.wire import PlanHead, PlanLinks
from models.catalogue import entry_names, named_entry


def title(name: str) -> str:
    """A name as a title.

    >>> title("llama-405b-two-buildings")
    'Llama 405b two buildings'
    """
    return name.replace("-", " ").capitalize()


def num_gpus(name: str) -> int:
    """GPUs that an example may use.

    >>> num_gpus("llama-8b-single-building")
    2048
    """
    request = named_entry("examples", name)
    cluster = request["cluster"]
    pools = (named_entry("clusters", cluster) if isinstance(cluster, str) else cluster)["pools"]
    total: int = sum(pool["num_hosts"] * pool.get("gpus_per_host", 8) for pool in pools)
    most: int | None = request.get("constraints", {}).get("max_gpus")
    return total if most is None else min(total, most)


def about(name: str) -> str:
    """What an example plans, and how large that is.

    >>> about("llama-8b-single-building")
    'llama-3.1-8b on up to 2,048 GPUs of cluster single-building.'
    """
    request = named_entry("examples", name)
    parts = (request["workload"]["architecture"], request["cluster"])
    architecture, cluster = (one if isinstance(one, str) else one["name"] for one in parts)
    return f"{architecture} on up to {num_gpus(name):,} GPUs of cluster {cluster}."


def body(summary: str, **value: Any) -> Example:
    """A body under the heading it has in the description of the interface."""
    return Example(summary=summary, value=value)


# From small to large: the first is the one that a page offers.
REQUEST_EXAMPLES: dict[str, Example] = {
    name: Example(summary=title(name), description=about(name), value=named_entry("examples", name))
    for name in sorted(entry_names("examples"), key=lambda name: (num_gpus(name), name))
}
REPLAN_EXAMPLES = {
    "building-lost": body("A building is lost: move out of it", lost_places=["west"]),
    "fewer-gpus": body("Fewer GPUs may be used", patch={"constraints": {"max_gpus": 8192}}, lost_places=[]),
}
RESUME_EXAMPLES = {
    "ten-more-minutes": body("Give it ten more minutes", time_limit_s=600),
    "as-long-again": body("As long again, for a smaller gap", relative_gap=0.005),
}
HOSTS = "east-pool=e[001-128]\nwest-pool=w[001-128]"
HOSTS_EXAMPLES = {"by-pool": body("Hosts of two pools, as patterns", hosts=HOSTS)}
BUNDLE_EXAMPLES = {
    "megatron-on-slurm": body(
        "Megatron-LM on Slurm, with the site's words",
        trainer="megatron-core",
        scheduler="slurm",
        hosts=HOSTS,
        time_limit_minutes=1440,
        partition="gpu",
    )
}
TWO_BUILDINGS = named_entry("examples", "llama-405b-two-buildings")
ONE_BUILDING = named_entry("examples", "llama-8b-single-building")
STUDY_EXAMPLES = {
    "batch-by-gpus": body(
        "Two batch sizes on two numbers of GPUs: four plans",
        name="batch by GPUs",
        base=ONE_BUILDING,
        axes={"/workload/global_batch_sequences": [512, 1024], "/constraints/max_gpus": [1024, 2048]},
    ),
    "what-may-cross": body(
        "What it costs when pipelines, or replicas, may not cross buildings: two plans",
        name="what may cross",
        base=TWO_BUILDINGS,
        patches=[
            {"constraints": {"pipeline_may_cross_buildings": False}},
            {"constraints": {"data_parallel_may_cross_buildings": False}},
        ],
        webhook={"url": "https://hooks.example.org/isthmus"},
    ),
}
IMPORT_EXAMPLES = {
    "links": body(
        "Two sites from a table of links, with their GPUs",
        kind="links-csv",
        files=[{"name": "links.csv", "text": "from_place,to_place,capacity_bytes_per_s,latency_s\n"
                "east,west,6.4e12,5e-4\n"}],
        overlay={"name": "overlay.yaml", "text": "levels: [{level: site, place: building}]\npools:\n"
                 "  - {id: e, place: east, gpu: H100-SXM-80G, num_hosts: 64, nic_bytes_per_s: 5e10}\n"
                 "  - {id: w, place: west, gpu: H100-SXM-80G, num_hosts: 64, nic_bytes_per_s: 5e10}\n"},
    ),
    "model": body(
        "A model from its config.json",
        kind="huggingface",
        name="llama-3.1-8b",
        files=[{"name": "config.json", "text": '{"model_type": "llama", "hidden_size": 4096, '
                '"intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, '
                '"num_key_value_heads": 8, "tie_word_embeddings": false, "vocab_size": 128256}'}],
    ),
}  # fmt: skip


def _question(summary: str, ask: str, request: Any, *, seconds: float = 120, **details: Any) -> Example:
    return body(summary, ask=ask, request=request, **details, options={"time_limit_s": seconds})


TIGHT = {
    "workload": {"architecture": "llama-3.1-70b", "sequence_length": 8192, "global_batch_sequences": 256},
    "cluster": "single-building",
    "constraints": {"max_gpus": 64, "allowed": {"tp": [2], "pp": [1, 2], "sharding": ["zero1"]}},
}
LINK = "/cluster/links/east-west"
VARIANTS = [
    {
        "name": "half of the link",
        "changes": [{"pointer": f"{LINK}/capacity_bytes_per_s", "op": "multiply", "value": 0.5}],
    },
    {"name": "20 ms", "changes": [{"pointer": f"{LINK}/latency_s", "value": 0.02}]},
    {"name": "141 GB", "changes": [{"pointer": "/cluster/pools/*/gpu/memory_bytes", "value": 1.41e11}]},
]
SCENARIOS = [
    {"name": "night", "changes": [{"pointer": f"{LINK}/background_bytes_per_s", "value": 2e11}], "weight": 0.3},
    {"name": "slow west", "slow_pools": [{"pool": "west-z1-h100", "times": 1.1}], "weight": 0.1},
]
JUNE = {"tokens": 1e12, "begins_at": "2026-06-01T00:00:00Z", "ends_at": "2026-07-01T00:00:00Z"}
QUESTION_EXAMPLES = {
    "why-not": _question("Why is there no plan with tp 2 and at most 2 pipeline ranks?", "why_not", TIGHT, seconds=60),
    "what-if": _question("What would half of the link, 20 ms of delay, and 141 GB of memory be worth?", "what_if",
                         TWO_BUILDINGS, variants=VARIANTS, seconds=60),
    "what-now": _question("The western building is gone: what can stay, what has to move?", "what_now", TWO_BUILDINGS,
                          lost=["west"], time_tolerance=0.1, seconds=60),
    "robust": _question(
        "Which plan is best whether the link is as it should be, busy at night, or the western pool straggles?",
        "robust", TWO_BUILDINGS, scenarios=SCENARIOS, measure="expected"),
    "what-if-lost": _question("Answers for the loss of any building or link, prepared", "what_if_lost", TWO_BUILDINGS,
                              kinds=["building", "link"]),
    "worth": _question("Which link is worth more fibre, and what does distance cost?", "worth",
                       named_entry("examples", "mixtral-five-zones"), of=["links", "distance"]),
    "curves": _question("Iteration time over bandwidth and latency", "curves",
                        named_entry("examples", "nemotron-340b-two-sites-1000km"), over=["bandwidth", "latency"]),
    "least": _question("The fewest GPUs and the least fibre for a trillion tokens in June", "least",
                       named_entry("examples", "llama-8b-cloud-zones"), target=JUNE, of=["gpus", "fibre"], seconds=60),
    "frontier": _question("Iteration time against GPUs and energy", "frontier", ONE_BUILDING,
                          against=["gpus", "energy"]),
}  # fmt: skip


def _pipeline(summary: str, num_stages: int, **changes: Any) -> Example:
    """A problem of equal stages: 20 ms forward, 22 ms for the input gradient, 16 ms for the weight gradient."""
    stage = {"forward_s": 0.02, "input_grad_s": 0.022, "weight_grad_s": 0.016, "activation_bytes": 1e9}
    stages = [stage] * num_stages
    return body(summary, num_microbatches=8, stages=stages, options={"time_limit_s": 5}, **changes)


SCHEDULE_EXAMPLES = {
    "two-buildings": _pipeline(
        "Four ranks, the middle hop between two buildings 60 ms apart",
        4,
        ranks=[{}] * 4,
        hops=[{"from_stage": 1, "to_stage": 2, "latency_s": 0.06, "transfer_s": 0.005, "link": "east-west"}],
    ),
    "v-shaped-little-memory": _pipeline(
        "Four ranks with two chunks each, folded as a V, and memory for six chunks in flight",
        8,
        ranks=[{"activation_budget_bytes": 6e9}] * 4,
        layout="v",
    ),
}


# Published iteration times of GPT models (arXiv 2401.10241); ten rows are enough for the five constants they can tell.
MEASURED_RUNS_CSV = """\
model,layers,hidden,heads,seq_len,gpu,num_gpus,tp,pp,mbs,gbs,precision,recompute,schedule,framework,iter_time_s
GPT-1.5B,22,2304,24,1024,A100-80G,8,1,8,6,384,fp16,none,1F1B,Megatron-LM,3.5294
GPT-6.2B,30,4096,32,1024,A100-80G,8,1,8,3,192,fp16,none,1F1B,Megatron-LM,5.9553
GPT-14.6B,46,5120,40,1024,A100-80G,16,1,16,1,128,fp16,none,1F1B,Megatron-LM,4.878
GPT-28.3B,62,6144,48,1024,A100-80G,32,1,32,1,128,fp16,none,1F1B,Megatron-LM,5.0
GPT-1.5B,22,2304,24,1024,A100-80G,8,1,8,6,144,fp16,none,interleaved-1F1B (1 layer per chunk),Megatron-LM,1.374
GPT-6.2B,30,4096,32,1024,A100-80G,8,1,8,3,72,fp16,none,interleaved-1F1B (1 layer per chunk),Megatron-LM,2.2444
GPT-6.2B,30,4096,32,1024,A100-80G,8,1,8,3,192,fp16,none,interleaved-1F1B (1 layer per chunk),Megatron-LM,5.7279
GPT-28.3B,62,6144,48,1024,A100-80G,32,1,32,1,128,fp16,none,interleaved-1F1B (1 layer per chunk),Megatron-LM,4.7059
GPT-1.5B,22,2304,24,1024,A100-80G,8,1,8,6,192,fp16,none,ZB-1p,Megatron-LM,1.791
GPT-6.2B,30,4096,32,1024,A100-80G,8,1,8,3,72,fp16,none,ZB-1p,Megatron-LM,2.3196
"""
CALIBRATION_EXAMPLES = {
    "one-constant": body(
        "Four measured runs of one stack, one constant freed",
        name="our-cluster",
        constants=["gemm_efficiency"],
        rows=list(csv.DictReader(MEASURED_RUNS_CSV.splitlines()))[:4],
    )
}
_EVALUATION: dict[str, Any] = json.loads((resources.files(__package__) / "evaluation.json").read_text(encoding="utf-8"))
EVALUATION_EXAMPLES = {
    "two-small-buildings": body("A pipeline over two buildings of 16 GPUs each, with its request", **_EVALUATION)
}


def _shown(model: type[BaseModel]) -> dict[str, Any]:
    """The first example of every field that has one."""
    return {name: field.examples[0] for name, field in model.model_fields.items() if field.examples}


_PLANNED = {"status": "planned", "plan": _EVALUATION["plan"], "complete": True, "elapsed_s": 1.1}
_ENVELOPE = {**_shown(PlanHead), "links": _shown(PlanLinks), "outcome": _PLANNED, "fault": None}
PLAN_CONTENT = {"application/json": {"examples": {"planned": {"$ref": "#/components/examples/planned"}}}}

# One typical fault of every status.
_FAULTS = (
    Fault("invalid-json", "not a JSON document: expected value at line 3 column 14", "", "one JSON document in UTF-8",
          "Correct the text at the stated line and column."),
    Fault("credentials-missing", "the request has no Authorization header", "", "Authorization: Bearer isthmus_...",
          "Ask whoever runs the service for a key.", "header Authorization"),
    Fault("not-allowed", "this needs the scope submit, the key has read", "", "keys with the scope submit",
          "Use another key.", "header Authorization"),
    Fault("not-found", "there is no plan 'plan_019da1b2c3d4'", "", "what the list shows",
          "Use an id that GET /v1/plans lists.", "path"),
    Fault("body-too-slow", "the body did not arrive within 30 s", "", "at most 30 s",
          "Send the request again over a faster connection."),
    Fault("idempotency-key-in-use", "another request with this Idempotency-Key is being answered right now", "",
          "one request at a time per key",
          "Wait for the answer of the first request, or send it again a little later."),
    Fault("precondition-failed", "the plan has changed", "", "the strong ETag that it has now, or *",
          "Read it again with Accept-Encoding: identity, then decide.", "header If-Match"),
    Fault("body-too-large", "the body has 16,777,217 bytes or more, the limit is 16,777,216", "",
          "at most 16,777,216 bytes", "Name catalogue entries instead of whole objects, or merge equal pools."),
    Fault("unsupported-media-type", "the body is declared as 'text/plain'", "", "Content-Type: application/json",
          "Send JSON, and say so in Content-Type.", "header Content-Type"),
    Fault("host-not-allowed", "the Host header says 'evil.example'", "", "localhost, ip6-localhost, ip6-loopback",
          "Use one of these names, or add the name to ISTHMUS_ALLOWED_HOSTS.", "header Host"),
    Fault("out-of-range", "Input should be greater than 0, got -1", "/options/time_limit_s", "more than 0",
          "Give a value in the allowed range, in the unit that the field name states."),
    Fault("queue-full", "1000 plans wait and 1 would be added, the limit is 1000", "",
          "at most 1000 queued plans of this service", "Send the request again after the time in Retry-After.",
          limit=1000, value=1001),
    Fault("internal-error", "a defect of this program", "", "",
          "Report the time and the path of the request to whoever runs the service."),
    Fault("not-ready", "the database of the service does not answer", "", "",
          "Send the request again after the time in Retry-After."),
)  # fmt: skip
PROBLEM_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    example_name(body["status"]): {"summary": body["title"], "value": body}
    for body in (problem_body("/v1/plans", [fault.to_dict()]) for fault in _FAULTS)
}
# What responses refer to by name, because many share it or because it is long.
SHARED_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    **PROBLEM_EXAMPLES,
    "planned": {"summary": "A small plan over two buildings", "value": _ENVELOPE},
}
