"""Plays the how-to on launching: isthmus in this process, what starts the job in a shell.

The trainer is a stand-in, so steps of the planned time are written into the job's log before it is observed.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.documents import read_plan
from models.request import PlanRequest
from tests.build_exports import wide_plan
from tests.build_request import link
from tests.docs.player import HOWTOS
from tests.unit.app.observations.samples import megatron_line

NAME = "launch-a-plan.md"
BLOCK = re.compile(r"<!-- (file: [\w.-]+|plans|runs|fails|starts|observes) -->\n```\w*\n(.*?)```", re.DOTALL)
EXIT = {"plans": 0, "runs": 0, "fails": 2, "observes": 0}


def play_launch(folder: Path, hosts_per_building: int, environment: dict[str, str], *, planning: bool) -> None:
    """Everything, in order, over two buildings; `environment` has the scheduler's commands in its PATH.

    The plan is made by hand unless `planning`: a search takes its time.
    """
    plan, request = wide_plan(hosts_per_building)
    (folder / "plan.json").write_text(plan.model_dump_json())
    (folder / "request.json").write_text(json.dumps(_to_plan(request) if planning else request.model_dump(mode="json")))
    kinds = []
    for kind, content in BLOCK.findall((HOWTOS / NAME).read_text(encoding="utf-8")):
        kinds.append(kind)
        if kind.startswith("file: "):
            (folder / kind.removeprefix("file: ")).write_text(content, encoding="utf-8")
        elif kind == "starts":
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", content], cwd=folder, env=environment,
                                  capture_output=True, text=True, check=False, timeout=400)  # fmt: skip
            assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        elif kind != "plans" or planning:
            if kind == "observes":
                _train(folder)
            for line in content.splitlines():
                assert _isthmus(line) == EXIT[kind], line
    assert kinds == ["plans", "file: hosts", "fails", "runs", "starts", "runs", "observes"]


def _to_plan(request: PlanRequest) -> dict[str, Any]:
    """The request of the plan made by hand, for Megatron-LM on all GPUs: both buildings are needed."""
    document = request.model_dump(mode="json")
    document["cluster"]["links"] = [link("fibre", "east", "west", latency_s=5e-4)]
    document["constraints"] |= {"use_all_gpus": True, "framework": "megatron-core"}
    document["options"] |= {"time_limit_s": 10.0, "reproducible": True}
    return document


def _train(folder: Path) -> None:
    """Steps of the planned time at the end of the job's log."""
    plan = read_plan((folder / "plan.json").read_bytes())
    one = plan.configuration
    batch = one.degrees.dp * one.num_microbatches * one.micro_batch_sequences
    steps = [megatron_line(step, 1e3 * plan.metrics.iteration_s, batch=batch) for step in range(1, 7)]
    with (folder / "ranks.log").open("a", encoding="utf-8") as log:
        log.write("\n".join(steps) + "\n")


def _isthmus(line: str) -> int:
    program, *arguments = shlex.split(line)
    assert program == "isthmus"
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)
