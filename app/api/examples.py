"""Bodies that are ready to send, and typical problems, as the OpenAPI document and the example routes show them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml
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


class _Bodies(yaml.SafeLoader):
    """YAML in which `!example NAME` stands for a request of the catalogue."""


def _example(loader: _Bodies, node: yaml.ScalarNode) -> Any:
    return named_entry("examples", str(loader.construct_scalar(node)))


_Bodies.add_constructor("!example", _example)
_HERE = resources.files(__package__)
_BODIES: dict[str, Any] = yaml.load((_HERE / "examples.yaml").read_text(encoding="utf-8"), _Bodies)


def _of(part: str) -> dict[str, Example]:
    """The bodies of `examples.yaml` for one route, each under the heading that the OpenAPI document shows."""
    return {name: Example(summary=body["summary"], value=body["value"]) for name, body in _BODIES[part].items()}


# From small to large: the first is the one that a page offers.
REQUEST_EXAMPLES: dict[str, Example] = {
    name: Example(summary=title(name), description=about(name), value=named_entry("examples", name))
    for name in sorted(entry_names("examples"), key=lambda name: (num_gpus(name), name))
}
REPLAN_EXAMPLES, RESUME_EXAMPLES = _of("replan"), _of("resume")
HOSTS_EXAMPLES, BUNDLE_EXAMPLES = _of("hosts"), _of("bundle")
STUDY_EXAMPLES, IMPORT_EXAMPLES = _of("study"), _of("import")
QUESTION_EXAMPLES, SCHEDULE_EXAMPLES = _of("question"), _of("schedule")
# Published iteration times of GPT models (arXiv 2401.10241); ten rows are enough for the five constants they can tell.
MEASURED_RUNS_CSV = (_HERE / "measured_runs.csv").read_text(encoding="utf-8")
CALIBRATION_EXAMPLES = {
    "one-constant": Example(
        summary="Four measured runs of one stack, one constant freed",
        value={
            "name": "our-cluster",
            "constants": ["gemm_efficiency"],
            "rows": list(csv.DictReader(MEASURED_RUNS_CSV.splitlines()))[:4],
        },
    )
}
_EVALUATION: dict[str, Any] = json.loads((_HERE / "evaluation.json").read_text(encoding="utf-8"))
EVALUATION_EXAMPLES = {
    "two-small-buildings": Example(
        summary="A pipeline over two buildings of 16 GPUs each, with its request", value=_EVALUATION
    )
}


def _shown(model: type[BaseModel]) -> dict[str, Any]:
    """The first example of every field that has one."""
    return {name: field.examples[0] for name, field in model.model_fields.items() if field.examples}


_PLANNED = {"status": "planned", "plan": _EVALUATION["plan"], "complete": True, "elapsed_s": 1.1}
_ENVELOPE = {**_shown(PlanHead), "links": _shown(PlanLinks), "outcome": _PLANNED, "fault": None}
PLAN_CONTENT = {"application/json": {"examples": {"planned": {"$ref": "#/components/examples/planned"}}}}

PROBLEM_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    example_name(body["status"]): {"summary": body["title"], "value": body}
    for body in (problem_body("/v1/plans", [Fault(**fault).to_dict()]) for fault in _BODIES["problems"])
}
# What responses refer to by name, because many share it or because it is long.
SHARED_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    **PROBLEM_EXAMPLES,
    "planned": {"summary": "A small plan over two buildings", "value": _ENVELOPE},
}
