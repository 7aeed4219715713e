"""Configurations of published models through the import, and their sizes as model cards count them."""

from __future__ import annotations

import json
from typing import Any

from app.importers.huggingface import ImportedModel, huggingface
from models.workload import Architecture, Workload
from solver.cost.job import Job, job_of


def imported(config: dict[str, Any], **more: Any) -> ImportedModel:
    """A configuration as if it were read from a file."""
    return huggingface("config.json", json.dumps(config, indent=1).encode(), **more)


def body_of(architecture: Architecture) -> Job:
    """A model without its prediction layers, which model cards leave out."""
    body = architecture.model_copy(update={"num_mtp_layers": 0})
    return job_of(Workload(architecture=body, sequence_length=1, global_batch_sequences=1))
