"""Plan requests that are wrong in one way each: the body, where the answer must point, and what it must say.

Pure data for every door: the tests of the vocabulary, of the command line and of the HTTP service use the same table.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

REMOVED = object()
Caught = Literal["vocabulary", "lint", "wire"]
"""Who objects first: the models, the solver's lint (contradictions that need arithmetic), or the HTTP layer."""


def good_request() -> dict[str, Any]:
    """A small request that validates, with every object written out: the soil of the bad ones."""
    uplink = {"oversubscription": 2.8, "planes": 16}
    return {
        "workload": {
            "architecture": {
                "name": "small",
                "num_layers": 32,
                "hidden_size": 4096,
                "ffn_hidden_size": 14336,
                "attention": {"kind": "gqa", "num_heads": 32, "num_kv_heads": 8, "head_dim": 128},
                "vocab_size": 32000,
                "moe": {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 14336},
            },
            "sequence_length": 4096,
            "global_batch_sequences": 512,
        },
        "cluster": {
            "name": "pair",
            "places": [
                {"id": "campus", "level": "region"},
                {"id": "east", "level": "building", "parent": "campus"},
                {"id": "west", "level": "building", "parent": "campus"},
                {"id": "east-z1", "level": "zone", "parent": "east", "uplink": uplink},
                {"id": "west-z1", "level": "zone", "parent": "west", "uplink": uplink},
            ],
            "pools": [
                {
                    "id": f"{place}-pool",
                    "place": place,
                    "gpu": {
                        "name": "H100-SXM-80G",
                        "bf16_flops_per_s": 9.89e14,
                        "memory_bytes": 8.0e10,
                        "memory_bytes_per_s": 3.35e12,
                        "scale_up_bytes_per_s": 4.5e11,
                        "scale_up_domain_gpus": 8,
                    },
                    "num_hosts": 32,
                    "nic_bytes_per_s": 5.0e10,
                }
                for place in ("east-z1", "west-z1")
            ],
            "links": [
                {
                    "id": "east-west",
                    "from_place": "east",
                    "to_place": "west",
                    "capacity_bytes_per_s": 1e13,
                    "planes": 16,
                }
            ],
        },
        "constraints": {},
        "objective": {"kind": "iteration_time"},
        "options": {"time_limit_s": 5.0},
    }


@dataclass(frozen=True)
class BadRequest:
    """One way to be wrong. `pointer` and `says` must occur in the answer; `caught` tells who gives it."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    pointer: str = ""
    says: str = ""
    caught: Caught = "vocabulary"
    raw: Callable[[], str] | None = None

    def text(self) -> str:
        """The body as it goes over the wire."""
        return self.raw() if self.raw else json.dumps(self.body())

    def body(self) -> dict[str, Any]:
        """The good request with the changes, each named by its JSON Pointer."""
        document = good_request()
        for pointer, value in self.changes.items():
            _put(document, pointer.split("/")[1:], value)
        return document


def _put(document: Any, path: list[str], value: Any) -> None:
    *way, last = (int(part) if part.isdigit() else part for part in path)
    for part in way:
        document = document.setdefault(part, {}) if isinstance(document, dict) else document[part]
    if value is REMOVED:
        del document[last]
    else:
        document[last] = copy.deepcopy(value)


def _deep() -> str:
    return '{"workload":' + "[" * 100_000 + "]" * 100_000 + "}"


def _huge() -> str:
    return json.dumps(good_request() | {"cluster": "x" * 100_000_000})


def _with_text(pointer: str, literal: str) -> Callable[[], str]:
    def text() -> str:
        return json.dumps(BadRequest("", {pointer: "@"}).body()).replace('"@"', literal)

    return text


GPU, PLACES, LINK = "/cluster/pools/0/gpu", "/cluster/places", "/cluster/links/0"
ARCHITECTURE, MOE = "/workload/architecture", "/workload/architecture/moe"

WRONG_UNITS = (
    BadRequest("network card in Gb/s", {"/cluster/pools/0/nic_bytes_per_s": 400}, "/cluster/pools/0/nic", "5e10"),
    BadRequest("memory in GB", {f"{GPU}/memory_bytes": 80}, f"{GPU}/memory_bytes", "8e10"),
    BadRequest("peak in TFLOP/s", {f"{GPU}/bf16_flops_per_s": 989}, f"{GPU}/bf16_flops_per_s", "9.89e14"),
    BadRequest("delay in microseconds", {f"{LINK}/latency_s": 500}, f"{LINK}/latency_s", "less than or equal to 10"),
    BadRequest("loss in percent", {f"{LINK}/loss_probability": 1.5}, f"{LINK}/loss", "less than or equal to 0.5"),
)

WRONG_VALUES = (
    BadRequest("negative batch", {"/workload/global_batch_sequences": -1}, "/workload/global_batch", "greater than or"),
    BadRequest("negative capacity", {f"{LINK}/capacity_bytes_per_s": -1e12}, f"{LINK}/capacity", "greater than 0"),
    BadRequest("zero layers", {f"{ARCHITECTURE}/num_layers": 0}, f"{ARCHITECTURE}/num_layers", "greater than or"),
    BadRequest("a billion hosts", {"/cluster/pools/0/num_hosts": 10**9}, "/cluster/pools/0/num_hosts", "less than or"),
    BadRequest("a list of extra layers", {f"{ARCHITECTURE}/num_mtp_layers": 10**8}, f"{ARCHITECTURE}/num_mtp", "4096"),
    BadRequest("a billion experts", {f"{MOE}/num_experts": 10**9}, f"{MOE}/num_experts", "1048576"),
    BadRequest("a billion heads", {f"{ARCHITECTURE}/attention/num_heads": 10**9}, f"{ARCHITECTURE}/att", "65536"),
    BadRequest("a domain of a billion", {f"{GPU}/scale_up_domain_gpus": 10**9}, f"{GPU}/scale_up_domain", "65536"),
    BadRequest("no GPU allowed", {"/constraints/max_gpus": 0}, "/constraints/max_gpus", "greater than or equal to 1"),
    BadRequest("text for a number", {"/workload/sequence_length": "long"}, "/workload/sequence_length", "integer"),
    BadRequest("half a host", {"/cluster/pools/0/num_hosts": 12.5}, "/cluster/pools/0/num_hosts", "integer"),
    BadRequest("unknown precision", {"/workload/precision": "fp64"}, "/workload/precision", "'bf16'"),
    BadRequest("unknown level", {f"{PLACES}/1/level": "house"}, f"{PLACES}/1/level", "'building'"),
    BadRequest("control character", {"/cluster/pools/0/id": "a\x00b"}, "/cluster/pools/0/id", "pattern"),
    BadRequest("cluster is null", {"/cluster": None}, "/cluster", "object"),
    BadRequest("NaN", raw=_with_text(f"{LINK}/capacity_bytes_per_s", "NaN"), pointer=f"{LINK}/cap", says="finite"),
    BadRequest("infinity", raw=_with_text("/options/time_limit_s", "1e999"), pointer="/options/time", says="finite"),
)

WRONG_SHAPES = (
    BadRequest("no workload", {"/workload": REMOVED}, "/workload", "required"),
    BadRequest("no sequence length", {"/workload/sequence_length": REMOVED}, "/workload/sequence_length", "required"),
    BadRequest("unknown field", {"/deadline": 5}, "/deadline", "not permitted"),
    BadRequest("misspelt field", {"/workload/sequence_lenght": 1}, "/workload/sequence_lenght", "not permitted"),
    BadRequest("unknown attention", {f"{ARCHITECTURE}/attention/kind": "linear"}, f"{ARCHITECTURE}/attention", "'mla'"),
    BadRequest("no places", {PLACES: []}, PLACES, "at least 1"),
    BadRequest("a list for the request", raw=lambda: "[1, 2]", says="object"),
    BadRequest("half a document", raw=lambda: '{"workload": ', says="Invalid JSON"),
    BadRequest("deep JSON", raw=_deep, says="recursion limit"),
    BadRequest("100 MB of text", raw=_huge, caught="wire"),
)

CONTRADICTIONS = (
    BadRequest(
        "cyclic place tree",
        {f"{PLACES}/1/parent": "west", f"{PLACES}/2/parent": "east"},
        "/cluster",
        "a parent lies on a higher level",
    ),
    BadRequest("a place in itself", {f"{PLACES}/1/parent": "east"}, "/cluster", "higher level"),
    BadRequest("unknown parent", {f"{PLACES}/1/parent": "north"}, "/cluster", "use one of"),
    BadRequest("link to nowhere", {f"{LINK}/to_place": "north"}, "/cluster", "use one of"),
    BadRequest("link to itself", {f"{LINK}/to_place": "east"}, LINK, "two different places"),
    BadRequest("pool in no place", {"/cluster/pools/0/place": "north"}, "/cluster", "use one of"),
    BadRequest("place id twice", {f"{PLACES}/2/id": "east"}, "/cluster", "ids are unique"),
    BadRequest("pool id twice", {"/cluster/pools/1/id": "east-z1-pool"}, "/cluster", "ids are unique"),
    BadRequest("all planes failed", {f"{LINK}/num_failed_planes": 16}, LINK, "remove the link"),
    BadRequest("others fill the link", {f"{LINK}/background_bytes_per_s": 2e13}, LINK, "leaves nothing"),
    BadRequest("more experts visited than exist", {f"{MOE}/experts_per_token": 9}, MOE, "more experts than exist"),
    BadRequest(
        "heads do not divide",
        {f"{ARCHITECTURE}/attention/num_kv_heads": 5},
        f"{ARCHITECTURE}/attention",
        "same number of query heads",
    ),
    BadRequest("no layer is MoE", {f"{MOE}/first_moe_layer": 32}, ARCHITECTURE, "set moe to null or lower it"),
    BadRequest(
        "more reserved than there are", {"/cluster/pools/0/num_reserved_gpus": 300}, "/cluster/pools/0", "lower"
    ),
    BadRequest("hosts half named", {"/cluster/pools/0/host_names": ["n1"]}, "/cluster/pools/0", "give all or none"),
    BadRequest(
        "a billion GPUs",
        {"/cluster/pools/0/num_hosts": 10**6, "/cluster/pools/0/gpus_per_host": 1000},
        "/cluster",
        "check num_hosts and gpus_per_host",
    ),
    BadRequest("no target", {"/objective/kind": "fewest_gpus"}, "/objective", "set target_iteration_s"),
    BadRequest(
        "pin to nowhere",
        {"/constraints/pins": [{"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "north"}]},
        says="constraints.pins[0].place",
    ),
    BadRequest(
        "pin backwards",
        {"/constraints/pins": [{"first_pipeline_rank": 3, "last_pipeline_rank": 1, "place": "east"}]},
        "/constraints/pins/0",
        "below first_pipeline_rank",
    ),
    BadRequest("unknown cluster", {"/cluster": "atlantis"}, "/cluster", "use one of"),
    BadRequest("unknown model", {ARCHITECTURE: "gpt-99"}, ARCHITECTURE, "use one of"),
    BadRequest("unknown GPU", {GPU: "H999"}, GPU, "use one of"),
)

NEEDS_ARITHMETIC = (
    BadRequest("tp over the scale-up domain", {"/constraints/allowed/tp": [16]}, "/allowed/tp", "allow tp", "lint"),
    BadRequest("replicas do not divide the batch", {"/constraints/allowed/dp": [7]}, "/allowed/dp", "multiple", "lint"),
    BadRequest("more stages than layers", {"/constraints/allowed/pp": [64]}, "/allowed/pp", "at most 32", "lint"),
    BadRequest("no FP8 in the GPU", {"/workload/precision": "fp8"}, "/cluster/pools/0/gpu", "bf16", "lint"),
    BadRequest(
        "everything forbidden",
        {"/constraints/forbidden_places": ["campus"]},
        "/forbidden_places",
        "leave 'campus' (512 GPUs) out",
        "lint",
    ),
    BadRequest(
        "degrees beyond the cluster",
        {"/constraints/allowed": {"tp": [8], "pp": [32], "dp": [512]}},
        "/constraints/allowed",
        "smaller degrees",
        "lint",
    ),
)

BAD_REQUESTS = (*WRONG_UNITS, *WRONG_VALUES, *WRONG_SHAPES, *CONTRADICTIONS, *NEEDS_ARITHMETIC)
